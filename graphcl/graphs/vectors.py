"""Read a matrix of vectors, such as descriptors or measurements of which cells may be missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from graphcl.arguments import shown
from graphcl.errors import InputError, reason


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
        found = f"{list(rows.shape)} of {rows.dtype}" if isinstance(rows, np.ndarray) else "several arrays"
        wanted = "`vectors` must be numbers [n, d], one row per graph"
        raise InputError(f"{wanted}; {source} holds {found}." if what else f"{wanted}, got {found}.")
    rows = rows.astype(np.float64)
    if np.isinf(rows).any():
        raise InputError(f"`vectors`{what} has infinity or numbers above 1e308; replace them, by NaN if missing.")
    if check and (empty := np.isnan(rows).all(axis=1)).any():
        raise InputError(f"row {empty.argmax()} of `vectors`{what} has no number; leave that graph out.")
    return rows


def standardise(rows: np.ndarray) -> np.ndarray:
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
