"""Test accuracies of one seed, and what is said of several; `graphcl.evaluate.svm` explains the two spreads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphcl.errors import InputError


@dataclass(frozen=True)
class FoldScores:
    """One seed, by outer fold: test accuracy in percent, the hyper-parameter `chosen` (C, or k), its `inner` accuracy.

    That is the one on the inner folds, by which it was chosen; no test fold was seen, so settings may be chosen by it.
    """

    seed: int
    accuracy: tuple[float, ...]
    chosen: tuple[float, ...]
    inner: tuple[float, ...]
    folds: int
    inner_folds: int

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
    """Accuracy gained on the same test folds, in percentage points, and the share of seeds whose mean rose."""

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


def check_same_splits(after: Sequence[FoldScores], before: Sequence[FoldScores]) -> None:
    """Raises `InputError` unless both hold the same seeds in the same order, with the same folds, and at least one."""
    splits = [[(score.seed, score.folds) for score in scores] for scores in (after, before)]
    if splits[0] != splits[1] or not splits[0]:
        raise InputError(f"`before` must have the (seed, folds) of `after`, {splits[0]}, got {splits[1]}.")


def paired_gain(after: Sequence[FoldScores], before: Sequence[FoldScores]) -> Gain:
    """What `after` gains over `before`, fold by fold: the luck of a split, common to both, cancels.

    Raises `InputError` unless both hold the same seeds in the same order, with the same folds.
    """
    check_same_splits(after, before)
    seeds = summarise(after).seeds
    pairs = zip(after, before, strict=True)
    gains = np.array([np.mean(np.subtract(new.accuracy, old.accuracy)) for new, old in pairs])
    return Gain(float(gains.mean()), float(gains.std()), float((gains > 0).mean()), seeds)
