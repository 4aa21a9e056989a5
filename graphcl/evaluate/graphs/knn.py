"""Score a frozen embedding by a k-nearest-neighbour classifier, by the protocol of `graphcl.evaluate.svm`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from torch import Tensor

from graphcl.arguments import Count, Counts, FoldCount, Seed
from graphcl.evaluate.folds import OnFold, OnTest, Part, Splits, embedding, make_folds, row_dots, unit_rows
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

    Memory: about 40 n k bytes for the largest k, and 64 rows of n cosines for each worker.

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
    unit, n, widest = unit_rows(data.h), len(data.labels), max(grid)
    ties = np.random.default_rng(seed).permutation(n)
    # one table serves all folds and all k: of twice as many rows as needed, nearly always k are in the training part
    needed = max(min(widest, len(train)) * n // len(train) for train, _ in data.outer + data.inner)
    rows, cosines = _nearest(unit, np.arange(n), min(2 * needed + 10, n), ties, data.workers)

    def hits(part: Part, candidates: Sequence[int]) -> list[np.ndarray]:
        train, held = part
        k = min(max(candidates), len(train))
        inside = np.isin(np.arange(n), train)
        near, similarity = rows[held], cosines[held]
        if inside[near].sum(1).min() < k:
            near, similarity = _nearest(unit, held, n, ties)
        usable = inside[near]
        usable &= usable.cumsum(1) <= k
        near, similarity = near[usable].reshape(-1, k), similarity[usable].reshape(-1, k)
        weight = np.exp(similarity / TEMPERATURE)
        votes = (data.labels[near][..., None] == np.unique(data.labels)) * weight[..., None]
        votes = votes.cumsum(1)  # [held, k, classes]; cumulative, so that one table serves all k
        return [votes[:, min(k, len(train)) - 1].argmax(1) == data.labels[held] for k in candidates]

    return data.scores(grid, hits)


def _nearest(h: Any, rows: np.ndarray, k: int, ties: np.ndarray, workers: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return the k rows of `h` with the largest inner products with each of `rows`, descending, and the products.

    The permutation `ties` orders equal products.
    """
    near, products = np.empty((len(rows), k), np.int32), np.empty((len(rows), k))

    def fill(start: int) -> None:
        block = row_dots(h[rows[start : start + 64]], h)[:, ties]
        least = np.partition(block, len(ties) - k, axis=1)[:, len(ties) - k]
        for place, row in enumerate(block, start):
            enough = np.flatnonzero(row >= least[place - start])
            order = enough[(-row[enough]).argsort(kind="stable")[:k]]
            near[place], products[place] = ties[order], row[order]

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(fill, range(0, len(rows), 64)))
    return near, products
