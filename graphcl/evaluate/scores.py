"""Store the test scores of a seed, summarise scores over seeds, and compute paired gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from graphcl.errors import InputError

METRICS = {
    "accuracy": "accuracy %",
    "rocauc": "ROC-AUC %",
    "ap": "AP %",
    "acc": "accuracy %",
    "rmse": "RMSE",
    "mae": "MAE",
    "nmi": "NMI %",
    "ari": "ARI %",
}
"""Display name of each metric."""
LOWER = {"rmse", "mae"}
"""Metrics where lower is better."""
Row = TypeVar("Row")


@dataclass(frozen=True)
class FoldScores:
    """Scores of one seed, by outer fold.

    On a benchmark's split, the test part is the only outer fold and the validation part the only inner fold.

    Attributes:
        seed: seed of the folds or, on a benchmark's split, of the training run.
        accuracy: test score of each outer fold, in the unit of `metric`.
        chosen: hyper-parameter chosen for each outer fold, such as C or k.
        inner: score of `chosen` on the inner folds of each outer fold. It uses no test graph, so it may select
            settings.
        folds: number of outer folds.
        inner_folds: number of inner folds.
        metric: a key of `METRICS`; accuracy in percent by default.
        test_ratio: size of the test part over that of the training part if the outer folds are random splits; None for
            the folds of cross-validation.
    """

    seed: int
    accuracy: tuple[float, ...]
    chosen: tuple[float, ...]
    inner: tuple[float, ...]
    folds: int
    inner_folds: int
    metric: str = "accuracy"
    test_ratio: float | None = None

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> FoldScores:
        """Return the `FoldScores` with the fields in `kept`, for example a dict read from JSON."""
        known = {field.name: kept[field.name] for field in fields(cls) if field.name in kept}
        return cls(**known | {key: tuple(kept[key]) for key in ("accuracy", "chosen", "inner")})

    @classmethod
    def joined(cls, parts: Sequence[FoldScores]) -> FoldScores:
        """Return one `FoldScores` with the outer folds of all `parts`, which have the same seed."""
        accuracy, chosen, inner = (
            tuple(each for part in parts for each in getattr(part, name)) for name in ("accuracy", "chosen", "inner")
        )
        return cls(parts[0].seed, accuracy, chosen, inner, len(accuracy), parts[0].inner_folds, parts[0].metric)

    @property
    def mean(self) -> float:
        """Mean test score over the outer folds."""
        return float(np.mean(self.accuracy))


@dataclass(frozen=True)
class Summary:
    """Mean score over seeds and two standard deviations, see `summarise`."""

    mean: float
    std_seeds: float
    std_folds: float
    seeds: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.std_seeds:.2f}"


@dataclass(frozen=True)
class Gain:
    """Gain in score on the same test folds, over seeds: mean, standard deviation and fraction of positive gains.

    The gain is in percentage points. For an error such as RMSE, it is the reduction of the error.
    """

    mean: float
    std_seeds: float
    positive: float
    seeds: tuple[int, ...]


def summarise(scores: Sequence[FoldScores]) -> Summary:
    """Return the mean of `scores` over seeds and two standard deviations, both with ddof 0.

    `std_seeds` is the standard deviation of the per-seed means, which shows how much a result varies with the seed.
    `std_folds` is the standard deviation over the folds of one seed, averaged over seeds; it is several times larger.
    Papers report either of the two as ±.

    Raises:
        InputError: `scores` is empty, or a seed occurs twice.
    """
    seeds = tuple(score.seed for score in scores)
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"`scores` must hold one score or more, of different seeds, got seeds {list(seeds)}.")
    means = [score.mean for score in scores]
    within = [np.std(score.accuracy) for score in scores]
    return Summary(float(np.mean(means)), float(np.std(means)), float(np.mean(within)), seeds)


def best_row(rows: Mapping[Row, Sequence[FoldScores]]) -> Row:
    """Return the name of the row with the best mean score over seeds; the first of several equal rows.

    Example:
        >>> rows = (("a", 60.0), ("b", 70.0))
        >>> scores = {name: [FoldScores(0, (each,), (1.0,), (each,), 1, 1)] for name, each in rows}
        >>> best_row(scores)
        'b'
    """
    lower = any(score.metric in LOWER for scores in rows.values() for score in scores)
    return (min if lower else max)(rows, key=lambda name: summarise(rows[name]).mean)


def paired_gain(after: Sequence[FoldScores], before: Sequence[FoldScores]) -> Gain:
    """Return the gain of `after` over `before`, paired by fold, so that the effect of the folds cancels.

    Raises:
        InputError: `after` and `before` differ in seeds, folds, their order or the metric.
    """
    gains = np.array([np.mean(each) for each in gains_by_fold(after, before)])
    return Gain(float(gains.mean()), float(gains.std()), float((gains > 0).mean()), summarise(after).seeds)


def gains_by_fold(after: Sequence[FoldScores], before: Sequence[FoldScores]) -> list[np.ndarray]:
    """Return the gain of `after` over `before` in each fold, one array per seed; see `paired_gain`."""
    splits = [[(score.seed, score.folds) for score in scores] for scores in (after, before)]
    if splits[0] != splits[1] or not splits[0]:
        raise InputError(f"`before` must have the (seed, folds) of `after`, {splits[0]}, got {splits[1]}.")
    metrics = {score.metric for score in (*after, *before)}
    if len(metrics) > 1:
        raise InputError(f"scores by different metrics cannot be compared, got {', '.join(sorted(metrics))}.")
    sign = -1 if metrics & LOWER else 1
    return [sign * np.subtract(new.accuracy, old.accuracy) for new, old in zip(after, before, strict=True)]
