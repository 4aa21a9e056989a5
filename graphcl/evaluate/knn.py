"""The score of the k nearest neighbours of a frozen embedding: nothing is fitted but k.

Folds, the search for k, and the score are those of `graphcl.evaluate.svm`. Similarities are cosines of the embedding as
it is, and do not depend on the fold, so one sorted table of them serves every fold and every k. CPU seconds of one
seed, untrained GIN (96 columns): PROTEINS (1113 graphs) 0.13, NCI1 (4110) 1.8.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from graphcl.errors import InputError
from graphcl.evaluate.folds import OnFold, Part, make_folds, pair_dots
from graphcl.evaluate.scores import FoldScores

TEMPERATURE = 0.07  # of Wu et al.


def knn(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    seed: int = 0,
    folds: int = 10,
    inner_folds: int = 5,
    grid: Sequence[int] = (1, 5, 10, 20, 50),
    workers: int | None = None,
    on_fold: OnFold | None = None,
) -> FoldScores:
    r"""Cross-validated test accuracy of the k most similar graphs' weighted vote.

    $$\hat y(h) = \arg\max_c \sum_{i \in N_k(h)} e^{s_i / 0.07} \, [y_i = c], \qquad
      s_i = \frac{h \cdot h_i}{\|h\| \|h_i\|}$$

    over the k training graphs with the highest cosine. Equal cosines are ordered at random by the seed, not by position
    in the data set, which may be sorted by class. Of equal votes the smallest class wins. A row of zeros has cosine 0
    to all. Where a training part has fewer than k graphs, all vote.

    Differs: k is chosen by inner folds, where the reference takes 200, more than some training parts here have.

    Memory: about 12 n^2 bytes.

    Args:
        h: embedding `[n, D]`, any float dtype, any device; computed with in float64 on the CPU.
        y: class of each graph `[n]`, any integers.
        seed: shuffles the folds and breaks ties of equal cosines; nothing else is random.
        folds: outer folds, at least 2; at most the size of the smallest class is used.
        inner_folds: folds of the search for k, at least 2; reduced in the same way.
        grid: the values of k, at least 1; the first of equals is chosen.
        workers: threads; by default every core this process may use. The result does not depend on them.
        on_fold: called with the number of finished outer folds and of all, for a progress bar.

    Returns:
        `FoldScores`, folds in the order of `StratifiedKFold(folds, shuffle=True, random_state=seed)`, and k `chosen`.

    Raises:
        InputError: an argument breaks its rule, or a class is too small for two outer and two inner folds.

    Example:
        >>> h, y = np.tile([[0.0, 1.0], [1.0, 0.0]], (6, 1)), np.tile([0, 1], 6)
        >>> knn(h, y, folds=3, inner_folds=2).accuracy
        (100.0, 100.0, 100.0)

    Reference: Z. Wu et al., "Unsupervised Feature Learning via Non-Parametric Instance Discrimination", CVPR 2018,
    section 3.4.
    """
    if len(grid) == 0 or not all(float(k).is_integer() and k >= 1 for k in grid):
        raise InputError(f"`grid` must hold one k or more, each a whole number of at least 1, got {list(grid)}.")
    data = make_folds(h, y, seed, folds, inner_folds, workers, on_fold)
    similarity = _cosines(data.h, data.workers)
    order = _most_similar_first(similarity, np.random.default_rng(seed).permutation(len(similarity)))

    def accuracies(part: Part, candidates: Sequence[int]) -> list[float]:
        train, held = part
        near = _neighbours(order, part, min(max(candidates), len(train)))
        weight = np.exp(similarity[held[:, None], near] / TEMPERATURE)
        votes = (data.labels[near][..., None] == np.unique(data.labels)) * weight[..., None]
        votes = votes.cumsum(1)  # [held, k, classes]: the vote of the first k
        return [float(np.mean(votes[:, min(k, len(train)) - 1].argmax(1) == data.labels[held])) for k in candidates]

    return data.scores([int(k) for k in grid], accuracies)


def _cosines(h: np.ndarray, workers: int) -> np.ndarray:
    """Cosine of every two rows `[n, n]`; equal rows have equal ones."""
    length = np.linalg.norm(h, axis=1, keepdims=True)
    return pair_dots(h / np.where(length > 0, length, 1), workers)


def _most_similar_first(similarity: np.ndarray, ties: np.ndarray) -> np.ndarray:
    """Return for every row all rows by falling similarity; equal ones in the order of the permutation `ties`."""
    order = np.empty(similarity.shape, dtype=np.int32)
    for place, row in zip(order, similarity, strict=True):
        place[:] = ties[(-row[ties]).argsort(kind="stable")]
    return order


def _neighbours(order: np.ndarray, part: Part, k: int) -> np.ndarray:
    """The k most similar training rows of every held-out row, nearest first."""
    train, held = part
    inside = np.zeros(len(order), dtype=bool)
    inside[train] = True
    width = k
    while True:  # they are among the first few of all rows, mostly
        width = min(2 * width, len(order))
        nearest = order[held, :width]
        usable = inside[nearest]
        if width == len(order) or usable.sum(1).min() >= k:
            return nearest[usable & (usable.cumsum(1) <= k)].reshape(len(held), k)
