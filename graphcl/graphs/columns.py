"""Standardise columns of numbers: those of `x` and `edge_attr`, or of a matrix of vectors with missing cells."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError
from torch import Tensor

from graphcl.arguments import shown
from graphcl.errors import InputError, reason, warn

Scale = tuple[list[float], list[float]]
"""Mean and deviation of each column."""
_ROWS = 2**16
"""Number of rows that are read at a time."""
_RATIO = 10
"""Ratio of the deviations of two columns beyond which an encoder learns little from the smaller one."""


def column_scale(values: Tensor) -> Scale:
    r"""Return the mean and the deviation to standardise each column of `values [N, F]` by.

    $$\mu_j = \frac{1}{N} \sum_i v_{ij}, \qquad \sigma_j^2 = \frac{1}{N} \sum_i (v_{ij} - \mu_j)^2$$

    A column of 0 and 1 only, such as a label, gets mean 0 and deviation 1, so that it stays as it is. Another constant
    column gets deviation 1, so that it becomes 0.

    Example:
        >>> column_scale(torch.tensor([[1.0, 0.0, 7.0], [5.0, 1.0, 7.0]]))
        ([3.0, 0.0, 7.0], [2.0, 1.0, 1.0])
    """
    parts = values.detach().view(len(values), -1).split(_ROWS)
    mean = torch.stack([part.double().sum(0) for part in parts]).sum(0) / len(values)
    square = torch.stack([(part.double() - mean).square().sum(0) for part in parts]).sum(0) / len(values)
    labels = torch.stack([((part == 0) | (part == 1)).all(0) for part in parts]).all(0)
    constant = torch.stack([(part == parts[0][0]).all(0) for part in parts]).all(0)
    mean = torch.where(constant, parts[0][0].double(), mean).masked_fill(labels, 0)
    return mean.tolist(), square.sqrt().masked_fill(labels | constant, 1).tolist()


def standardise(values: Tensor, scale: Tensor) -> Tensor:
    """Return `values [N, F]` or `[N]` minus the mean, divided by the deviation: the rows of `scale [2, F]`."""
    return ((values - scale[0]) / scale[1]).to(values.dtype)


def warn_of_scales(scale: Scale, name: str) -> None:
    """Warn if the deviations of two columns differ by a factor above 10; a column of labels counts as one of 0.5."""
    columns = enumerate(zip(*scale, strict=True))  # of deviation 1: labels have mean 0, constant columns another
    scales = sorted((0.5 if std == 1 else std, column) for column, (mean, std) in columns if std != 1 or mean == 0)
    (low, least), (high, most) = (scales[0], scales[-1]) if scales else ((0, 0), (0, 0))
    if high > _RATIO * low:
        warn(
            f"{name}: column {most} has deviation {high:.3g}, column {least} {low:.3g}; an encoder learns little from "
            "columns of smaller scale: pass --standardise-columns true"
        )


def _file_or_array(value: Any) -> Any:
    if not isinstance(value, str | np.ndarray):
        raise PydanticCustomError(
            "vectors_type", "must be a .npy file or an array, got {value}", {"value": shown(value)}
        )
    return value


Vectors = Annotated[Any, BeforeValidator(_file_or_array)]
"""Numbers `[num_graphs, d]`, as an array or the path of a .npy file."""


def read_vectors(source: Any, check: bool = True) -> np.ndarray:
    """Return a matrix `[num_graphs, d]` of numbers, an array or in a .npy file, as `float64`; else raise InputError.

    With `check`, rows without a number are refused.
    """
    what = f" {source}" if isinstance(source, str | os.PathLike) else ""
    try:
        rows = np.load(Path(source).expanduser(), allow_pickle=False) if what else np.asarray(source)
    except Exception as error:  # a damaged file can raise any exception, so catch all
        why = reason(error).partition(" If you trust")[0].rstrip(".")  # never advise to unpickle
        name = repr(str(source)) if what else type(source).__name__
        raise InputError(f"cannot read `vectors` {name}: {why}.") from None
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype.kind not in "fiub" or not rows.size:
        got = f"{list(rows.shape)} of {rows.dtype}" if isinstance(rows, np.ndarray) else "several arrays"
        wanted = "`vectors` must be numbers [n, d], one row per graph"
        raise InputError(f"{wanted}; {source} holds {got}." if what else f"{wanted}, got {got}.")
    rows = rows.astype(np.float64)
    if np.isinf(rows).any():
        raise InputError(f"`vectors`{what} has infinity or numbers above 1e308; replace them, by NaN if missing.")
    if check and (empty := np.isnan(rows).all(axis=1)).any():
        raise InputError(f"row {empty.argmax()} of `vectors`{what} has no number; leave that graph out.")
    return rows


def standardised_vectors(rows: np.ndarray) -> np.ndarray:
    """Return `rows [n, d]` with columns of mean 0 and deviation 1, clamped to -5 .. 5; constant columns become 0.

    NaN, a missing cell, stays NaN and does not count.
    """
    present = ~np.isnan(rows)
    count = present.sum(axis=0).clip(min=1)
    # Scale columns to at most 1, by a power of two, which does not round; else squares may over- or underflow.
    _, exponent = np.frexp(np.abs(rows).max(axis=0, initial=0, where=present))
    rows = np.ldexp(rows, -exponent)
    centred = rows - rows.sum(axis=0, where=present) / count
    deviation = np.sqrt(np.square(centred).sum(axis=0, where=present) / count)
    # A constant column has a deviation of rounding errors. Clamp so that outliers do not dominate.
    return np.clip(centred / np.where(deviation > 1e-14, deviation, 1), -5, 5)
