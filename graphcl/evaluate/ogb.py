"""Score a frozen embedding on the split of an OGB benchmark, by the usual protocol of unsupervised learning.

- Embedding: one row per graph, frozen; each column is standardised over the training part.
- Probe: one logistic regression for each task (column of `y`), or ridge regression if the metric is an error. A
  graph with a missing label (NaN) is excluded from that task. The probe is fitted on the training part only.
- C: the value of 1e-3, 1e-2, ..., 1e3 with the best metric on the validation part, averaged over tasks. Of equally good
  values, the smallest is chosen. The penalty of ridge regression is 1 / C.
- Score: the metric on the test part, see `graphcl.evaluate.metrics`. The score equals that of
  `ogb.graphproppred.Evaluator`, but is in percent unless the metric is an error.
- No test graph influences the choice of C, the standardisation or the epoch. The unsupervised training sees all graphs,
  as on the TU data sets. `± seeds` is the standard deviation over seeds (ddof 0); there are no folds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from torch import Tensor

from graphcl.errors import InputError
from graphcl.evaluate.folds import C_GRID, c_grid, embedding, worker_count
from graphcl.evaluate.metrics import task_mean
from graphcl.evaluate.scores import LOWER, METRICS, FoldScores

TOLERANCE = 1e-6  # bound on the mean loss's gradient, tight enough that results do not depend on the warm start
PARTS = ("train", "valid", "test")


def ogb(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    split: Mapping[str, Tensor | np.ndarray],
    eval_metric: str,
    seed: int = 0,
    grid: Sequence[float] = C_GRID,
    workers: int | None = None,
) -> FoldScores:
    """Return the test score of a linear probe on a benchmark's split, by the protocol of `graphcl.evaluate.ogb`.

    Args:
        h: embedding `[n, D]`, any float dtype, any device; converted to float64 on the CPU.
        y: targets `[n, tasks]`; NaN marks a missing label.
        split: indices of the graphs in the parts `train`, `valid` and `test`.
        eval_metric: `rocauc`, `ap`, `acc`, `rmse` or `mae`.
        seed: seed of the training run, copied into the result; the probe itself is not random.
        grid: candidates for C, > 0.
        workers: number of threads, which fit different tasks; one per available core by default. The result does not
            depend on it.

    Returns:
        `FoldScores` with one fold: `accuracy` holds the test score, `chosen` C, and `inner` the validation score.

    Raises:
        InputError: an argument is invalid, or the metric is undefined on a part.

    References:
        Suresh et al., "Adversarial Graph Augmentation to Improve Graph Contrastive Learning", NeurIPS 2021, whose
        released code uses this protocol; Hu et al., "Open Graph Benchmark", NeurIPS 2020, section 6.
    """
    from threadpoolctl import threadpool_limits

    candidates = sorted(c_grid(grid))
    h = embedding(h)
    y = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    parts = split_parts(split, len(h))
    if y.ndim != 2 or len(y) != len(h):
        raise InputError(f"`y` must be [{len(h)}, tasks], got shape {list(y.shape)}.")
    if eval_metric not in METRICS or eval_metric == "accuracy":
        raise InputError(f"`eval_metric` must be rocauc, ap, acc, rmse or mae, got {eval_metric!r}.")

    mean, deviation = h[parts["train"]].mean(0), h[parts["train"]].std(0)
    z = {part: (h[rows] - mean) / np.where(deviation > 0, deviation, 1) for part, rows in parts.items()}
    targets = {part: y[rows].astype(np.float64) for part, rows in parts.items()}

    def predictions(task: int) -> list[list[np.ndarray]]:
        fitted = _fits(z["train"], targets["train"][:, task], candidates, eval_metric)
        return [[predict(z[part]) for part in ("valid", "test")] for predict in fitted]

    # One BLAS thread per worker: more BLAS threads would slow the workers down.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(worker_count(workers)) as pool:
        found = list(pool.map(predictions, range(y.shape[1])))
    valid, test = ([np.stack([task[i][j] for task in found], axis=1) for i in range(len(candidates))] for j in (0, 1))
    inner = [task_mean(eval_metric, targets["valid"], each) for each in valid]
    best = int(np.argmin(inner) if eval_metric in LOWER else np.argmax(inner))
    score = task_mean(eval_metric, targets["test"], test[best])
    return FoldScores(seed, (score,), (candidates[best],), (inner[best],), 1, 1, eval_metric)


def split_parts(split: Mapping[str, Tensor | np.ndarray], n: int) -> dict[str, np.ndarray]:
    """Return part -> row indices for `split`; raise InputError if the split is invalid."""
    if sorted(split) != sorted(PARTS):
        raise InputError(f"`split` must have the parts train, valid and test, got {', '.join(split) or 'none'}.")
    parts = {part: np.asarray(split[part], dtype=np.int64) for part in PARTS}
    every = np.concatenate(list(parts.values()))
    if min(map(len, parts.values())) == 0 or every.min() < 0 or every.max() >= n or len(np.unique(every)) < len(every):
        raise InputError(f"`split` must have three parts of different graphs out of the {n} rows of `h`.")
    return parts


def _fits(
    z: np.ndarray, targets: np.ndarray, candidates: Sequence[float], metric: str
) -> list[Callable[[np.ndarray], np.ndarray]]:
    """Fit one model per candidate for C, and return a list of functions that predict one task for given rows."""
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression, Ridge

    known = ~np.isnan(targets)
    z, targets = z[known], targets[known]
    if len(np.unique(targets)) < 2:  # the solvers reject targets of one class or none
        constant = float(targets.mean()) if len(targets) else 0.0
        return [lambda rows: np.full(len(rows), constant)] * len(candidates)
    if metric in LOWER:
        return [Ridge(alpha=1 / c).fit(z, targets).predict for c in candidates]
    # chosen as in `logreg`, for speed; fingerprints are too wide for Newton's D x D matrices
    solver = "lbfgs" if metric == "acc" or z.shape[1] > 1000 else "newton-cholesky"
    model = LogisticRegression(solver=solver, tol=TOLERANCE, max_iter=10000, warm_start=True)
    found: list[Callable[[np.ndarray], np.ndarray]] = []
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for c in candidates:  # ascending, for the warm start
            fitted = copy.copy(model.set_params(C=c).fit(z, targets))
            found.append(fitted.predict if metric == "acc" else fitted.decision_function)
    return found
