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
from functools import partial
from typing import Any

import numpy as np

from graphcl.evaluate.folds import is_constant, unit_rows, worker_count
from graphcl.evaluate.graphs import knn, logreg, ogb, svm
from graphcl.evaluate.scores import NUMBERS

Outputs = Callable[[np.ndarray], np.ndarray]
"""Function from rows `[n, D]` to numbers `[n]`, or to a probability or a vote for each class, `[n, C]`."""


@dataclass(frozen=True)
class Head:
    """A fitted head of one target.

    Attributes:
        outputs: function from rows to numbers, or to probabilities or votes of `classes`.
        classes: class numbers that the outputs stand for, `[C]`; empty for numbers.
        certain: whether the outputs are the predicted class only, without a probability.
    """

    outputs: Outputs
    classes: np.ndarray
    certain: bool = False


def most_chosen(chosen: Sequence[float]) -> float:
    """Return the hyper-parameter that most folds chose; the smallest of equally frequent ones."""
    counts = Counter(chosen)
    return min(counts, key=lambda value: (-counts[value], value))


def fit_head(name: str, h: np.ndarray, y: np.ndarray, chosen: float, metric: str, seed: int, scale: bool) -> Head:
    """Return the head of the evaluator `name`, a key of `HEADS`, for one target.

    Args:
        name: name of the evaluator.
        h: training rows `[n, D]`, in float64.
        y: target of each row `[n]`; NaN where it is missing.
        chosen: C, k or the least number of rows in a leaf.
        metric: metric of the score: `accuracy` on folds.
        seed: seed of the run.
        scale: whether the SVM standardises columns.
    """
    known = ~np.isnan(y)
    labels = y[known] if metric in NUMBERS else y[known].astype(int)
    values = np.unique(labels)
    if len(values) < 2 or is_constant(h):  # nothing to learn, so the mean, or the frequencies of the classes
        if metric in NUMBERS:
            mean = float(labels.mean()) if len(labels) else 0.0
            return Head(lambda rows: np.full(len(rows), mean), np.empty(0))
        values = values if len(values) else np.zeros(1, int)
        frequency = np.bincount(np.searchsorted(values, labels), minlength=len(values)) / max(1, len(labels))
        return Head(lambda rows: np.tile(frequency, (len(rows), 1)), values)
    outputs = HEADS[name](h, known, labels, chosen, metric, seed, scale)
    if name == "svm":
        return Head(lambda rows: (outputs(rows)[:, None] == values).astype(float), values, certain=True)
    return Head(outputs, np.empty(0) if metric in NUMBERS else values)


def _svm(
    h: np.ndarray, known: np.ndarray, labels: np.ndarray, c: float, metric: str, seed: int, scale: bool
) -> Outputs:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    machine = SVC(C=c, tol=svm.TOLERANCE, max_iter=svm.STEPS, random_state=0)
    fitted: Outputs = make_pipeline(StandardScaler() if scale else "passthrough", machine).fit(h[known], labels).predict
    return fitted


def _logreg(
    h: np.ndarray, known: np.ndarray, labels: np.ndarray, c: float, metric: str, seed: int, scale: bool
) -> Outputs:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    solver = "newton-cholesky" if logreg.use_newton(np.unique(labels, return_inverse=True)[1], h.shape[1]) else "lbfgs"
    model = LogisticRegression(C=c, solver=solver, tol=logreg.TOLERANCE, max_iter=10000)
    fitted: Outputs = make_pipeline(StandardScaler(), model).fit(h[known], labels).predict_proba
    return fitted


def _knn(
    h: np.ndarray, known: np.ndarray, labels: np.ndarray, k: float, metric: str, seed: int, scale: bool
) -> Outputs:
    order = np.random.default_rng(seed).permutation(len(labels))  # of equal cosines
    train, mine = unit_rows(h[known])[order], labels[order][:, None] == np.unique(labels)

    def votes(rows: np.ndarray) -> np.ndarray:
        similarity = unit_rows(rows) @ train.T
        near = (-similarity).argsort(axis=1, kind="stable")[:, : int(k)]
        weight = np.exp(np.take_along_axis(similarity, near, 1) / knn.TEMPERATURE)
        found: np.ndarray = (mine[near] * weight[..., None]).sum(1)
        return found / found.sum(1, keepdims=True)

    return lambda rows: np.concatenate([votes(part) for part in np.array_split(rows, -(-len(rows) // 1024))])


def _of_split(
    forest: bool, h: np.ndarray, known: np.ndarray, labels: np.ndarray, chosen: float, metric: str, seed: int, _: bool
) -> Outputs:
    change = ogb.coder(h) if forest else ogb.scaler(h)
    fit = partial(ogb.forests, seed, ogb.TREES, worker_count(None)) if forest else ogb.linear_models
    model: Any = fit(change(h)[known], labels, [chosen], metric)[0]
    predict = model.predict if metric in NUMBERS else model.predict_proba
    return lambda rows: predict(change(rows))


HEADS: dict[str, Callable[..., Outputs]] = {
    "svm": _svm,
    "logreg": _logreg,
    "knn": _knn,
    "ogb": partial(_of_split, False),
    "ogb_forest": partial(_of_split, True),
}
"""Evaluator -> function that fits its head to the rows `known [n]` of `h [n, D]` with these `labels`."""
