"""Hold a row's score with the value of every test graph, and compare rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphcl.evaluate import FoldScores
from graphcl.evaluate.scores import Interval, bootstrap_interval, paired_interval

LEVEL = 0.99
"""Level of all intervals. A statement is made only where its interval does not hold zero."""


@dataclass(frozen=True)
class Scored:
    """The score of a row by one seed, and the value of each test graph or query: 1 if right, or its reciprocal rank.

    Attributes:
        score: the score.
        tested: indices of the test graphs of each fold.
        values: value of each of them, in the same order.
    """

    score: FoldScores
    tested: tuple[np.ndarray, ...] = ()
    values: tuple[np.ndarray, ...] = ()

    def only(self, kept: np.ndarray) -> Scored:
        """Return the score over the test graphs of the mask `kept [n]`, without folds that have none."""
        parts = [(rows[kept[rows]], each[kept[rows]]) for rows, each in zip(self.tested, self.values, strict=True)]
        used = [k for k, (rows, _) in enumerate(parts) if len(rows)]
        rows, values = tuple(parts[k][0] for k in used), tuple(parts[k][1] for k in used)
        score, means = self.score, tuple(100 * float(each.mean()) for each in values)
        chosen, inner = (tuple(getattr(score, name)[k] for k in used) for name in ("chosen", "inner"))
        return Scored(replace(score, accuracy=means, chosen=chosen, inner=inner), rows, values)


Seeds = Sequence[Scored]
"""Scores of one row, one per seed."""


def mean(seeds: Seeds) -> float:
    """Return the mean score over seeds."""
    return float(np.mean([each.score.mean for each in seeds]))


def best(rows: Mapping[str, Seeds]) -> list[Scored]:
    """Return the scores of the row that the inner folds of each test fold choose; it never sees the test fold."""
    found = []
    for one_seed in zip(*rows.values(), strict=True):
        sign = -1 if one_seed[0].score.is_error else 1
        chosen = np.argmax([sign * np.array(each.score.inner) for each in one_seed], axis=0)
        picked = [one_seed[row] for row in chosen]
        accuracy, inner = (
            tuple(getattr(each.score, name)[fold] for fold, each in enumerate(picked)) for name in ("accuracy", "inner")
        )
        score = replace(one_seed[0].score, accuracy=accuracy, inner=inner, chosen=tuple(map(float, chosen)))
        parts = [
            tuple(getattr(each, name)[fold] for fold, each in enumerate(picked) if getattr(each, name))
            for name in ("tested", "values")
        ]
        found.append(Scored(score, *parts))
    return found


def gain(after: Seeds, before: Seeds, unit: np.ndarray | None = None, level: float = LEVEL) -> Interval:
    """Return the paired gain of `after` over `before` with its interval.

    On folds, that is the interval of `graphcl.evaluate.paired_test`. On a single test part, it is a bootstrap over its
    graphs, whose values are averaged over seeds; graphs of a `unit [n]`, such as a group, stay together.
    """
    if len(after[0].score.accuracy) > 1 or not after[0].tested:
        return paired_interval([each.score for each in after], [each.score for each in before], level)
    rows = after[0].tested[0]
    d = np.mean([new.values[0] - old.values[0] for new, old in zip(after, before, strict=True)], axis=0)
    return bootstrap_interval(100 * d, rows if unit is None else unit[rows], level)
