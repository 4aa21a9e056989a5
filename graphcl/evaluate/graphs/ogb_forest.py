"""Score a frozen embedding by a random forest on the split of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from torch import Tensor

from graphcl.arguments import Count, Counts, Seed, checked
from graphcl.evaluate.folds import as_array, embedding, worker_count
from graphcl.evaluate.scores import LOWER, FoldScores
from graphcl.evaluate.splits import Predict, on_split, split_parts

BINS = 32
"""Number of values of a column that the trees distinguish; it halves the time to sort them."""


@checked
def ogb_forest(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    split: Mapping[str, Tensor | np.ndarray],
    eval_metric: str,
    seed: Seed = 0,
    grid: Counts = (1, 3),
    trees: Count = 300,
    workers: Count | None = None,
) -> FoldScores:
    r"""Return the test score of a random forest on a benchmark's split.

    $$\hat y(h) = \frac{1}{T} \sum_{t=1}^{T} f_t(h)$$

    where $f_t$ is a tree that is fitted to a bootstrap sample of the training part, and T is `trees`. $f_t(h)$ is the
    mean target, or the fraction of each class, in the leaf of h. Each node considers a random subset of the D columns:
    D / 3 for an error, else the square root of D. Columns are first coded by 32 quantiles of their different values in
    the training part. The least number of training graphs in a leaf is chosen on the validation part, with forests of
    T / 5 trees.

    For the other arguments, the result and the errors, see `ogb`.

    Args:
        seed: seed of the bootstrap samples and of the subsets of columns.
        grid: candidates for the least number of training graphs in a leaf; the first of equally good ones is chosen.
        trees: number of trees.
        workers: number of threads, which fit different tasks, or trees if there are fewer tasks; one per available core
            by default. The result does not depend on it.

    Reference: Breiman, "Random Forests", Machine Learning 45, 2001.
    """
    h = embedding(h)
    parts = split_parts(split, len(h))
    z = np.stack([_codes(column, parts["train"]) for column in h.T], axis=1)
    threads = max(1, worker_count(workers) // max((1, *as_array("y", y).shape[1:])))
    for count in (max(1, trees // 5), trees):
        found = on_split(z, y, parts, eval_metric, seed, grid, partial(_fit, seed, count, threads), workers)
        grid = [int(found.chosen[0])]
    return found


def _codes(column: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return a column with at most `BINS` values, in the same order; up to so many different values stay apart."""
    ranks = np.linspace(0, 1, BINS + 1)[1:-1]
    edges = np.unique(np.quantile(np.unique(column[train]), ranks, method="lower"))
    return np.searchsorted(edges, column).astype(np.float32)


def _fit(
    seed: int, trees: int, threads: int, z: np.ndarray, targets: np.ndarray, candidates: Sequence[float], metric: str
) -> Predict:
    """Fit one forest per candidate, and return a function that predicts given rows with each of them."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    make, columns = (RandomForestRegressor, 1 / 3) if metric in LOWER else (RandomForestClassifier, "sqrt")
    forests = []
    for leaf in candidates:
        forest = make(trees, min_samples_leaf=int(leaf), max_features=columns, random_state=seed, n_jobs=threads)
        forests.append(forest.fit(z, targets).set_params(n_jobs=1))  # with threads, sums would depend on their order

    def predict(rows: np.ndarray) -> list[np.ndarray]:
        if metric in ("rocauc", "ap"):
            return [forest.predict_proba(rows)[:, 1] for forest in forests]
        return [forest.predict(rows) for forest in forests]

    return predict
