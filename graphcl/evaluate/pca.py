"""A plane to look at embeddings in."""

from __future__ import annotations

import numpy as np

POINTS = 2000
"""Graphs in a map at most: more would hide one another, and make a heavy page."""


def principal_plane(h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first two principal components of standardised columns, and the share of the variance that each holds.

    Linear and without a parameter, so what lies apart in the picture lies apart in the embedding; t-SNE takes seconds
    for what this does in milliseconds, and its clusters may be its own.

    Args:
        h: embeddings `[n, H]`.

    Returns:
        Coordinates `[n, 2]`, in deviations, and shares `[2]`; zeros where there is no variance left. Of either
        direction of a component the one with the positive skew is taken.

    Example:
        >>> points, shares = principal_plane(np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]))
        >>> shares.round(3).tolist()
        [1.0, 0.0]
    """
    centred = h.astype(np.float64) - h.mean(axis=0)
    deviation = centred.std(axis=0)
    columns = centred[:, deviation > 1e-9] / deviation[deviation > 1e-9]
    points, shares = np.zeros((len(h), 2)), np.zeros(2)
    if columns.size:
        variance, directions = np.linalg.eigh(columns.T @ columns / len(h))
        top = columns @ directions[:, ::-1][:, :2]
        top *= np.where((top**3).sum(axis=0) < 0, -1, 1)
        kept = top.shape[1]
        points[:, :kept], shares[:kept] = top, variance[::-1][:2].clip(min=0) / variance.sum()
    return points, shares


def chosen(count: int) -> np.ndarray:
    """Which graphs of `count` are shown: all, or `POINTS` at even distances, so that a sorted set keeps its classes."""
    return np.linspace(0, count - 1, min(count, POINTS)).astype(np.int64)
