"""The logistic probe: how well a linear classifier tells the classes of a frozen embedding apart.

Folds, the search for C, and the score are those of `graphcl.evaluate.svm`; the columns are always standardised by their
mean and deviation over the training part at hand. So a difference to the SVM is that of a linear to a curved boundary.

CPU seconds of one seed, untrained GIN (96 columns): MUTAG (188 graphs) 1.1, PROTEINS (1113) 2.1, NCI1 (4110) 4.4, where
the SVM takes 0.4, 2.9 and 29. Most of it on small sets is Python, where threads add nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from graphcl.evaluate.folds import C_GRID, OnFold, Part, c_grid, make_folds
from graphcl.evaluate.scores import FoldScores

TOLERANCE = 1e-6  # largest entry of the gradient of the mean loss: one optimum, wherever the search for it began


def logreg(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    seed: int = 0,
    folds: int = 10,
    inner_folds: int = 5,
    grid: Sequence[float] = C_GRID,
    workers: int | None = None,
    on_fold: OnFold | None = None,
) -> FoldScores:
    r"""Cross-validated test accuracy of logistic regression with an L2 penalty on a frozen embedding.

    $$\min_{W, b} \; \tfrac12 \|W\|^2 - C \sum_i \log \operatorname{softmax}(W z_i + b)_{y_i}$$

    with z the standardised embedding and b without penalty; for two classes one row of weights, and the logistic
    function for the softmax. Scikit-learn's `LogisticRegression`, each C started from the optimum of the one before.

    Args:
        h: embedding `[n, D]`, any float dtype, any device; computed with in float64 on the CPU.
        y: class of each graph `[n]`, any integers.
        seed: shuffles the outer and the inner folds; nothing else is random.
        folds: outer folds, at least 2; at most the size of the smallest class is used.
        inner_folds: folds of the search for C, at least 2; reduced in the same way.
        grid: the values of C, > 0; the first of equals is chosen.
        workers: threads; by default every core this process may use. The result does not depend on them.
        on_fold: called with the number of finished outer folds and of all, for a progress bar.

    Returns:
        `FoldScores`, folds in the order of `StratifiedKFold(folds, shuffle=True, random_state=seed)`, and C `chosen`.

    Raises:
        InputError: an argument breaks its rule, or a class is too small for two outer and two inner folds.

    Example:
        >>> h, y = np.tile([[0.0], [1.0]], (6, 1)), np.tile([0, 1], 6)
        >>> logreg(h, y, folds=3, inner_folds=2).accuracy
        (100.0, 100.0, 100.0)

    Reference: the linear evaluation of P. Velickovic et al., "Deep Graph Infomax", ICLR 2019, section 4.2.
    """
    candidates = c_grid(grid)
    data = make_folds(h, y, seed, folds, inner_folds, workers, on_fold)

    def accuracies(part: Part, candidates: Sequence[float]) -> list[float]:
        from sklearn import config_context
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import StandardScaler

        train, held = part
        scaler = StandardScaler().fit(data.h[train])
        fit, test = scaler.transform(data.h[train]), scaler.transform(data.h[held])
        # Newton's method needs few steps where lbfgs needs hundreds; for more classes scikit-learn before 1.6 would
        # make of it one machine per class.
        solver = "newton-cholesky" if data.labels.max() == 1 else "lbfgs"
        model = LogisticRegression(solver=solver, tol=TOLERANCE, max_iter=10000, warm_start=True)
        found = {}
        with config_context(assume_finite=True, skip_parameter_validation=True):
            for c in sorted(candidates):  # of small C first, whose optimum is near 0
                model.set_params(C=c).fit(fit, data.labels[train])
                found[c] = float(np.mean(model.predict(test) == data.labels[held]))
        return [found[c] for c in candidates]

    return data.scores(candidates, accuracies)
