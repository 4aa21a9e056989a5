"""Fit the head of an evaluator with the hyper-parameter that it chose, to predict the targets of new rows.

| evaluator | head | fitted on |
|---|---|---|
| `svm`, `logreg`, `knn` | as on each fold, with the C or k that most folds chose | all labelled rows |
| `ogb`, `ogb_forest` | the one that was scored | the training part of the split |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcl.evaluate.folds import is_constant, worker_count
from graphcl.evaluate.graphs import knn, logreg, ogb, svm
from graphcl.evaluate.scores import NUMBERS

HEADS = ("svm", "logreg", "knn", "ogb", "ogb_forest")
"""Evaluators with a head."""


@dataclass(frozen=True)
class Head:
    """A fitted head of one target.

    Attributes:
        outputs: function from rows `[n, D]` to numbers `[n]`, or to a probability or a vote for each class `[n, C]`.
        classes: class numbers that the outputs stand for, `[C]`; empty for numbers.
        certain: whether the outputs are the predicted class only, without a probability.
    """

    outputs: Callable[[np.ndarray], np.ndarray]
    classes: np.ndarray
    certain: bool = False


def most_chosen(chosen: Sequence[float]) -> float:
    """Return the hyper-parameter that most folds chose; the smallest of equally frequent ones."""
    counts = Counter(chosen)
    return min(counts, key=lambda value: (-counts[value], value))


def fit_head(name: str, h: np.ndarray, y: np.ndarray, chosen: float, metric: str, seed: int, scale: bool) -> Head:
    """Return the head of the evaluator `name` of `HEADS`, for one target.

    Args:
        name: name of the evaluator.
        h: training rows `[n, D]`, in float64.
        y: target of each row `[n]`; NaN where it is missing.
        chosen: C, k or the least number of rows in a leaf.
        metric: metric of the score: `accuracy` on folds.
        seed: seed of the run.
        scale: whether the SVM standardises columns.
    """
    from sklearn.dummy import DummyClassifier, DummyRegressor

    labelled, numbers = ~np.isnan(y), metric in NUMBERS
    rows, labels = (h[labelled], y[labelled]) if labelled.any() else (h[:1], np.zeros(1))
    labels = labels if numbers else labels.astype(int)
    constant = len(np.unique(labels)) < 2 or is_constant(h)
    change: Callable[[np.ndarray], np.ndarray] = lambda z: z  # noqa: E731
    if constant:  # nothing to learn, so the mean, or the frequencies of the classes
        model: Any = (DummyRegressor() if numbers else DummyClassifier()).fit(rows, labels)
    elif name == "ogb":  # standardised over all training rows, also those without this target
        change = ogb.scaler(h)
        model = ogb.linear_models(change(rows), labels, [chosen], metric)[0]
    elif name == "ogb_forest":
        change = ogb.coder(h)
        model = ogb.forests(seed, ogb.TREES, worker_count(None), change(rows), labels, [chosen], metric)[0]
    else:
        order = np.random.default_rng(seed).permutation(len(rows)) if name == "knn" else slice(None)  # of equal cosines
        model = _classifier(name, labels, h.shape[1], chosen, scale).fit(rows[order], labels[order])
    if numbers:
        return Head(lambda z: model.predict(change(z)), np.empty(0))
    if name == "svm" and not constant:
        return Head(lambda z: np.equal.outer(model.predict(z), model.classes_).astype(float), model.classes_, True)
    return Head(lambda z: model.predict_proba(change(z)), model.classes_)


def _classifier(name: str, labels: np.ndarray, columns: int, chosen: float, scale: bool) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    if name == "knn":
        vote: Any = lambda distance: np.exp(-distance / knn.TEMPERATURE)  # noqa: E731
        return KNeighborsClassifier(min(int(chosen), len(labels)), metric="cosine", algorithm="brute", weights=vote)
    if name == "svm":
        model: Any = SVC(C=chosen, tol=svm.TOLERANCE, max_iter=svm.STEPS, random_state=0)
    else:
        newton = logreg.use_newton(np.unique(labels, return_inverse=True)[1], columns)
        solver = "newton-cholesky" if newton else "lbfgs"
        model = LogisticRegression(C=chosen, solver=solver, tol=logreg.TOLERANCE, max_iter=10000)
    return make_pipeline(StandardScaler() if scale or name == "logreg" else "passthrough", model)
