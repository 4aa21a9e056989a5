"""A linear probe on given parts: fit on the training rows, choose C on the validation rows, score the test rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Indices of the rows for training, validation and test."""
TOLERANCE = 1e-4  # scikit-learn's default; a tighter one takes twice as long and moves accuracies by hundredths


def linear_probe(h: np.ndarray, labels: np.ndarray, parts: Parts, grid: Sequence[float]) -> tuple[float, float, float]:
    r"""Return the test accuracy in percent, the chosen C and the validation accuracy of logistic regression.

    $$\min_{W, b} \; \tfrac12 \|W\|^2 - C \sum_i \log \operatorname{softmax}(W h_i + b)_{y_i}$$

    Of equally good candidates for C, the smallest is chosen. W is a combination of the training rows; if there are more
    columns than training rows, `h` is first written in an orthonormal basis of them, which changes no prediction.

    Args:
        h: rows `[n, H]`.
        labels: class of each row, `[n]`.
        parts: see `Parts`.
        grid: candidates for C.
    """
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression

    train, valid, test = parts
    if len(np.unique(labels[train])) < 2:  # a random part of a small set may hold one class only
        only = labels[train[0]]
        return 100 * float(np.mean(labels[test] == only)), grid[0], 100 * float(np.mean(labels[valid] == only))
    if h.shape[1] > len(train):
        h = h @ np.linalg.qr(h[train].T)[0]
    model = LogisticRegression(tol=TOLERANCE, max_iter=10000, warm_start=True)
    found = []
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for c in sorted(grid):  # ascending, for the warm start
            model.set_params(C=c).fit(h[train], labels[train])
            found.append([np.mean(model.predict(h[rows]) == labels[rows]) for rows in (valid, test)])
    best = int(np.argmax([inner for inner, _ in found]))
    return 100 * float(found[best][1]), sorted(grid)[best], 100 * float(found[best][0])
