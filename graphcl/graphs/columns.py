"""Standardise columns of numbers: those of `x` and `edge_attr`."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.errors import warn

Scale = tuple[list[float], list[float]]
"""Mean and deviation of each column."""
_ROWS = 2**16
"""Number of rows that are read at a time."""
_RATIO = 10
"""Ratio of the deviations of two columns beyond which an encoder learns little from the smaller one."""


def column_scale(values: Tensor) -> Scale:
    r"""Return the mean and the deviation to standardise each column of `values [N, F]` by.

    $$\mu_j = \frac{1}{N} \sum_i v_{ij}, \qquad \sigma_j^2 = \frac{1}{N} \sum_i (v_{ij} - \mu_j)^2$$

    over the N rows in which column j is not NaN, a missing cell. A column of 0 and 1 only, such as a label, gets mean 0
    and deviation 1, so that it stays as it is. Another constant column gets deviation 1, so that it becomes 0.

    Example:
        >>> column_scale(torch.tensor([[1.0, 0.0, 7.0], [5.0, 1.0, 7.0]]))
        ([3.0, 0.0, 7.0], [2.0, 1.0, 1.0])
    """
    parts = values.detach().view(len(values), -1).split(_ROWS)
    count = torch.stack([(~part.isnan()).sum(0) for part in parts]).sum(0).clamp(min=1)
    mean = torch.stack([part.double().nansum(0) for part in parts]).sum(0) / count
    square = torch.stack([(part.double() - mean).square().nansum(0) for part in parts]).sum(0) / count
    labels = torch.stack([((part == 0) | (part == 1) | part.isnan()).all(0) for part in parts]).all(0)
    first = torch.stack([part.nan_to_num(-torch.inf).amax(0) for part in parts]).amax(0)
    constant = torch.stack([((part == first) | part.isnan()).all(0) for part in parts]).all(0)
    mean = torch.where(constant, first.double(), mean).masked_fill(labels, 0)
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
