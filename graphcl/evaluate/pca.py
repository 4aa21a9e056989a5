"""Project embeddings onto a plane for a scatter plot."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

POINTS = 2000
"""Largest number of graphs in a plot; more points would overlap and make the page large."""


def principal_plane(h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Project embeddings with standardised columns onto their first two principal components.

    The projection is linear without parameters, so points that are far apart in the plane are also far apart in the
    standardised embedding. t-SNE would take seconds and might show clusters that the embedding does not have.

    Args:
        h: embeddings `[n, H]`.

    Returns:
        The coordinates `[n, 2]` and the explained variance ratio of each component `[2]`; zeros for components without
        variance. The sign of each component is chosen such that its skewness is not negative.

    Example:
        >>> points, shares = principal_plane(np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]))
        >>> shares.round(3).tolist()
        [1.0, 0.0]
    """
    columns = torch.from_numpy(h).double()  # torch keeps to its number of threads, unlike numpy's linear algebra
    mean, deviation = columns.mean(dim=0), columns.std(dim=0, correction=0)
    constant = deviation <= len(h) * torch.finfo(torch.float64).eps * mean.abs()
    columns = ((columns - mean) / deviation).masked_fill(constant, 0)
    u, values, _ = torch.linalg.svd(columns, full_matrices=False)
    top = (u * values)[:, :2]
    top *= torch.where((top**3).sum(dim=0) < 0, -1, 1)
    shares = values[:2] ** 2 / values.square().sum().clamp(min=torch.finfo(torch.float64).tiny)
    missing = 2 - top.size(1)  # an embedding of one column has one component
    return F.pad(top, (0, missing)).numpy(), F.pad(shares, (0, missing)).numpy()


def plot_indices(count: int) -> np.ndarray:
    """Return up to `POINTS` evenly spaced indices of `count` graphs, so that sorted data sets keep all classes."""
    return np.linspace(0, count - 1, min(count, POINTS)).astype(np.int64)
