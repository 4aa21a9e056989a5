"""Score the rows of nodes by logistic regression, or by the agreement of k-means clusters and classes.

The logistic regression is on a public split, or on 20 random ones by the protocol of GRACE:

- Rows: frozen, before the projector, scaled to norm 1, as in GRACE's released code.
- Splits: 20, drawn uniformly by the seed: 10 % of the nodes for training, 10 % for validation, 80 % for the test.
- C: chosen from 1e-3, 1e-2, ..., 1e3 by the accuracy on the validation part; of equally good values, the smallest.
- Score: accuracy on the test part in percent, mean over the splits. GRACE's ± is the deviation over splits and runs.

No test node influences C. The unsupervised training sees all nodes, but no label.

Differs: the released code of GRACE has no validation part. It tests on 90 % and chooses C by five folds of the training
part.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from torch import Tensor

from graphcl.arguments import Costs, Count, Seed
from graphcl.errors import InputError
from graphcl.evaluate.folds import C_GRID, OnFold, class_indices, embedding, unit_rows, worker_count
from graphcl.evaluate.on_split import split_parts
from graphcl.evaluate.scores import FoldScores
from graphcl.registry import evaluators

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Indices of the rows for training, validation and test."""
TOLERANCE = 1e-4  # scikit-learn's default; a tighter one takes twice as long and moves accuracies by hundredths


@evaluators.register(
    "random_splits", rows="nodes", usual="nodes", protocol="20 random splits into 10, 10 and 80 %, C by validation"
)
def random_splits(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    seed: Seed = 0,
    splits: Count = 20,
    grid: Costs = C_GRID,
    workers: Count | None = None,
    on_fold: OnFold | None = None,
) -> FoldScores:
    """Return the test accuracy in percent of logistic regression on random splits of the nodes, see this module.

    For the other arguments, see `graphcl.evaluate.svm`.

    Args:
        h: rows of the nodes `[n, H]`.
        y: class of each node `[n]`.
        splits: number of splits, at least 1; `on_fold` counts them.

    Raises:
        InputError: an argument is invalid, or there are fewer than 20 nodes.

    References:
        Zhu et al., "Deep Graph Contrastive Representation Learning", 2020, Section 4.1.2 (arXiv 2006.04131).
    """
    from threadpoolctl import threadpool_limits

    h = embedding(h)
    _, labels = class_indices(y, len(h))
    if len(h) < 20:
        raise InputError(f"`h` must have 20 rows or more, got {len(h)}.")
    rows, rng, tenth = unit_rows(h), np.random.default_rng(seed), len(h) // 10
    orders = [rng.permutation(len(h)) for _ in range(splits)]

    def score(order: np.ndarray) -> tuple[float, float, float]:
        return linear_probe(rows, labels, (order[:tenth], order[tenth : 2 * tenth], order[2 * tenth :]), grid)

    scores = []
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(worker_count(workers)) as pool:
        for of_split in pool.map(score, orders):
            scores.append(of_split)
            if on_fold is not None:
                on_fold(len(scores), splits)
    accuracy, chosen, inner = zip(*scores, strict=True)
    return FoldScores(seed, accuracy, chosen, inner, splits, 1, test_ratio=8.0)


@evaluators.register("public_split", needs="split", rows="nodes", protocol="the public split, C by validation")
def public_split(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    split: Mapping[str, Tensor | np.ndarray],
    seed: Seed = 0,
    grid: Costs = C_GRID,
) -> FoldScores:
    """Return the test accuracy in percent of logistic regression on the public split, such as Planetoid's.

    Rows are scaled to norm 1. C is chosen by the validation part, see `linear_probe`.

    Differs: DGI reports the mean over 50 fits of the classifier by stochastic gradients, without a choice of C.

    Args:
        h: rows of the nodes `[n, H]`.
        y: class of each node `[n]`.
        split: indices of the nodes in the parts `train`, `valid` and `test`.
        seed: seed of the training run, copied into the result; the probe itself is not random.
        grid: candidates for C, see `graphcl.evaluate.svm`.

    References:
        Yang, Cohen and Salakhutdinov, "Revisiting Semi-Supervised Learning with Graph Embeddings", ICML 2016 (arXiv
        1603.08861). Velickovic et al., "Deep Graph Infomax", ICLR 2019, Section 4.2 (arXiv 1809.10341).
    """
    h = embedding(h)
    _, labels = class_indices(y, len(h))
    parts = split_parts(split, len(h))
    accuracy, chosen, inner = linear_probe(unit_rows(h), labels, (parts["train"], parts["valid"], parts["test"]), grid)
    return FoldScores(seed, (accuracy,), (chosen,), (inner,), 1, 1)


def linear_probe(h: np.ndarray, labels: np.ndarray, parts: Parts, grid: Sequence[float]) -> tuple[float, float, float]:
    r"""Return the test accuracy in percent, the chosen C and the validation accuracy of logistic regression.

    $$\min_{W, b} \; \tfrac12 \|W\|^2 - C \sum_i \log \operatorname{softmax}(W h_i + b)_{y_i}$$

    Of equally good candidates for C in `grid`, the smallest is chosen. W is a combination of the training rows; if
    there are more columns than training rows, `h [n, H]` is first written in an orthonormal basis of them, which
    changes no prediction.
    """
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression

    train, valid, test = parts
    candidates = sorted(map(float, grid))
    if len(np.unique(labels[train])) < 2:  # a random part of a small set may hold one class only
        only = labels[train[0]]
        return 100 * float(np.mean(labels[test] == only)), float(grid[0]), 100 * float(np.mean(labels[valid] == only))
    if h.shape[1] > len(train):
        h = h @ np.linalg.qr(h[train].T)[0]
    model = LogisticRegression(tol=TOLERANCE, max_iter=10000, warm_start=True)
    accuracies = []
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for c in candidates:  # ascending, for the warm start
            model.set_params(C=c).fit(h[train], labels[train])
            accuracies.append([np.mean(model.predict(h[rows]) == labels[rows]) for rows in (valid, test)])
    best = int(np.argmax([inner for inner, _ in accuracies]))
    inner, accuracy = accuracies[best]
    return 100 * float(accuracy), candidates[best], 100 * float(inner)


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
