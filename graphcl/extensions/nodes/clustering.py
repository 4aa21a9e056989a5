"""Score the rows of nodes by the agreement of k-means clusters and classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from torch import Tensor

from graphcl.arguments import Seed
from graphcl.evaluate.folds import class_indices, embedding, unit_rows
from graphcl.evaluate.scores import FoldScores
from graphcl.registry import evaluators

STARTS = 10
"""Number of starts of k-means; the clustering with the lowest inertia is scored."""
PROTOCOL = "k-means with as many clusters as classes"


@evaluators.register("nmi", rows="nodes", protocol=PROTOCOL)
def nmi(h: Tensor | np.ndarray, y: Tensor | np.ndarray, *, seed: Seed = 0) -> FoldScores:
    r"""Return the normalised mutual information in percent of k-means clusters with the classes.

    $$\frac{2\, I(c; y)}{H(c) + H(y)}$$

    where c is the cluster and y the class of a node, I the mutual information and H the entropy. There are as many
    clusters as classes; the classes do not influence the clusters. Rows are scaled to norm 1.

    Args:
        h: rows of the nodes `[n, H]`, any float dtype, any device.
        y: class of each node `[n]`.
        seed: seed of k-means.

    Returns:
        `FoldScores` of one value; `inner` is the variance in percent that the clusters explain, which needs no label.

    References:
        Strehl and Ghosh, "Cluster Ensembles", JMLR 2002.
    """
    from sklearn.metrics import normalized_mutual_info_score

    return _agreement(h, y, seed, "nmi", normalized_mutual_info_score)


@evaluators.register("ari", rows="nodes", protocol=PROTOCOL)
def ari(h: Tensor | np.ndarray, y: Tensor | np.ndarray, *, seed: Seed = 0) -> FoldScores:
    r"""Return the adjusted Rand index in percent of k-means clusters with the classes.

    $$\frac{R - \mathbb E R}{1 - \mathbb E R}$$

    where R is the fraction of pairs of nodes on which clusters and classes agree, and its expectation is over random
    clusters of the same sizes. 0 is chance and 100 is equality. For the clusters, arguments and result, see `nmi`.

    References:
        Hubert and Arabie, "Comparing Partitions", Journal of Classification 1985.
    """
    from sklearn.metrics import adjusted_rand_score

    return _agreement(h, y, seed, "ari", adjusted_rand_score)


def _agreement(
    h: Tensor | np.ndarray, y: Tensor | np.ndarray, seed: int, metric: str, compare: Callable[..., float]
) -> FoldScores:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    rows = unit_rows(embedding(h))
    classes, labels = class_indices(y, len(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different rows than classes
        clusters = KMeans(len(classes), n_init=STARTS, random_state=seed).fit(rows)
    total = float(((rows - rows.mean(0)) ** 2).sum())
    explained = 100 * (1 - float(clusters.inertia_) / total) if total > 0 else 0.0
    value = 100 * float(compare(labels, clusters.labels_))
    return FoldScores(seed, (value,), (float(len(classes)),), (explained,), 1, 1, metric)
