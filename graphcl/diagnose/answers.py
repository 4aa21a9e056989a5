"""Turn a table of scores into answers: gains with intervals, and a verdict that follows from them.

Every gain is paired, and a row is chosen by inner folds, never by test scores. A gain counts only if its interval, at
the level of `graphcl.diagnose.scored.LEVEL`, does not hold zero. The questions are asked in an order, so that later
ones count only if the first finds anything:

1. `signal`: does the best row without training beat the majority class (or a random order)?
2. `leak`: does it do so on the test graphs that have no copy in training? If not, and copies gain more, copies do it.
3. `edges`, `features`: is it better than the best row on the graphs without edges, or with constant features?
4. `beyond_sizes`: if neither, is it better than the best row that sees the sizes only? If not, does that row beat
   chance (`sizes`)? If not, the graphs are too few to decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from graphcl.diagnose.scored import Scored, Seeds, best, gain, mean
from graphcl.evaluate.scores import Interval
from graphcl.references.rows import is_trained
from graphcl.registry import references

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
OVER = {
    "edges": "no edges",
    "features": "constant features",
    "beyond_sizes": "sizes only",
    "beyond_degrees": "random edges",
    "places": "shuffled features",
}
"""Name of a gain of the graphs as they are -> the control that it is over."""
Table = Mapping[str, Mapping[str, Seeds]]
"""Control (or `AS_IS`) -> row -> scores."""


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
        unit: unit of each graph `[n]`, see `graphcl.diagnose.scored.gain`.
        y: class of each graph `[n]`, numbered from 0; None without classes.
    """
    rows, top = table[AS_IS], {name: untrained_best(rows) for name, rows in table.items()}
    none = next(rows[name] for name in NONE if name in rows)
    gains = {"signal": gain(top[AS_IS], none, unit)}
    gains |= {name: gain(top[AS_IS], top[control], unit) for name, control in OVER.items() if control in top}
    if "sizes only" in top:
        gains["sizes"] = gain(top["sizes only"], none, unit)
    if "trained" in rows:
        gains["training"] = gain(rows["trained"], untrained_best(rows, every=True), unit)
    if {"trained", "untrained"} <= rows.keys():
        gains["over_untrained"] = gain(rows["trained"], rows["untrained"], unit)
    scores = {"best": mean(top[AS_IS]), "none": mean(none)}
    units = None if unit is None or not none[0].tested else len(np.unique(unit[np.concatenate(none[0].tested)]))
    found = Answers("", gains, scores, units=units)
    if copied is not None and copied.any():
        y = y if none[0].score.metric == "accuracy" else None
        found = _with_leak(found, top[AS_IS], none, copied, unit, y)
    return replace(found, kind=verdict(found.gains))


def untrained_best(rows: Mapping[str, Seeds], every: bool = False) -> list[Scored]:
    """Return the scores of the best row without training, chosen by inner folds.

    Unless `every`, rows that read an attribute of the graphs are left out, as no control changes them.
    """
    used = {name: seeds for name, seeds in rows.items() if not is_trained(name)}
    return best({name: seeds for name, seeds in used.items() if every or not reads_attribute(name)})


def reads_attribute(name: str) -> bool:
    """Return whether a row reads an attribute of the graphs, instead of nodes and edges."""
    return any(need.startswith("graph.") for need in references.fact(name, "needs").split())


def verdict(gains: Mapping[str, Interval]) -> str:
    """Return the key of `KINDS` that the gains say; a control that changes nothing has no gain.

    Example:
        >>> verdict({"signal": Interval(20, 15, 25), "edges": Interval(1, -2, 4), "features": Interval(9, 5, 13)})
        'features'
    """

    def adds(name: str) -> bool:
        return name in gains and gains[name].sign > 0

    if not adds("signal"):
        return "nothing"
    if "without_copies" in gains and not adds("without_copies") and adds("by_copies"):
        return "leak"
    if adds("edges") or adds("features"):
        return "both" if adds("edges") and adds("features") else "edges" if adds("edges") else "features"
    return "either" if adds("beyond_sizes") else "size" if adds("sizes") else "undecided"


def _with_leak(
    found: Answers, top: Seeds, none: Seeds, copied: np.ndarray, unit: np.ndarray | None, y: np.ndarray | None
) -> Answers:
    """Return the answers with the scores of the test graphs that have no copy in training.

    With classes, these are compared with the largest class among the same graphs: that of the training graphs can be
    the smallest among them.
    """
    tested = [np.concatenate(each.tested) for each in top]
    leak = float(np.mean([mask[rows].mean() for mask, rows in zip(copied, tested, strict=True)]))
    gains, scores, by_fold = dict(found.gains), dict(found.scores), list[list[Scored]]()
    for name, masks in (("copies", copied), ("without_copies", ~copied)):
        rows, chance = ([each.only(mask) for each, mask in zip(seeds, masks, strict=True)] for seeds in (top, none))
        # an interval over folds needs two of them
        least = min(2, top[0].score.folds) if name == "without_copies" else 1
        if not all(len(each.values) >= least for each in rows):
            return replace(found, leak=leak)
        if y is not None:
            chance = [_largest_class(each, y) for each in chance]
        by_fold.append([_minus(one, two) for one, two in zip(rows, chance, strict=True)])
        if name == "without_copies":
            gains[name] = gain(rows, chance, unit)
            scores |= {"best_without_copies": mean(rows), "none_without_copies": mean(chance)}
    counts = {len(each.values) for seeds in by_fold for each in seeds}
    if len(counts) == 1 and counts != {1}:
        gains["by_copies"] = gain(by_fold[0], by_fold[1], level=0.95)  # a second condition, for few test graphs
    return replace(found, gains=gains, scores=scores, leak=leak)


def _largest_class(like: Scored, y: np.ndarray) -> Scored:
    """Return the score of the most frequent class of the test graphs of `like`."""
    value = np.bincount(y[np.concatenate(like.tested)]).argmax()
    values = tuple((y[rows] == value).astype(float) for rows in like.tested)
    means = tuple(100 * float(each.mean()) for each in values)
    return replace(like, score=replace(like.score, accuracy=means), values=values)


def _minus(one: Scored, two: Scored) -> Scored:
    """Return a score whose folds hold the gain of one over the other."""
    gained = np.subtract(one.score.accuracy, two.score.accuracy)
    return replace(one, score=replace(one.score, accuracy=tuple(gained.tolist())))
