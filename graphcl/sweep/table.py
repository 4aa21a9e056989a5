"""Make the tables of a sweep: scores by row and column, gains between them, and the significance of the gains."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from graphcl.evaluate import FoldScores, PairedTest, best_row, holm, paired_test, summarise
from graphcl.evaluate.scores import least_gain
from graphcl.references.rows import row_labels
from graphcl.sweep.plan import Cell, Layout, Plan

P = TypeVar("P", bound=Hashable)
Labels = tuple[str, ...]
Place = tuple[Labels, str]
"""The labels of a row and the label of a column, which name an entry of a table."""


@dataclass(frozen=True)
class Entry:
    """The results in one row and column of a table.

    Attributes:
        scores: the scores of each finished seed.
        expected: number of planned seeds.
        failed: number of cells that failed.
        chosen: selected label -> number of test folds for which the inner folds chose it, see `select`.
    """

    scores: Sequence[FoldScores]
    expected: int
    failed: int = 0
    chosen: Mapping[str, int] = field(default_factory=dict)

    @property
    def mean(self) -> float | None:
        """Mean score over seeds and folds; None if no seed is finished."""
        return summarise(self.scores).mean if self.scores else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation of the seeds' mean scores; None for fewer than two finished seeds."""
        return summarise(self.scores).std_seeds if self.scores else None


@dataclass(frozen=True)
class Table:
    """The scores of one evaluator by rows and columns; a place is a pair of row labels and a column label.

    A gain is a `PairedTest` on the seeds and folds that both entries have. Its p-value is adjusted (Holm) for all
    comparisons of the same kind in the table.

    Attributes:
        evaluator: name of the evaluator.
        layout: layout of the table.
        rows: labels of each row.
        columns: label of each column.
        entries: place -> results of the trained encoder.
        references: place -> name of a row without training, such as `untrained` -> results.
        datasets: place -> label of its data set, and of its split if there are several.
        gains: place -> gain over the untrained encoder.
        gains_over_best: place -> gain over the row without training with the best mean.
        gains_over_baseline: place -> gain over the baseline's row.
        least: place -> gain over the best row without training that a test could have shown, see `least_gain`.
    """

    evaluator: str
    layout: Layout
    rows: Sequence[Labels]
    columns: Sequence[str]
    entries: Mapping[Place, Entry]
    references: Mapping[Place, Mapping[str, Entry]]
    datasets: Mapping[Place, str]
    gains: Mapping[Place, PairedTest]
    gains_over_best: Mapping[Place, PairedTest]
    gains_over_baseline: Mapping[Place, PairedTest]
    least: Mapping[Place, float]

    @property
    def header(self) -> Labels:
        """Axes of the rows."""
        return tuple(self.layout.rows)

    @property
    def metrics(self) -> list[str]:
        """Names of the entries' metrics, keys of `METRICS`."""
        metrics = dict.fromkeys(score.metric for entry in self.entries.values() for score in entry.scores)
        return list(metrics) or ["accuracy"]

    @property
    def has_errors(self) -> bool:
        """Whether lower is better in an entry."""
        return any(score.is_error for entry in self.entries.values() for score in entry.scores)

    def name(self, row: Sequence[str], column: str) -> str:
        """Return the labels of a place without that of its data set, as one text."""
        return ", ".join(_without_dataset(self.layout, row, column)) or "trained"

    def is_best(self, row: Labels, column: str) -> bool:
        """Return whether no trained encoder has a better mean on the same data set; means are compared as printed."""
        rivals = [place for place, name in self.datasets.items() if name == self.datasets[row, column]]
        value = merit(self.entries[row, column])
        return value > -math.inf and value == max(merit(self.entries[place]) for place in rivals)

    def is_gain(self, row: Labels, column: str) -> bool:
        """Return whether the encoder beats the best row without training beyond chance."""
        gain = self.gains_over_best.get((row, column))
        return gain is not None and gain.significant and gain.mean > 0

    def reference_rows(self) -> list[tuple[str, list[Labels], dict[str, Entry]]]:
        """Return a tuple for each distinct reference row: its name, the rows that it applies to, column -> entry."""
        distinct: dict[tuple[Any, ...], tuple[str, list[Labels], dict[str, Entry]]] = {}
        for name in row_labels({name for entries in self.references.values() for name in entries}):
            for row in self.rows:
                entries = {
                    column: self.references[row, column][name]
                    for column in self.columns
                    if name in self.references[row, column]
                }
                same = tuple(score.accuracy for entry in entries.values() for score in entry.scores)
                if entries:
                    distinct.setdefault((name, same), (name, [], entries))[1].append(row)
        return list(distinct.values())


def _without_dataset(layout: Layout, row: Sequence[str], column: str) -> Labels:
    labels = zip((*layout.rows, layout.columns), (*row, column), strict=True)
    return tuple(label for axis, label in labels if axis != "dataset")


def baseline_row(layout: Layout, row: Labels) -> Labels:
    """Return the labels of the row that a row is compared with; the row itself without a baseline."""
    return tuple((layout.baseline or {}).get(axis, label) for axis, label in zip(layout.rows, row, strict=True))


def merit(entry: Entry) -> float:
    """Return the mean of an entry as printed, negative for errors, so that higher is better; -inf without a mean."""
    mean = -math.inf if entry.mean is None else round(entry.mean, 2)
    return -mean if entry.scores and entry.scores[0].is_error else mean


def make_table(plan: Plan, records: Mapping[str, Mapping[str, Any]], evaluator: str = "svm") -> Table:
    """Return the table of one evaluator's scores.

    Args:
        plan: a plan that `make_plan` made.
        records: key of a cell -> its record; cells may be missing.
        evaluator: name of the evaluator whose scores to use.
    """
    layout, places = plan.table, dict[Place, list[Cell]]()
    for cell in plan.cells:
        row = tuple(cell.coordinates[axis] for axis in layout.rows)
        places.setdefault((row, cell.coordinates[layout.columns]), []).append(cell)
    entries = _entries(layout, places, records, evaluator)
    references: dict[Place, dict[str, Entry]] = {}
    untrained, best, baseline = {}, {}, {}
    for place, cells in places.items():
        keys = dict.fromkeys(cell.reference for cell in cells)
        rows: dict[str, list[FoldScores]] = {}
        for key in keys:
            for name, score in records.get(key, {}).get("references", {}).get(evaluator, {}).items():
                rows.setdefault(name, []).append(FoldScores.of(score))
        references[place] = {name: Entry(_sorted(rows[name]), len(keys)) for name in row_labels(rows)}
        if "untrained" in rows:
            untrained[place] = references[place]["untrained"]
        if rows:
            best[place] = references[place][best_row({name: rows[name] for name in references[place]})]
        other = baseline_row(layout, place[0])
        if other != place[0]:
            baseline[place] = entries[other, place[1]]
    return Table(
        evaluator=evaluator,
        layout=layout,
        rows=list(dict.fromkeys(row for row, _ in places)),
        columns=plan.axes[layout.columns],
        entries=entries,
        references=references,
        datasets={
            place: ", ".join(cells[0].coordinates[axis] for axis in ("dataset", "split") if axis in plan.axes)
            for place, cells in places.items()
        },
        gains=_gains(entries, untrained),
        gains_over_best=_gains(entries, best),
        gains_over_baseline=_gains(entries, baseline),
        least={place: least_gain(*both) for place, both in _paired(entries, best).items()},
    )


def _entries(
    layout: Layout, places: Mapping[Place, Sequence[Cell]], records: Mapping[str, Mapping[str, Any]], evaluator: str
) -> dict[Place, Entry]:
    """Return the entry of each place, with the labels that inner folds select."""
    groups: dict[Any, dict[Place, dict[str, list[FoldScores]]]] = {}  # places that share a choice
    failed = dict[Place, int]()
    for place, cells in places.items():
        labels: dict[str, list[FoldScores]] = {}
        for cell in cells:
            scores = labels.setdefault(", ".join(cell.coordinates[axis] for axis in layout.select), [])
            if records.get(cell.key, {}).get("status") == "done":
                scores.append(scores_of(records[cell.key], evaluator))
        failed[place] = sum(records.get(cell.key, {}).get("status") == "failed" for cell in cells)
        groups.setdefault(_without_dataset(layout, *place) if layout.jointly else place, {})[place] = labels
    entries = {}
    for group in groups.values():
        for place, (scores, chosen) in select(group).items():
            expected = len(places[place]) // len(group[place])
            entries[place] = Entry(_sorted(scores), expected, failed[place], chosen if layout.select else {})
    return {place: entries[place] for place in places}


def select(places: Mapping[P, Mapping[str, Sequence[FoldScores]]]) -> dict[P, tuple[list[FoldScores], Counter[str]]]:
    r"""Return the scores of each place with the selected labels, and for how many test folds each label was selected.

    $$v_{skp} = \arg\max_v \Big( i_{vskp} + \sum_{q \ne p} \frac{1}{K_q} \sum_l i_{vslq} \Big)$$

    where $i_{vskp}$ is the inner score of label v with seed s on place p, from the inner folds of test fold k. All
    places share the choice, but for the first term, so one label per test fold of each place. It never uses a graph of
    the test fold it is made for. With one place, that is nested cross-validation.

    Args:
        places: place -> label -> scores of each finished seed. A seed counts if every label of every place has it.
    """
    seeds = [{score.seed for score in scores} for labels in places.values() for scores in labels.values()]
    selected: dict[P, tuple[list[FoldScores], Counter[str]]] = {place: ([], Counter()) for place in places}
    for seed in sorted(set.intersection(*seeds)):
        of_seed = {
            place: {label: next(score for score in scores if score.seed == seed) for label, scores in labels.items()}
            for place, labels in places.items()
        }
        inner = {  # negative for errors
            place: {label: np.array(score.inner) * (-1 if score.is_error else 1) for label, score in scores.items()}
            for place, scores in of_seed.items()
        }
        for place, scores in of_seed.items():
            others = [sum(inner[other][label].mean() for other in places if other != place) for label in scores]
            merits = np.stack([*inner[place].values()]) + np.array(others)[:, None]
            labels = [[*scores][number] for number in merits.argmax(0)]
            picked = [(scores[label], fold) for fold, label in enumerate(labels)]
            accuracy, chosen, inner_scores = (
                tuple(getattr(score, name)[fold] for score, fold in picked) for name in ("accuracy", "chosen", "inner")
            )
            first = picked[0][0]
            selected[place][0].append(replace(first, accuracy=accuracy, chosen=chosen, inner=inner_scores))
            selected[place][1].update(labels)
    return selected


def scores_of(record: Mapping[str, Any], evaluator: str) -> FoldScores:
    """Return the scores of `evaluator` in the record of a finished cell."""
    return FoldScores.of(record["scores"][evaluator])


def _sorted(scores: Iterable[FoldScores]) -> list[FoldScores]:
    return sorted(scores, key=lambda score: score.seed)


def _paired(
    entries: Mapping[Place, Entry], others: Mapping[Place, Entry]
) -> dict[Place, tuple[list[FoldScores], list[FoldScores]]]:
    """Return the scores of each entry and of the one in `others`, of the seeds and folds that both have."""
    pairs = {}
    for place, other in others.items():
        after, before = (
            {(score.seed, score.folds): score for score in entry.scores} for entry in (entries[place], other)
        )
        common = [split for split in after if split in before]
        if common:
            pairs[place] = [after[split] for split in common], [before[split] for split in common]
    return pairs


def _gains(entries: Mapping[Place, Entry], others: Mapping[Place, Entry]) -> dict[Place, PairedTest]:
    """Return the gain of each entry over the one in `others`, on the seeds and folds that both have."""
    tests = {place: paired_test(*both) for place, both in _paired(entries, others).items()}
    adjusted = holm([test.p for test in tests.values()])
    return {place: PairedTest(test.mean, p) for (place, test), p in zip(tests.items(), adjusted, strict=True)}
