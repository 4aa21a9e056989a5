"""Store the test scores of a seed, summarise scores over seeds, and test gains paired over seeds and folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
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
    "r2": "R2",
    "nmi": "NMI %",
    "ari": "ARI %",
    "mrr": "MRR %",
    "recall_at_1": "recall@1 %",
}
"""Display name of each metric."""
LOWER = {"rmse", "mae"}
"""Metrics of `METRICS` where lower is better."""
NUMBERS = {*LOWER, "r2"}
"""Metrics of predicted numbers; all others are of classes, in percent."""
FEW_UNITS = 30
"""Number of units below which bootstrap intervals are too narrow."""
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
        metric: a key of `METRICS`, or the name of another metric; accuracy in percent by default.
        test_ratio: size of the test part over that of the training part if the outer folds are random splits; None for
            the folds of cross-validation.
        figures: further figures of the test parts, means over outer folds, such as `recall_at_1`.
        lower: whether lower is better; None: as for the metrics in `METRICS`.
    """

    seed: int
    accuracy: tuple[float, ...]
    chosen: tuple[float, ...]
    inner: tuple[float, ...]
    folds: int
    inner_folds: int
    metric: str = "accuracy"
    test_ratio: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    lower: bool | None = None

    def __repr__(self) -> str:
        name, percent, _ = metric_name(self.metric).partition(" %")
        deviation = sample_deviation(self.accuracy)
        spread = "" if deviation is None else f" ± {deviation:.2f}"
        over = "" if deviation is None else f" over {len(self.accuracy)} folds"
        return f"{type(self).__name__}({name} {self.mean:.2f}{spread}{percent}{over}, seed {self.seed})"

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> FoldScores:
        """Return the `FoldScores` with the fields in `kept`, for example a dict read from JSON."""
        values = {field.name: kept[field.name] for field in fields(cls) if field.name in kept}
        return cls(**values | {key: tuple(kept[key]) for key in ("accuracy", "chosen", "inner")})

    @classmethod
    def joined(cls, parts: Sequence[FoldScores]) -> FoldScores:
        """Return one `FoldScores` with the outer folds of all `parts`, which have the same seed."""
        accuracy, chosen, inner = (
            tuple(value for part in parts for value in getattr(part, name)) for name in ("accuracy", "chosen", "inner")
        )
        return replace(parts[0], accuracy=accuracy, chosen=chosen, inner=inner, folds=len(accuracy))

    @property
    def is_error(self) -> bool:
        """Whether lower is better."""
        return self.metric in LOWER if self.lower is None else self.lower

    @property
    def mean(self) -> float:
        """Mean test score over the outer folds."""
        return float(np.mean(self.accuracy))


@dataclass(frozen=True)
class Summary:
    """Mean score over seeds and two sample standard deviations, see `summarise`; None for one seed or fold."""

    mean: float
    std_seeds: float | None
    std_folds: float | None
    seeds: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.std_seeds is None else f" ± {self.std_seeds:.2f}")


@dataclass(frozen=True)
class Gain:
    """Gain in score on the same test folds, over seeds: mean, sample standard deviation and fraction of positive gains.

    The gain is in percentage points. For an error such as RMSE, it is the reduction of the error. One seed has no
    deviation.
    """

    mean: float
    std_seeds: float | None
    positive: float
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class PairedTest:
    """Result of a paired test.

    Attributes:
        mean: mean difference of the scores, in percentage points or the unit of the error.
        p: two-sided p-value of the null hypothesis that the scores do not differ.
    """

    mean: float
    p: float

    @property
    def significant(self) -> bool:
        """Whether the p-value is below 0.05."""
        return self.p < 0.05


def metric_name(metric: str) -> str:
    """Return the display name of a metric, which is that in `METRICS` or else `metric` itself."""
    return METRICS.get(metric, metric)


def sample_deviation(values: Sequence[float] | np.ndarray) -> float | None:
    """Return the sample standard deviation, with divisor n - 1, as every ± of this library; None for one value.

    Example:
        >>> sample_deviation([1.0, 2.0, 3.0])
        1.0
    """
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def summarise(scores: Sequence[FoldScores]) -> Summary:
    """Return the mean of `scores` over seeds and two sample standard deviations, with divisor n - 1.

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
    deviations = [sample_deviation(score.accuracy) for score in scores]
    within = [deviation for deviation in deviations if deviation is not None]
    return Summary(float(np.mean(means)), sample_deviation(means), float(np.mean(within)) if within else None, seeds)


def best_row(rows: Mapping[Row, Sequence[FoldScores]]) -> Row:
    """Return the name of the row with the best mean score over seeds; the first of several equal rows.

    Example:
        >>> rows = (("a", 60.0), ("b", 70.0))
        >>> scores = {name: [FoldScores(0, (score,), (1.0,), (score,), 1, 1)] for name, score in rows}
        >>> best_row(scores)
        'b'
    """
    lower = any(score.is_error for scores in rows.values() for score in scores)
    return (min if lower else max)(rows, key=lambda name: summarise(rows[name]).mean)


def paired_gain(after: Sequence[FoldScores], before: Sequence[FoldScores]) -> Gain:
    """Return the gain of `after` over `before`, paired by fold, so that the effect of the folds cancels.

    Raises:
        InputError: `after` and `before` differ in seeds, folds, their order or the metric.
    """
    gains = np.array([np.mean(folds) for folds in gains_by_fold(after, before)])
    return Gain(float(gains.mean()), sample_deviation(gains), float((gains > 0).mean()), summarise(after).seeds)


def gains_by_fold(after: Sequence[FoldScores], before: Sequence[FoldScores]) -> list[np.ndarray]:
    """Return the gain of `after` over `before` in each fold, one array per seed; see `paired_gain`."""
    splits = [[(score.seed, score.folds) for score in scores] for scores in (after, before)]
    if splits[0] != splits[1] or not splits[0]:
        raise InputError(f"`before` must have the (seed, folds) of `after`, {splits[0]}, got {splits[1]}.")
    metrics = {score.metric for score in (*after, *before)}
    if len(metrics) > 1:
        raise InputError(f"scores by different metrics cannot be compared, got {', '.join(sorted(metrics))}.")
    sign = -1 if after[0].is_error else 1
    return [sign * np.subtract(new.accuracy, old.accuracy) for new, old in zip(after, before, strict=True)]


def paired_test(after: Sequence[FoldScores], before: Sequence[FoldScores]) -> PairedTest:
    r"""Return the corrected paired t-test of `after` against `before` for repeated cross-validation.

    $$t = \bar d \Big/ \sqrt{\Big(\frac{1}{S K} + \frac{1}{K - 1}\Big) \hat\sigma^2_d}, \qquad
      d_{sk} = a_{sk} - b_{sk}$$

    where $a_{sk}$ and $b_{sk}$ are the scores of `after` and `before` for seed s and fold k, $\bar d$ and
    $\hat\sigma^2_d$ the mean and variance of their differences, and S and K the numbers of seeds and folds. t has
    SK - 1 degrees of freedom. Training parts of different folds overlap, so scores are not independent, and a plain
    t-test over all folds rejects a true null hypothesis several times too often. The term 1 / (K - 1), the ratio of
    test to training graphs, corrects the variance for the overlap. For random splits, the term is
    `FoldScores.test_ratio`: 8 for parts of 10, 10 and 80 %, which is strict. On a benchmark's split (K = 1) it is
    omitted; the result is the paired t-test over seeds, valid for this split only. For one seed, p = 1.

    Args:
        after: scores of one embedding, one entry per seed.
        before: scores of the other embedding, with the same seeds and folds.

    Raises:
        InputError: `after` and `before` differ in seeds, folds, their order or the metric.

    Example:
        >>> one = [FoldScores(0, (80.0, 82.0, 81.0), (1.0,) * 3, (80.0,) * 3, 3, 2)]
        >>> paired_test(one, one)
        PairedTest(mean=0.0, p=1.0)

    References:
        Nadeau and Bengio, "Inference for the Generalization Error", Machine Learning 2003. Bouckaert and Frank,
        "Evaluating the Replicability of Significance Tests for Comparing Learning Algorithms", PAKDD 2004.
    """
    from scipy.special import stdtr

    mean, error, freedom = paired_difference(after, before)
    if freedom == 0:
        return PairedTest(mean, 1.0)
    if error == 0:
        return PairedTest(mean, float(mean == 0))
    return PairedTest(mean, float(2 * stdtr(freedom, -abs(mean / error))))


def bootstrap_means(values: np.ndarray, unit: np.ndarray, draws: int, seed: int = 0) -> np.ndarray:
    """Return the means `[draws, k]` of bootstrap samples of `values [q, k]`; values of a `unit [q]` stay together."""
    number = np.unique(unit, return_inverse=True)[1].reshape(-1)
    sums, sizes = np.stack([np.bincount(number, column) for column in values.T], axis=1), np.bincount(number)
    generator, n, means = np.random.default_rng(seed), len(sizes), []
    for start in range(0, draws, 500):
        drawn = generator.multinomial(n, np.full(n, 1 / n), min(500, draws - start))
        means.append((drawn @ sums) / (drawn @ sizes)[:, None])
    return np.concatenate(means)


def interval_words(units: float) -> tuple[str, str]:
    """Return what an interval is over, and a note if the units are few.

    Example:
        >>> interval_words(12)
        ('12 groups', ' (too narrow, as of fewer than 30)')
    """
    return f"{units:.0f} groups", f" (too narrow, as of fewer than {FEW_UNITS})" * (units < FEW_UNITS)


def least_gain(after: Sequence[FoldScores], before: Sequence[FoldScores]) -> float:
    r"""Return the gain that `paired_test` would find in four of five repetitions, at p < 0.05; inf for one fold.

    $$(t_{0.975} + t_{0.8}) \sqrt{\Big(\frac{1}{S K} + \frac{1}{K - 1}\Big) \hat\sigma^2_d}$$

    with the symbols of `paired_test`, and quantiles of the t-distribution with its degrees of freedom. It is
    approximate, and for one comparison, without Holm's adjustment.
    """
    from scipy.special import stdtrit

    _, error, freedom = paired_difference(after, before)
    return float((stdtrit(freedom, 0.975) + stdtrit(freedom, 0.8)) * error) if freedom else float("inf")


def paired_difference(after: Sequence[FoldScores], before: Sequence[FoldScores]) -> tuple[float, float, int]:
    """Return the mean difference, its corrected standard error and the degrees of freedom, see `paired_test`."""
    d = np.concatenate(gains_by_fold(after, before))
    folds = min(score.folds for score in after)
    overlap = after[0].test_ratio
    if overlap is None:
        overlap = 1 / (folds - 1) if folds > 1 else 0.0
    error = np.sqrt((1 / d.size + overlap) * d.var(ddof=1)) if d.size > 1 else 0.0
    return float(d.mean()), float(error), d.size - 1


def holm(p: Sequence[float]) -> list[float]:
    """Return the p-values `p` of several tests, adjusted by Holm's method to control the family-wise error rate.

    Example:
        >>> holm([0.01, 0.04])
        [0.02, 0.04]

    References:
        Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 1979.
    """
    order = np.argsort(p)
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(np.asarray(p)[order] * (len(p) - np.arange(len(p)))).clip(max=1)
    return [float(value) for value in adjusted]
