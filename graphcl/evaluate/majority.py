"""The majority class: the reference row that every classifier must beat."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from graphcl.evaluate.folds import make_folds
from graphcl.evaluate.scores import FoldScores


def majority(y: Tensor | np.ndarray, *, seed: int = 0, folds: int = 10, inner_folds: int = 5) -> FoldScores:
    """Return the cross-validated accuracy of predicting the largest class of the training part.

    Args:
        y: class of each graph `[n]`, any integers.
        seed: shuffles the folds, which are those of the evaluators.
        folds: outer folds, see `graphcl.evaluate.svm`.
        inner_folds: inner folds; nothing is chosen on them.

    Raises:
        InputError: see `graphcl.evaluate.svm`.

    Example:
        >>> majority(np.array([0, 0, 0, 0, 0, 0, 1, 1, 1]), folds=3, inner_folds=2).mean.__round__(1)
        66.7
    """
    data = make_folds(np.zeros((len(y), 1)), y, seed, folds, inner_folds, workers=1)

    def accuracies(part: tuple[np.ndarray, np.ndarray], _: object) -> list[float]:
        train, held = (data.labels[rows] for rows in part)
        return [float(np.mean(held == np.bincount(train).argmax()))]

    return data.scores([0.0], accuracies)
