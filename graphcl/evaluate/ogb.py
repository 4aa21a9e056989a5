"""The score of a frozen embedding on a split that a benchmark fixes: the protocol of unsupervised learning on OGB.

- Embedding: frozen, one row per graph; each column standardised by its mean and deviation over the training part.
- Probe: logistic regression, one for each task (column of `y`); for numbers, ridge regression. A missing label (NaN)
  leaves its graph out of that task only. It is fitted on the training part, never on the validation part.
- C: of 1e-3, 1e-2, ..., 1e3 the best on the validation part by the benchmark's metric over all tasks; the smallest of
  equals. Ridge regression takes 1 / C for its penalty.
- Score: the test part, by the benchmark's own evaluator (`ogb.graphproppred.Evaluator`): ROC-AUC, average precision or
  accuracy in percent, the mean over the tasks that have both classes there; or the root of the mean squared error.
- No test graph chooses anything: neither C, nor the scale, nor the epoch. (Training without labels sees all graphs, as
  on the TU sets.) The split is fixed, so what moves a score from seed to seed is training; `± seeds` is the deviation
  over seeds, with ddof 0, and there are no folds.
"""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from torch import Tensor

from graphcl.errors import InputError
from graphcl.evaluate.folds import C_GRID, c_grid, embedding
from graphcl.evaluate.scores import LOWER, METRICS, FoldScores
from graphcl.system.optional import import_ogb

TOLERANCE = 1e-6  # largest entry of the gradient of the mean loss: one optimum, wherever the search for it began
PARTS = ("train", "valid", "test")
Measure = Callable[[np.ndarray, np.ndarray], float]


def ogb(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    name: str,
    split: Mapping[str, Tensor | np.ndarray],
    eval_metric: str,
    seed: int = 0,
    grid: Sequence[float] = C_GRID,
    workers: int | None = None,
) -> FoldScores:
    """Test score of a linear probe on a benchmark's split, by the benchmark's metric; the head of this file says how.

    Args:
        h: embedding `[n, D]`, any float dtype, any device; computed with in float64 on the CPU.
        y: targets `[n, tasks]`, NaN where one is missing.
        name: by which OGB's evaluator knows the set, such as "ogbg-molhiv".
        split: numbers of the graphs in the parts `train`, `valid` and `test`.
        eval_metric: `rocauc`, `ap`, `acc` or `rmse`.
        seed: of the training, for the record; nothing here is random.
        grid: the values of C, > 0.
        workers: threads, over tasks; by default every core this process may use. The result does not depend on them.

    Returns:
        `FoldScores` of one fold: the test score, the C `chosen`, the `inner` score on the validation part.

    Raises:
        InputError: an argument breaks its rule; no task has both classes in the training part, or in another; or ogb is
            not installed.

    References:
        Suresh et al., "Adversarial Graph Augmentation to Improve Graph Contrastive Learning", NeurIPS 2021, whose
        released code evaluates so; Hu et al., "Open Graph Benchmark", NeurIPS 2020, section 6.
    """
    from threadpoolctl import threadpool_limits

    candidates = sorted(c_grid(grid))
    h = embedding(h)
    y = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    parts = _parts(split, len(h))
    if y.ndim != 2 or len(y) != len(h):
        raise InputError(f"`y` must be [{len(h)}, tasks], got shape {list(y.shape)}.")
    if eval_metric not in METRICS or eval_metric == "accuracy":
        raise InputError(f"`eval_metric` must be rocauc, ap, acc or rmse, got {eval_metric!r}.")
    measure = measure_of(name, eval_metric)

    mean, deviation = h[parts["train"]].mean(0), h[parts["train"]].std(0)
    z = {part: (h[rows] - mean) / np.where(deviation > 0, deviation, 1) for part, rows in parts.items()}
    targets = {part: y[rows].astype(np.float64) for part, rows in parts.items()}

    def predictions(task: int) -> list[list[np.ndarray]]:
        fitted = _fits(z["train"], targets["train"][:, task], candidates, eval_metric)
        return [[predict(z[part]) for part in ("valid", "test")] for predict in fitted]

    # BLAS keeps to one thread each, as in `graphcl.evaluate.folds`.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(_count(workers)) as pool:
        found = list(pool.map(predictions, range(y.shape[1])))
    valid, test = ([np.stack([task[i][j] for task in found], axis=1) for i in range(len(candidates))] for j in (0, 1))
    inner = [measure(targets["valid"], each) for each in valid]
    best = int(np.argmin(inner) if eval_metric in LOWER else np.argmax(inner))
    score = measure(targets["test"], test[best])
    return FoldScores(seed, (score,), (candidates[best],), (inner[best],), 1, 1, eval_metric)


def _count(workers: int | None) -> int:
    from joblib import cpu_count

    workers = cpu_count() if workers is None else workers
    if workers < 1:
        raise InputError(f"`workers` must be at least 1, got {workers}.")
    return int(workers)


def _parts(split: Mapping[str, Tensor | np.ndarray], n: int) -> dict[str, np.ndarray]:
    """The rows of each part."""
    if sorted(split) != sorted(PARTS):
        raise InputError(f"`split` must have the parts train, valid and test, got {', '.join(split) or 'none'}.")
    parts = {part: np.asarray(split[part], dtype=np.int64) for part in PARTS}
    every = np.concatenate(list(parts.values()))
    if min(map(len, parts.values())) == 0 or every.min() < 0 or every.max() >= n or len(np.unique(every)) < len(every):
        raise InputError(f"`split` must have three parts of different graphs out of the {n} rows of `h`.")
    return parts


def measure_of(name: str, metric: str) -> Measure:
    """The benchmark's evaluator of targets and predictions `[n, tasks]`, in percent where it is a share.

    Predictions are scores of the positive class, classes, or numbers, as the metric needs them. What the evaluator
    cannot measure, such as ROC-AUC where no task has both classes, is an `InputError`.
    """
    evaluator = import_ogb().Evaluator(name)

    def measure(truth: np.ndarray, predicted: np.ndarray) -> float:
        try:
            with np.errstate(invalid="ignore"), contextlib.redirect_stdout(io.StringIO()):
                found = float(evaluator.eval({"y_true": truth, "y_pred": predicted})[metric])
        except RuntimeError as error:  # its words for what it cannot measure
            raise InputError(f"OGB's evaluator of {name}: {' '.join(str(error).split())}") from None
        return found if metric in LOWER else 100 * found

    return measure


def _fits(
    z: np.ndarray, targets: np.ndarray, candidates: Sequence[float], metric: str
) -> list[Callable[[np.ndarray], np.ndarray]]:
    """What predicts a task, for each candidate: scores of the positive class, classes, or numbers."""
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression, Ridge

    there = ~np.isnan(targets)
    z, targets = z[there], targets[there]
    if len(np.unique(targets)) < 2:  # nothing to be learnt, one class or no label at all
        constant = float(targets.mean()) if len(targets) else 0.0
        return [lambda rows: np.full(len(rows), constant)] * len(candidates)
    if metric == "rmse":
        return [Ridge(alpha=1 / c).fit(z, targets).predict for c in candidates]
    solver = "lbfgs" if metric == "acc" else "newton-cholesky"  # as in `logreg`
    model = LogisticRegression(solver=solver, tol=TOLERANCE, max_iter=10000, warm_start=True)
    found: list[Callable[[np.ndarray], np.ndarray]] = []
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for c in candidates:  # of small C first, whose optimum is near 0
            fitted = copy.copy(model.set_params(C=c).fit(z, targets))
            found.append(fitted.predict if metric == "acc" else fitted.decision_function)
    return found
