"""Score the majority classifier, the first baseline of a run."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from graphcl.arguments import FoldCount, Seed, checked
from graphcl.evaluate.folds import class_indices, make_folds
from graphcl.evaluate.scores import FoldScores


@checked
def majority(
    y: Tensor | np.ndarray, *, seed: Seed = 0, folds: FoldCount = 10, inner_folds: FoldCount = 5
) -> FoldScores:
    """Return the cross-validated test accuracy in percent of predicting the largest class of the training part.

    Args:
        y: class of each graph `[n]`, whole numbers or strings; tensor, array or pandas Series.
        seed: seed of the folds; the other evaluators use the same folds.
        folds: number of outer folds; for the errors, see `graphcl.evaluate.svm`.
        inner_folds: number of inner folds; it is checked but does not influence the score.

    Example:
        >>> round(majority(np.array([0, 0, 0, 0, 0, 0, 1, 1, 1]), folds=3, inner_folds=2).mean, 1)
        66.7
    """
    _, y = class_indices(y)
    data = make_folds(np.zeros((len(y), 1)), y, seed, folds, inner_folds, workers=1)

    def accuracies(part: tuple[np.ndarray, np.ndarray], _: object) -> list[float]:
        train, held = (data.labels[rows] for rows in part)
        return [float(np.mean(held == np.bincount(train).argmax()))]

    return data.scores([0.0], accuracies)
