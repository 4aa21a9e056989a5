"""Score a frozen embedding on the split of an OGB benchmark, by a linear probe, as is usual, or by a random forest.

- Embedding: one row per graph, frozen; each column is standardised over the training part and clipped to
  [-5, 5]. Without the bound, one graph with a value that is rare in training, such as the count of a functional group,
  could determine an error.
- Probe: one logistic regression for each task (column of `y`), or ridge regression if the metric is of numbers, with
  the penalty 1 / C. It is fitted on the training part; a graph with a missing label (NaN) is excluded from that task.
- C: of 1e-5, 1e-4, ..., 1e3, the value with the best metric on the validation part, averaged over tasks; of equally
  good ones, the smallest.
- Score: the metric on the test part, see `graphcl.evaluate.on_split`. It equals that of
  `ogb.graphproppred.Evaluator`, but is in percent unless the metric is of numbers.
- No test graph influences the standardisation, C or the epoch. The unsupervised training sees all graphs, as on the TU
  data sets. `± seeds` is the sample standard deviation over seeds; there are no folds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import numpy as np
from torch import Tensor

from graphcl.arguments import Costs, Count, Counts, MetricName, Seed
from graphcl.errors import InputError
from graphcl.evaluate.folds import C_GRID, as_array, embedding, is_constant, worker_count
from graphcl.evaluate.on_split import OnPredicted, further_figures, split_parts, task_mean
from graphcl.evaluate.scores import LOWER, NUMBERS, FoldScores
from graphcl.registry import evaluators

TOLERANCE = 1e-6  # bound on the mean loss's gradient, tight enough that results do not depend on the warm start
WIDE, WIDE_TOLERANCE = 1000, 1e-4  # more columns need L-BFGS, which would take minutes to reach the bound above
BOUND = 5.0  # largest magnitude of a standardised value
TREES = 300
RANKED = ("rocauc", "ap")  # metrics of scores of class 1
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
    from scipy.special import expit

    h = embedding(h)
    parts = split_parts(split, len(h))
    z = scaler(h[parts["train"]])(h)
    score, predicted = _on_split(z, y, parts, eval_metric, seed, sorted(map(float, grid)), linear_models, workers)
    return _reported(score, y, parts["test"], predicted, tasks, on_predicted, expit)


def scaler(train: Any) -> Callable[[Any], np.ndarray]:
    """Return the function that standardises rows over the training part, and clips them."""
    mean, deviation = train.mean(0), train.std(0)
    deviation = np.where(deviation > 0, deviation, 1)
    return lambda h: ((h - mean) / deviation).clip(-BOUND, BOUND)


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
        return ogb(h, y, split=split, eval_metric=eval_metric, seed=seed, tasks=tasks, on_predicted=on_predicted)
    parts = split_parts(split, len(h))
    z = coder(h[parts["train"]])(h)
    threads = max(1, worker_count(workers) // max((1, *as_array("y", y).shape[1:])))
    for count in (max(1, trees // 5), trees):
        fit = partial(forests, seed, count, threads)
        score, predicted = _on_split(z, y, parts, eval_metric, seed, grid, fit, workers)
        grid = [int(score.chosen[0])]
    return _reported(score, y, parts["test"], predicted, tasks, on_predicted, lambda scores: scores.clip(0, 1))


def coder(train: Any) -> Callable[[Any], np.ndarray]:
    """Return the function that codes each column by its training part, in at most `BINS` values in the same order.

    Up to so many different values stay apart.
    """
    ranks = np.linspace(0, 1, BINS + 1)[1:-1]
    edges = [np.unique(np.quantile(np.unique(column), ranks, method="lower")) for column in train.T]
    return lambda h: np.stack([np.searchsorted(*pair) for pair in zip(edges, h.T, strict=True)], 1).astype(np.float32)


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


def _on_split(
    z: np.ndarray,
    y: Tensor | np.ndarray,
    parts: Mapping[str, np.ndarray],
    metric: str,
    seed: int,
    candidates: Sequence[float],
    fit: Callable[[np.ndarray, np.ndarray, Sequence[float], str], list[Any]],
    workers: int | None,
) -> tuple[FoldScores, np.ndarray]:
    """Return the test score of the best of the `candidates`, for rows `z [n, D]`, and its predictions `[test, tasks]`.

    `fit` takes the training rows and targets of one task, the candidates and the metric, and returns a model for each
    candidate; threads fit different tasks.

    Raises:
        InputError: `y` has a wrong shape or labels, or the metric is unknown or undefined on a part.
    """
    from threadpoolctl import threadpool_limits

    y = as_array("y", y)
    if y.ndim != 2 or len(y) != len(z) or y.shape[1] < 1:
        raise InputError(f"`y` must be [{len(z)}, tasks], got shape {list(y.shape)}.")
    if metric not in get_args(MetricName):
        raise InputError(f"`eval_metric` must be rocauc, ap, acc, rmse, mae or r2, got {metric!r}.")
    labels = y[~np.isnan(y)]
    if not np.isfinite(labels).all() or (metric not in NUMBERS and (labels != np.trunc(labels)).any()):
        wanted = "finite numbers" if metric in NUMBERS else "whole numbers"
        raise InputError(f"`y` must hold {wanted}, or NaN for a missing label, if `eval_metric` is {metric}.")
    if metric in RANKED and len(np.unique(labels)) > 2:
        raise InputError(f"`y` must have two classes if `eval_metric` is {metric}, got {len(np.unique(labels))}.")
    truth = {part: y[index].astype(np.float64) for part, index in parts.items()}

    def predictions(task: int) -> list[list[np.ndarray]]:
        labelled = ~np.isnan(truth["train"][:, task])
        labels = truth["train"][labelled, task]
        if len(np.unique(labels)) < 2:  # models reject targets of one class or none
            constant = float(labels.mean()) if len(labels) else 0.0
            if metric in RANKED and len(labels):
                constant = 60 * constant - 30  # the logarithm of the odds that is next to certain
            return [[np.full(len(parts[part]), constant)] * len(candidates) for part in ("valid", "test")]
        models = fit(z[parts["train"]][labelled], labels, candidates, metric)
        return [[_outputs(model, z[parts[part]], metric) for model in models] for part in ("valid", "test")]

    # One BLAS thread per worker: more BLAS threads would slow the workers down.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(worker_count(workers)) as pool:
        tasks = list(pool.map(predictions, range(y.shape[1])))
    valid, test = (
        [np.stack(columns, axis=1) for columns in zip(*(task[part] for task in tasks), strict=True)] for part in (0, 1)
    )
    inner = [task_mean(metric, truth["valid"], predicted) for predicted in valid]
    best = int(np.argmin(inner) if metric in LOWER else np.argmax(inner))
    score = task_mean(metric, truth["test"], test[best])
    return FoldScores(seed, (score,), (candidates[best],), (inner[best],), 1, 1, metric), test[best]


def _outputs(model: Any, rows: np.ndarray, metric: str) -> np.ndarray:
    """Return what the metric takes: predictions, or scores of class 1."""
    if metric not in RANKED:
        predicted = model.predict(rows)
    elif hasattr(model, "decision_function"):  # logarithms of odds, which tie less than probabilities
        predicted = model.decision_function(rows)
    else:
        predicted = model.predict_proba(rows)[:, 1]
    return np.asarray(predicted)


def _reported(
    score: FoldScores,
    y: Tensor | np.ndarray,
    test: np.ndarray,
    predicted: np.ndarray,
    tasks: Sequence[str],
    on_predicted: OnPredicted | None,
    probability: Callable[[np.ndarray], np.ndarray],
) -> FoldScores:
    """Pass the predictions to `on_predicted`, and return the score with `further_figures` of the rows `test`.

    `probability` converts scores of class 1 for `on_predicted`.
    """
    truth = as_array("y", y)[test].astype(np.float64)
    if tasks and len(tasks) != truth.shape[1]:
        raise InputError(f"`tasks` must name the {truth.shape[1]} columns of `y`, got {len(tasks)} names.")
    if on_predicted is not None:
        on_predicted(test, probability(predicted) if score.metric in RANKED else predicted)
    return replace(score, figures=further_figures(score.metric, truth, predicted, tasks))
