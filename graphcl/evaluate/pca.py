"""Project embeddings onto a plane for a scatter plot."""

from __future__ import annotations

import numpy as np

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
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    columns = StandardScaler().fit_transform(h.astype(np.float64))
    points, shares = np.zeros((len(h), 2)), np.zeros(2)
    if columns.any():
        pca = PCA(min(2, *columns.shape), svd_solver="full").fit(columns)
        top = pca.transform(columns)
        top *= np.where((top**3).sum(axis=0) < 0, -1, 1)
        points[:, : top.shape[1]], shares[: top.shape[1]] = top, pca.explained_variance_ratio_
    return points, shares


def plot_indices(count: int) -> np.ndarray:
    """Return up to `POINTS` evenly spaced indices of `count` graphs, so that sorted data sets keep all classes."""
    return np.linspace(0, count - 1, min(count, POINTS)).astype(np.int64)
