"""Score a frozen embedding on the split of an OGB benchmark, by a linear probe, as is usual, or by a random forest.

- Embedding: one row per graph, frozen; each column is standardised over the training part and clipped to
  [-5, 5]. Without the bound, one graph with a value that is rare in training, such as the count of a functional group,
  could determine an error.
- Probe: one logistic regression for each task (column of `y`), or ridge regression if the metric is of numbers. C, of
  1e-5, 1e-4, ..., 1e3, is chosen on the validation part (`graphcl.evaluate.on_split`). The penalty of ridge regression
  is 1 / C.
- No test graph influences the standardisation, C or the epoch. The unsupervised training sees all graphs, as on the TU
  data sets. `± seeds` is the sample standard deviation over seeds; there are no folds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from graphcl.arguments import Costs, Count, Counts, Seed
from graphcl.evaluate.folds import C_GRID, as_array, embedding, is_constant, worker_count
from graphcl.evaluate.on_split import OnPredicted, Predict, on_split, split_parts, with_figures
from graphcl.evaluate.scores import NUMBERS, FoldScores
from graphcl.registry import evaluators

TOLERANCE = 1e-6  # bound on the mean loss's gradient, tight enough that results do not depend on the warm start
WIDE, WIDE_TOLERANCE = 1000, 1e-4  # more columns need L-BFGS, which would take minutes to reach the bound above
BOUND = 5.0  # largest magnitude of a standardised value
TREES = 300
BINS = 32  # number of values of a column that trees distinguish; it halves the time to sort them
GRID = (1e-5, 1e-4, *C_GRID)  # fingerprints and small data sets need a large penalty


@evaluators.register("ogb", needs="targets", usual="targets")
def ogb(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    split: Mapping[str, Tensor | np.ndarray],
    eval_metric: str,
    seed: Seed = 0,
    grid: Costs = GRID,
    workers: Count | None = None,
    tasks: Sequence[str] = (),
    on_predicted: OnPredicted | None = None,
) -> FoldScores:
    """Return the test score of a linear probe on a benchmark's split, by the protocol of `graphcl.evaluate.ogb`.

    Args:
        h: embedding `[n, D]`, any float dtype, any device; converted to float64 on the CPU.
        y: targets `[n, tasks]`; NaN marks a missing label.
        split: indices of the graphs in the parts `train`, `valid` and `test`.
        eval_metric: `rocauc`, `ap`, `acc`, `rmse`, `mae` or `r2`.
        seed: seed of the training run, copied into the result; the probe itself is not random.
        grid: candidates for C, in [1e-100, 1e100].
        workers: number of threads, which fit different tasks; one per available core by default. The result does not
            depend on it.
        tasks: names of the tasks, for `figures`.
        on_predicted: called with the test rows and their predictions.

    Returns:
        `FoldScores` with one fold: `accuracy` holds the test score, `chosen` C, `inner` the validation score, and
        `figures` the score of each of several tasks and, of numbers, RMSE, MAE and R2.

    Raises:
        InputError: an argument is invalid, or the metric is undefined on a part.

    References:
        Suresh et al., "Adversarial Graph Augmentation to Improve Graph Contrastive Learning", NeurIPS 2021, whose
        released code uses this protocol; Hu et al., "Open Graph Benchmark", NeurIPS 2020, section 6.
    """
    h = embedding(h)
    parts = split_parts(split, len(h))
    z = scaler(h[parts["train"]])(h)
    found, predicted = on_split(z, y, parts, eval_metric, seed, sorted(map(float, grid)), _fit, workers)
    if on_predicted is not None:  # ROC-AUC and AP rank the logarithms of the odds, which tie less than probabilities
        from scipy.special import expit

        on_predicted(parts["test"], expit(predicted) if eval_metric in ("rocauc", "ap") else predicted)
    return with_figures(found, y, parts["test"], predicted, tasks)


def scaler(train: Any) -> Callable[[Any], np.ndarray]:
    """Return the function that standardises rows over the training part, and clips them."""
    mean, deviation = train.mean(0), train.std(0)
    deviation = np.where(deviation > 0, deviation, 1)
    return lambda h: ((h - mean) / deviation).clip(-BOUND, BOUND)


def _fit(z: np.ndarray, targets: np.ndarray, candidates: Sequence[float], metric: str) -> Predict:
    """Fit one model per candidate for C, and return a function that predicts given rows with each of them."""
    fitted = linear_models(z, targets, candidates, metric)
    return lambda rows: [
        each.predict(rows) if metric == "acc" or metric in NUMBERS else each.decision_function(rows) for each in fitted
    ]


def linear_models(z: np.ndarray, targets: np.ndarray, candidates: Sequence[float], metric: str) -> list[Any]:
    """Return scikit-learn's models, one fitted for each C of the candidates in ascending order."""
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression, Ridge

    if metric in NUMBERS:
        return [Ridge(alpha=1 / c).fit(z, targets) for c in candidates]
    # chosen as in `logreg`, for speed; fingerprints are too wide for Newton's D x D matrices, and Newton's line search
    # warns on a constant embedding
    wide = z.shape[1] > WIDE
    solver = "lbfgs" if metric == "acc" or wide or not z.any() else "newton-cholesky"
    tolerance = WIDE_TOLERANCE if wide else TOLERANCE
    model = LogisticRegression(solver=solver, tol=tolerance, max_iter=10000, warm_start=True)
    fitted = []
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for c in candidates:  # ascending, for the warm start
            fitted.append(copy.copy(model.set_params(C=c).fit(z, targets)))
    return fitted


@evaluators.register("ogb_forest", needs="targets")
def ogb_forest(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    split: Mapping[str, Tensor | np.ndarray],
    eval_metric: str,
    seed: Seed = 0,
    grid: Counts = (1, 3),
    trees: Count = TREES,
    workers: Count | None = None,
    tasks: Sequence[str] = (),
    on_predicted: OnPredicted | None = None,
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
    if is_constant(h):  # trees would be arbitrary
        known: dict[str, Any] = {"tasks": tasks, "on_predicted": on_predicted}
        return ogb(h, y, split=split, eval_metric=eval_metric, seed=seed, **known)
    parts = split_parts(split, len(h))
    z = coder(h[parts["train"]])(h)
    threads = max(1, worker_count(workers) // max((1, *as_array("y", y).shape[1:])))
    for count in (max(1, trees // 5), trees):
        fit = partial(_fit_forests, seed, count, threads)
        found, predicted = on_split(z, y, parts, eval_metric, seed, grid, fit, workers)
        grid = [int(found.chosen[0])]
    if on_predicted is not None:
        on_predicted(parts["test"], predicted.clip(0, 1) if eval_metric in ("rocauc", "ap") else predicted)
    return with_figures(found, y, parts["test"], predicted, tasks)


def coder(train: Any) -> Callable[[Any], np.ndarray]:
    """Return the function that codes each column by its training part, in at most `BINS` values in the same order.

    Up to so many different values stay apart.
    """
    ranks = np.linspace(0, 1, BINS + 1)[1:-1]
    edges = [np.unique(np.quantile(np.unique(column), ranks, method="lower")) for column in train.T]
    return lambda h: np.stack([np.searchsorted(*each) for each in zip(edges, h.T, strict=True)], 1).astype(np.float32)


def _fit_forests(
    seed: int, trees: int, threads: int, z: np.ndarray, targets: np.ndarray, candidates: Sequence[float], metric: str
) -> Predict:
    """Fit one forest per candidate, and return a function that predicts given rows with each of them."""
    fitted = forests(seed, trees, threads, z, targets, candidates, metric)

    def predict(rows: np.ndarray) -> list[np.ndarray]:
        if metric in ("rocauc", "ap"):
            return [forest.predict_proba(rows)[:, 1] for forest in fitted]
        return [forest.predict(rows) for forest in fitted]

    return predict


def forests(
    seed: int, trees: int, threads: int, z: np.ndarray, targets: np.ndarray, candidates: Sequence[float], metric: str
) -> list[Any]:
    """Return scikit-learn's forests, one fitted for each candidate."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    make, columns = (RandomForestRegressor, 1 / 3) if metric in NUMBERS else (RandomForestClassifier, "sqrt")
    fitted = []
    for leaf in candidates:
        forest = make(trees, min_samples_leaf=int(leaf), max_features=columns, random_state=seed, n_jobs=threads)
        fitted.append(forest.fit(z, targets).set_params(n_jobs=1))  # with threads, sums would depend on their order
    return fitted
