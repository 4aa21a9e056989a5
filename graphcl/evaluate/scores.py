"""Test scores of one seed, and what is said of several; `graphcl.evaluate.svm` explains the two spreads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcl.errors import InputError

METRICS = {
    "accuracy": "accuracy %",
    "rocauc": "ROC-AUC %",
    "ap": "AP %",
    "acc": "accuracy %",
    "rmse": "RMSE",
}
"""Metric -> how it is printed."""
LOWER = {"rmse"}
"""Metrics that are the better the lower."""


@dataclass(frozen=True)
class FoldScores:
    """One seed, by outer fold: test accuracy in percent, the hyper-parameter `chosen` (C, or k), its `inner` accuracy.

    That is the one on the inner folds, by which it was chosen; no test fold was seen, so settings may be chosen by it.
    Where a benchmark fixes the split, its test part is the only fold and its validation part the only inner one, and
    `metric`, of `METRICS`, says what stands in the place of the accuracy.
    """

    seed: int
    accuracy: tuple[float, ...]
    chosen: tuple[float, ...]
    inner: tuple[float, ...]
    folds: int
    inner_folds: int
    metric: str = "accuracy"

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> FoldScores:
        """From the `vars` of scores, as JSON keeps them."""
        accuracy, chosen, inner = (tuple(kept[key]) for key in ("accuracy", "chosen", "inner"))
        metric = kept.get("metric", "accuracy")
        return cls(kept["seed"], accuracy, chosen, inner, kept["folds"], kept["inner_folds"], metric)

    @property
    def mean(self) -> float:
        """Mean test accuracy over the folds, in percent."""
        return float(np.mean(self.accuracy))


@dataclass(frozen=True)
class Summary:
    """Several seeds, in percent; the head of this file says what the two spreads mean."""

    mean: float
    std_seeds: float
    std_folds: float
    seeds: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.std_seeds:.2f}"


@dataclass(frozen=True)
class Gain:
    """Accuracy gained on the same test folds, in percentage points, and the share of seeds whose mean rose.

    Of an error, such as RMSE, what it fell by.
    """

    mean: float
    std_seeds: float
    positive: float
    seeds: tuple[int, ...]


def summarise(scores: Sequence[FoldScores]) -> Summary:
    """Mean over seeds, and the two spreads: between the per-seed means, and within a seed between its folds.

    `std_seeds` is the deviation of the per-seed means, `std_folds` the mean over seeds of the deviation over folds;
    both have ddof 0. Raises `InputError` where there is no score, or a seed occurs twice.
    """
    seeds = tuple(score.seed for score in scores)
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"`scores` must hold one score or more, each of its own seed, got seeds {list(seeds)}.")
    means = [score.mean for score in scores]
    within = [np.std(score.accuracy) for score in scores]
    return Summary(float(np.mean(means)), float(np.std(means)), float(np.mean(within)), seeds)


def best_row(rows: Mapping[str, Sequence[FoldScores]]) -> str:
    """Return the name of the row with the best mean over seeds; the first of equals.

    Example:
        >>> rows = (("a", 60.0), ("b", 70.0))
        >>> scores = {name: [FoldScores(0, (each,), (1.0,), (each,), 1, 1)] for name, each in rows}
        >>> best_row(scores)
        'b'
    """
    lower = any(score.metric in LOWER for scores in rows.values() for score in scores)
    return (min if lower else max)(rows, key=lambda name: summarise(rows[name]).mean)


def check_same_splits(after: Sequence[FoldScores], before: Sequence[FoldScores]) -> None:
    """Raises `InputError` unless both hold the same seeds in the same order, with the same folds, and at least one."""
    splits = [[(score.seed, score.folds) for score in scores] for scores in (after, before)]
    if splits[0] != splits[1] or not splits[0]:
        raise InputError(f"`before` must have the (seed, folds) of `after`, {splits[0]}, got {splits[1]}.")


def paired_gain(after: Sequence[FoldScores], before: Sequence[FoldScores]) -> Gain:
    """What `after` gains over `before`, fold by fold: the luck of a split, common to both, cancels.

    Raises `InputError` unless both hold the same seeds in the same order, with the same folds and metric.
    """
    gains = np.array([np.mean(each) for each in gains_by_fold(after, before)])
    return Gain(float(gains.mean()), float(gains.std()), float((gains > 0).mean()), summarise(after).seeds)


def gains_by_fold(after: Sequence[FoldScores], before: Sequence[FoldScores]) -> list[np.ndarray]:
    """What `after` gains over `before` in each fold, seed by seed; see `paired_gain`."""
    check_same_splits(after, before)
    metrics = {score.metric for score in (*after, *before)}
    if len(metrics) > 1:
        raise InputError(f"scores by different metrics cannot be compared, got {', '.join(sorted(metrics))}.")
    sign = -1 if metrics & LOWER else 1
    return [sign * np.subtract(new.accuracy, old.accuracy) for new, old in zip(after, before, strict=True)]
