"""Score a frozen embedding by a linear probe on the split of an OGB benchmark, as is usual in unsupervised learning.

- Embedding: one row per graph, frozen; each column is standardised over the training part and clipped to
  [-5, 5]. Without the bound, one graph with a value that is rare in training, such as the count of a functional group,
  could determine an error.
- Probe: one logistic regression for each task (column of `y`), or ridge regression if the metric is an error. C, of
  1e-5, 1e-4, ..., 1e3, is chosen on the validation part (`graphcl.evaluate.on_split`). The penalty of ridge regression
  is 1 / C.
- No test graph influences the standardisation, C or the epoch. The unsupervised training sees all graphs, as on the TU
  data sets. `± seeds` is the standard deviation over seeds (ddof 0); there are no folds.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from graphcl.arguments import Costs, Count, Seed
from graphcl.evaluate.folds import C_GRID, embedding
from graphcl.evaluate.on_split import Predict, on_split, split_parts
from graphcl.evaluate.scores import LOWER, FoldScores
from graphcl.registry import evaluators

TOLERANCE = 1e-6  # bound on the mean loss's gradient, tight enough that results do not depend on the warm start
WIDE, WIDE_TOLERANCE = 1000, 1e-4  # more columns need L-BFGS, which would take minutes to reach the bound above
BOUND = 5.0  # largest magnitude of a standardised value
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
) -> FoldScores:
    """Return the test score of a linear probe on a benchmark's split, by the protocol of `graphcl.evaluate.ogb`.

    Args:
        h: embedding `[n, D]`, any float dtype, any device; converted to float64 on the CPU.
        y: targets `[n, tasks]`; NaN marks a missing label.
        split: indices of the graphs in the parts `train`, `valid` and `test`.
        eval_metric: `rocauc`, `ap`, `acc`, `rmse` or `mae`.
        seed: seed of the training run, copied into the result; the probe itself is not random.
        grid: candidates for C, in [1e-100, 1e100].
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
    h = embedding(h)
    parts = split_parts(split, len(h))
    mean, deviation = h[parts["train"]].mean(0), h[parts["train"]].std(0)
    z = ((h - mean) / np.where(deviation > 0, deviation, 1)).clip(-BOUND, BOUND)
    return on_split(z, y, parts, eval_metric, seed, sorted(map(float, grid)), _fit, workers)


def _fit(z: np.ndarray, targets: np.ndarray, candidates: Sequence[float], metric: str) -> Predict:
    """Fit one model per candidate for C, and return a function that predicts given rows with each of them."""
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression, Ridge

    if metric in LOWER:
        found = [Ridge(alpha=1 / c).fit(z, targets).predict for c in candidates]
        return lambda rows: [predict(rows) for predict in found]
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
    return lambda rows: [each.predict(rows) if metric == "acc" else each.decision_function(rows) for each in fitted]
