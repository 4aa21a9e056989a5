"""Turn a table of scores into answers: gains with intervals, and a verdict that follows from them.

Every gain is paired, and a row is chosen by inner folds, never by test scores. A gain counts only if its interval, at
the level of `LEVEL`, does not hold zero. The questions are asked in an order, so that later ones count only if the
first finds anything:

1. `signal`: does the best row without training beat the majority class (or a random order)?
2. `without_copies`: does it do so on the test graphs that have no copy in training? If not, and copies gain more,
   copies do it.
3. `edges`, `features`: is it better than the best row on the graphs without edges, or with constant features?
4. `beyond_sizes`: if neither, is it better than the best row that sees the sizes only? If not, does that row beat
   chance (`sizes`)? If not, the graphs are too few to decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from graphcl.evaluate import FoldScores
from graphcl.evaluate.scores import bootstrap_means, paired_difference
from graphcl.references.rows import is_trained
from graphcl.registry import references

LEVEL = 0.99
"""Level of all intervals. A statement is made only where its interval does not hold zero."""
AS_IS = "as they are"
NONE = ("majority", "random")
"""Rows without information."""
KINDS = {
    "nothing": "No row without training beats chance: it is not shown that anything in the graphs tells {what}.",
    "leak": "Copies carry the score: it is not beyond chance on test graphs that have no copy in training.",
    "size": "The sizes of the graphs tell {what}; that edges or features add to them is not shown.",
    "features": "The features of the nodes carry the score; that edges add to them is not shown.",
    "edges": "The edges carry the score; that features of the nodes add to them is not shown.",
    "both": "Edges and features both carry the score: without either, it falls.",
    "either": "Edges or features suffice: without one of the two no loss is shown, without both the score falls.",
    "undecided": "Something tells {what}, but the graphs are too few to say whether edges, features or sizes.",
}
"""Verdict -> its sentence."""


class Question(NamedTuple):
    """A question that a gain answers.

    Attributes:
        text: the question; empty for one that only the verdict asks.
        over: what the gain is over; `{none}` stands for the row without information.
        control: the control that a gain of the graphs as they are is over.
        unchanged: why the gain is missing, if the control changes nothing.
    """

    text: str = ""
    over: str = ""
    control: str = ""
    unchanged: str = ""


QUESTIONS = {
    "signal": Question("Is there anything to learn?", "over {none}"),
    "sizes": Question("Do sizes tell it?", "sizes alone, over {none}"),
    "edges": Question("Do edges add to features and sizes?", "over no edges", "no edges", "the graphs have no edges"),
    "features": Question(
        "Do features add to edges and sizes?",
        "over constant features",
        "constant features",
        "the nodes have no features of their own",
    ),
    "beyond_sizes": Question(control="sizes only"),
    "beyond_degrees": Question(
        "Do edges add to degrees?",
        "over random edges of the same degrees",
        "random edges",
        "no other edges have these degrees",
    ),
    "places": Question(
        "Does it matter which node has which features?",
        "over features shuffled within each graph",
        "shuffled features",
        "the nodes of a graph have equal features",
    ),
    "without_copies": Question(
        "Is there a signal without copies?", "over {none}, on test graphs without a copy in training"
    ),
    "training": Question("Does training add anything?", "over the best row without training"),
    "over_untrained": Question("Does training change the encoder?", "over the untrained encoder"),
}
"""Name of a gain -> the question that it answers."""


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

    def only(self, mask: np.ndarray) -> Scored:
        """Return the score over the test graphs in `mask [n]`, without folds that have none."""
        folds = [fold for fold, graphs in enumerate(self.tested) if mask[graphs].any()]
        tested = tuple(self.tested[fold][mask[self.tested[fold]]] for fold in folds)
        values = tuple(self.values[fold][mask[self.tested[fold]]] for fold in folds)
        chosen, inner = (tuple(getattr(self.score, name)[fold] for fold in folds) for name in ("chosen", "inner"))
        means = tuple(100 * float(of_fold.mean()) for of_fold in values)
        return Scored(replace(self.score, accuracy=means, chosen=chosen, inner=inner), tested, values)


Seeds = Sequence[Scored]
"""Scores of one row, one per seed."""
Table = Mapping[str, Mapping[str, Seeds]]
"""Control (or `AS_IS`) -> row -> scores."""


def mean(seeds: Seeds) -> float:
    """Return the mean score over seeds."""
    return float(np.mean([scored.score.mean for scored in seeds]))


def best(rows: Mapping[str, Seeds]) -> list[Scored]:
    """Return the scores of the row that the inner folds of each test fold choose; it never sees the test fold."""
    chosen_scores = []
    for one_seed in zip(*rows.values(), strict=True):
        first = one_seed[0].score
        merits = [np.array(scored.score.inner) * (-1 if first.is_error else 1) for scored in one_seed]
        row_of_fold = np.argmax(merits, axis=0)
        picked = [(fold, one_seed[row]) for fold, row in enumerate(row_of_fold)]
        score = replace(
            first,
            accuracy=tuple(scored.score.accuracy[fold] for fold, scored in picked),
            inner=tuple(scored.score.inner[fold] for fold, scored in picked),
            chosen=tuple(map(float, row_of_fold)),
        )
        tested = tuple(scored.tested[fold] for fold, scored in picked if scored.tested)
        values = tuple(scored.values[fold] for fold, scored in picked if scored.values)
        chosen_scores.append(Scored(score, tested, values))
    return chosen_scores


def untrained_best(rows: Mapping[str, Seeds], every: bool = False) -> list[Scored]:
    """Return the scores of the best row without training, chosen by inner folds.

    Unless `every`, rows that read an attribute of the graphs are left out, as no control changes them.
    """
    used = {name: seeds for name, seeds in rows.items() if not is_trained(name)}
    return best({name: seeds for name, seeds in used.items() if every or not reads_attribute(name)})


def reads_attribute(name: str) -> bool:
    """Return whether a row reads an attribute of the graphs, instead of nodes and edges."""
    return any(need.startswith("graph.") for need in references.fact(name, "needs").split())


@dataclass(frozen=True)
class Interval:
    """A mean difference and its confidence interval, in percentage points or the unit of the error."""

    mean: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 if the interval is above zero, -1 if it is below, 0 if it holds zero."""
        return int(self.low > 0) - int(self.high < 0)

    def __str__(self) -> str:
        return f"{self.mean:+.1f} [{self.low:.1f}, {self.high:.1f}]"


def gain(after: Seeds, before: Seeds, unit: np.ndarray | None = None, level: float = LEVEL) -> Interval:
    """Return the paired gain of `after` over `before` with its interval.

    On folds, that is where `graphcl.evaluate.paired_test` has p > 1 - level; it is infinite for one fold in total. On a
    single test part, it is a percentile bootstrap over its graphs, whose values are averaged over seeds; graphs of a
    `unit [n]`, such as a group, stay together.
    """
    if len(after[0].score.accuracy) > 1 or not after[0].tested:
        from scipy.special import stdtrit

        mean, error, freedom = paired_difference([seed.score for seed in after], [seed.score for seed in before])
        half = float(stdtrit(freedom, (1 + level) / 2) * error) if freedom else float("inf")
        return Interval(mean, mean - half, mean + half)
    graphs = after[0].tested[0]
    values = 100 * np.mean([new.values[0] - old.values[0] for new, old in zip(after, before, strict=True)], axis=0)
    means = bootstrap_means(values[:, None], graphs if unit is None else unit[graphs], 10_000)[:, 0]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(values.mean()), float(low), float(high))


@dataclass(frozen=True)
class Answers:
    """Answers that follow from a table of scores.

    Attributes:
        kind: verdict, a key of `KINDS`.
        gains: name of a question -> gain with interval.
        scores: name -> mean score.
        leak: fraction of the test graphs that have a copy in training.
        units: number of groups or connected pairs of the test part, over which intervals are; None on folds.
    """

    kind: str
    gains: Mapping[str, Interval]
    scores: Mapping[str, float] = field(default_factory=dict)
    leak: float = 0.0
    units: int | None = None


def answer(
    table: Table, copied: np.ndarray | None = None, unit: np.ndarray | None = None, y: np.ndarray | None = None
) -> Answers:
    """Return the answers of a table.

    Args:
        table: scores of all controls.
        copied: mask `[seeds, n]` of the test graphs that have a copy in training; None if that is not known.
        unit: unit of each graph `[n]`, see `gain`.
        y: class of each graph `[n]`, numbered from 0; None without classes.
    """
    rows, top = table[AS_IS], {control: untrained_best(rows) for control, rows in table.items()}
    none = next(rows[name] for name in NONE if name in rows)
    gains = {"signal": gain(top[AS_IS], none, unit)}
    for name, question in QUESTIONS.items():
        if question.control in top:
            gains[name] = gain(top[AS_IS], top[question.control], unit)
    if "sizes only" in top:
        gains["sizes"] = gain(top["sizes only"], none, unit)
    if "trained" in rows:
        gains["training"] = gain(rows["trained"], untrained_best(rows, every=True), unit)
    if {"trained", "untrained"} <= rows.keys():
        gains["over_untrained"] = gain(rows["trained"], rows["untrained"], unit)
    scores, leak = {"best": mean(top[AS_IS]), "none": mean(none)}, 0.0
    if copied is not None and copied.any():
        tested = [np.concatenate(scored.tested) for scored in top[AS_IS]]
        leak = float(np.mean([mask[graphs].mean() for mask, graphs in zip(copied, tested, strict=True)]))
        classes = y if none[0].score.metric == "accuracy" else None
        more_gains, more_scores = _without_copies(top[AS_IS], none, copied, unit, classes)
        gains, scores = gains | more_gains, scores | more_scores
    units = None if unit is None or not none[0].tested else len(np.unique(unit[np.concatenate(none[0].tested)]))
    return Answers(verdict(gains), gains, scores, leak, units)


def verdict(gains: Mapping[str, Interval]) -> str:
    """Return the key of `KINDS` that the gains say; a control that changes nothing has no gain.

    Example:
        >>> verdict({"signal": Interval(20, 15, 25), "edges": Interval(1, -2, 4), "features": Interval(9, 5, 13)})
        'features'
    """
    shown = {name for name, interval in gains.items() if interval.sign > 0}
    if "signal" not in shown:
        return "nothing"
    if "without_copies" in gains and "without_copies" not in shown and "by_copies" in shown:
        return "leak"
    if {"edges", "features"} <= shown:
        return "both"
    order = {"edges": "edges", "features": "features", "beyond_sizes": "either", "sizes": "size"}
    return next((kind for name, kind in order.items() if name in shown), "undecided")


def _without_copies(
    top: Seeds, none: Seeds, copied: np.ndarray, unit: np.ndarray | None, y: np.ndarray | None
) -> tuple[dict[str, Interval], dict[str, float]]:
    """Return the gains and scores of the test graphs that have no copy in training; empty if these are too few.

    With classes, they are compared with the largest class among the same graphs: that of the training graphs can be
    the smallest among them.
    """
    gains, scores, by_fold = dict[str, Interval](), dict[str, float](), list[list[Scored]]()
    for name, masks in (("copies", copied), ("without_copies", ~copied)):
        rows, chance = ([one.only(mask) for one, mask in zip(seeds, masks, strict=True)] for seeds in (top, none))
        # an interval over folds needs two of them
        least = min(2, top[0].score.folds) if name == "without_copies" else 1
        if any(len(scored.values) < least for scored in rows):
            return {}, {}
        if y is not None:
            chance = [_largest_class(scored, y) for scored in chance]
        by_fold.append([])
        for one, two in zip(rows, chance, strict=True):
            difference = np.subtract(one.score.accuracy, two.score.accuracy)
            by_fold[-1].append(replace(one, score=replace(one.score, accuracy=tuple(difference.tolist()))))
    gains["without_copies"] = gain(rows, chance, unit)
    scores |= {"best_without_copies": mean(rows), "none_without_copies": mean(chance)}
    counts = {len(scored.values) for seeds in by_fold for scored in seeds}
    if len(counts) == 1 and counts != {1}:
        gains["by_copies"] = gain(by_fold[0], by_fold[1], level=0.95)  # a second condition, for few test graphs
    return gains, scores


def _largest_class(like: Scored, y: np.ndarray) -> Scored:
    """Return the score of the most frequent class of the test graphs of `like`."""
    value = np.bincount(y[np.concatenate(like.tested)]).argmax()
    values = tuple((y[graphs] == value).astype(float) for graphs in like.tested)
    means = tuple(100 * float(of_fold.mean()) for of_fold in values)
    return replace(like, score=replace(like.score, accuracy=means), values=values)
