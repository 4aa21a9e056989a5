"""Score a frozen embedding by its nearest neighbours on the split of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from torch import Tensor

from graphcl.arguments import Count, Counts, Seed
from graphcl.evaluate.folds import embedding, is_constant, unit_rows
from graphcl.evaluate.graphs.knn import TEMPERATURE
from graphcl.evaluate.graphs.ogb import ogb
from graphcl.evaluate.on_split import Predict, on_split, split_parts
from graphcl.evaluate.scores import FoldScores
from graphcl.registry import evaluators


@evaluators.register("ogb_knn", needs="targets")
def ogb_knn(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    split: Mapping[str, Tensor | np.ndarray],
    eval_metric: str,
    seed: Seed = 0,
    grid: Counts = (1, 5, 10, 20, 50),
    workers: Count | None = None,
) -> FoldScores:
    r"""Return the test score of the k nearest training graphs on a benchmark's split; k is chosen on validation.

    $$\hat y(h) = \frac{\sum_{i \in N_k(h)} w_i \, y_i}{\sum_{i \in N_k(h)} w_i}, \qquad w_i = e^{s_i / 0.07}, \qquad
      s_i = \frac{h \cdot h_i}{\|h\| \|h_i\|}$$

    where $N_k(h)$ holds the k training graphs with a known label whose embeddings $h_i$ have the highest cosines $s_i$
    with the embedding h, and $y_i$ is the label of graph i. Equal cosines are put in a random order, which the seed
    determines. If the metric is accuracy, the class with the largest sum of weights is predicted. If fewer than k
    graphs have a label, all of them vote.

    For the other arguments, the result and the errors, see `ogb`.

    Args:
        seed: seed of the order of equal cosines.
        grid: candidates for k, at least 1; the first of equally good candidates is chosen.

    Reference: Z. Wu et al., "Unsupervised Feature Learning via Non-Parametric Instance Discrimination", CVPR 2018,
    section 3.4, for classes.
    """
    h = embedding(h)
    if is_constant(h):  # votes and trees would be arbitrary
        return ogb(h, y, split=split, eval_metric=eval_metric, seed=seed)
    parts = split_parts(split, len(h))
    return on_split(unit_rows(h), y, parts, eval_metric, seed, list(grid), partial(_fit, seed), workers)


def _fit(seed: int, z: np.ndarray, targets: np.ndarray, candidates: Sequence[float], metric: str) -> Predict:
    """Return a function that predicts given rows by a vote of their k nearest rows of `z`, for each k."""
    from sklearn.neighbors import NearestNeighbors

    order = np.random.default_rng(seed).permutation(len(z))  # of equal cosines, as the rows may be sorted by class
    z, targets = z[order], targets[order]
    counts = [min(int(k), len(z)) for k in candidates]
    search = NearestNeighbors(n_neighbors=max(counts), algorithm="brute").fit(z)
    classes = np.unique(targets)
    # one column of votes per class, or the targets themselves
    values = (targets[:, None] == classes).astype(float) if metric == "acc" else targets[:, None]

    def predict(rows: np.ndarray) -> list[np.ndarray]:
        distance, near = search.kneighbors(rows)
        weight = np.exp(-(distance**2) / (2 * TEMPERATURE))[..., None]  # of unit rows, 1 - cosine = distance^2 / 2
        votes = (weight * values[near]).cumsum(1) / weight.cumsum(1)  # [rows, k, columns]; one table for all k
        if metric == "acc":
            return [classes[votes[:, k - 1].argmax(1)] for k in counts]
        return [votes[:, k - 1, 0] for k in counts]

    return predict
