"""Score a frozen embedding by a k-nearest-neighbour classifier, by the protocol of `graphcl.evaluate.svm`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from graphcl.arguments import Count, Counts, FoldCount, Seed
from graphcl.evaluate.folds import OnFold, OnTest, Part, Splits, embedding, make_folds, pair_dots, unit_rows
from graphcl.evaluate.scores import FoldScores
from graphcl.registry import evaluators

TEMPERATURE = 0.07  # the value of Wu et al. (2018)


@evaluators.register("knn", forms="dense sparse", chooses="k")
def knn(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    seed: Seed = 0,
    folds: FoldCount = 10,
    inner_folds: FoldCount = 5,
    grid: Counts = (1, 5, 10, 20, 50),
    workers: Count | None = None,
    on_fold: OnFold | None = None,
    on_test: OnTest | None = None,
    cv: Splits | None = None,
) -> FoldScores:
    r"""Return the cross-validated test accuracy in percent of a weighted vote of the k nearest training graphs.

    $$\hat y(h) = \arg\max_c \sum_{i \in N_k(h)} e^{s_i / 0.07} \, [y_i = c], \qquad
      s_i = \frac{h \cdot h_i}{\|h\| \|h_i\|}$$

    where $N_k(h)$ holds the k training graphs whose embeddings $h_i$ have the highest cosines $s_i$ with the embedding
    h, $y_i$ is the class of graph i, and $\hat y$ the predicted class. Equal cosines are put in a random order, which
    the seed determines, as the data set may be sorted by class. If votes are equal, the smallest class wins. A row of
    zeros has cosine 0 with all rows. If a training part has fewer than k graphs, all of them vote.

    Differs: inner folds choose k. The reference fixes k = 200, but small data sets have training
    parts of fewer than 200 graphs.

    Memory: about 12 n^2 bytes.

    For the other arguments, the result and the errors, see `svm`; `h` may be sparse, and `inner_folds` choose k.

    Args:
        seed: seed of the folds and of the order of equal cosines.
        grid: candidates for k, at least 1; the first of equally good candidates is chosen.

    Example:
        >>> h, y = np.tile([[0.0, 1.0], [1.0, 0.0]], (6, 1)), np.tile([0, 1], 6)
        >>> knn(h, y, folds=3, inner_folds=2).accuracy
        (100.0, 100.0, 100.0)

    Reference: Z. Wu et al., "Unsupervised Feature Learning via Non-Parametric Instance Discrimination", CVPR 2018,
    section 3.4.
    """
    data = make_folds(embedding(h, sparse=True), y, seed, folds, inner_folds, workers, on_fold, on_test, cv)
    # one sorted table of cosines serves all folds and all k; equal rows have exactly equal cosines
    similarity = pair_dots(unit_rows(data.h), data.workers)
    order = _most_similar_first(similarity, np.random.default_rng(seed).permutation(len(similarity)))

    def hits(part: Part, candidates: Sequence[int]) -> list[np.ndarray]:
        train, held = part
        near = _neighbours(order, part, min(max(candidates), len(train)))
        weight = np.exp(similarity[held[:, None], near] / TEMPERATURE)
        votes = (data.labels[near][..., None] == np.unique(data.labels)) * weight[..., None]
        votes = votes.cumsum(1)  # [held, k, classes]; cumulative, so that one table serves all k
        return [votes[:, min(k, len(train)) - 1].argmax(1) == data.labels[held] for k in candidates]

    return data.scores(grid, hits)


def _most_similar_first(similarity: np.ndarray, ties: np.ndarray) -> np.ndarray:
    """Return for every row the indices of all rows by descending similarity; the permutation `ties` breaks ties."""
    order = np.empty(similarity.shape, dtype=np.int32)
    for place, row in zip(order, similarity, strict=True):
        place[:] = ties[(-row[ties]).argsort(kind="stable")]
    return order


def _neighbours(order: np.ndarray, part: Part, k: int) -> np.ndarray:
    """Return the indices of the k most similar training rows of every held-out row, nearest first."""
    train, held = part
    inside = np.zeros(len(order), dtype=bool)
    inside[train] = True
    width = k
    while True:  # the first rows mostly suffice; if they do not, search twice as many
        width = min(2 * width, len(order))
        nearest = order[held, :width]
        usable = inside[nearest]
        if width == len(order) or usable.sum(1).min() >= k:
            return nearest[usable & (usable.cumsum(1) <= k)].reshape(len(held), k)
