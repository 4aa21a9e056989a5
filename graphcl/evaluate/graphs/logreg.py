"""Score a frozen embedding by a linear classifier (linear probe), by the protocol of `graphcl.evaluate.svm`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from graphcl.arguments import Costs, Count, FoldCount, Seed
from graphcl.evaluate.folds import C_GRID, OnFold, OnTest, Part, Splits, embedding, make_folds
from graphcl.evaluate.scores import FoldScores
from graphcl.registry import evaluators

TOLERANCE = 1e-6  # bound on the mean loss's gradient, tight enough that results do not depend on the warm start
LARGEST_HESSIAN = 4096  # rows of a float64 matrix of 128 MiB


@evaluators.register("logreg")
def logreg(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    seed: Seed = 0,
    folds: FoldCount = 10,
    inner_folds: FoldCount = 5,
    grid: Costs = C_GRID,
    workers: Count | None = None,
    on_fold: OnFold | None = None,
    on_test: OnTest | None = None,
    cv: Splits | None = None,
) -> FoldScores:
    r"""Return the cross-validated test accuracy in percent of L2-penalised logistic regression on a frozen embedding.

    $$\min_{W, b} \; \tfrac12 \|W\|^2 - C \sum_i \log \operatorname{softmax}(W z_i + b)_{y_i}$$

    where $z_i$ is the standardised embedding of training graph i, $y_i$ its class, and W and b the weights and biases
    of the classes. For two classes, W has one row, and the logistic function replaces the softmax. Implemented by
    scikit-learn's `LogisticRegression`; the fit for each C starts from the optimum of the next smaller C.

    For the arguments, the result and the errors, see `svm`; `inner_folds` choose C, and columns are always scaled.

    Example:
        >>> h, y = np.tile([[0.0], [1.0]], (6, 1)), np.tile([0, 1], 6)
        >>> logreg(h, y, folds=3, inner_folds=2).accuracy
        (100.0, 100.0, 100.0)

    Reference: the linear evaluation of P. Velickovic et al., "Deep Graph Infomax", ICLR 2019, section 4.2.
    """
    data = make_folds(embedding(h), y, seed, folds, inner_folds, workers, on_fold, on_test, cv)

    def fitted(part: Part, candidates: Sequence[float]) -> list[np.ndarray]:
        from sklearn import config_context
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import StandardScaler

        train, held = part
        scaler = StandardScaler().fit(data.h[train])
        fit, test = scaler.transform(data.h[train]), scaler.transform(data.h[held])
        # On a constant embedding, Newton's line search would warn.
        solver = "newton-cholesky" if use_newton(data.labels, fit.shape[1]) and fit.any() else "lbfgs"
        model = LogisticRegression(solver=solver, tol=TOLERANCE, max_iter=10000, warm_start=True)
        hits = {}
        with config_context(assume_finite=True, skip_parameter_validation=True):
            for c in sorted(candidates):  # ascending, for the warm start
                model.set_params(C=c).fit(fit, data.labels[train])
                hits[c] = model.predict(test) == data.labels[held]
        return [hits[c] for c in candidates]

    return data.scores([float(c) for c in grid], fitted)


def use_newton(labels: np.ndarray, columns: int) -> bool:
    """Return whether to fit by Newton's method, which needs five steps where lbfgs needs thousands for a large C.

    For more than two classes, its Hessian has a row for each class and column, and scikit-learn < 1.6 lacks it.
    """
    import sklearn

    classes = int(labels.max()) + 1
    several = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 6)
    return classes == 2 or (several and classes * columns <= LARGEST_HESSIAN)
