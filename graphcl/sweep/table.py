"""Make the tables of a sweep: scores by row and column, gains between them, and the significance of the gains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphcl.evaluate import FoldScores, PairedTest, best_row, holm, paired_test, summarise
from graphcl.evaluate.scores import least_gain
from graphcl.references.rows import row_labels
from graphcl.sweep.plan import Cell, Layout, Plan
from graphcl.sweep.select import select

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
        found = dict.fromkeys(score.metric for entry in self.entries.values() for score in entry.scores)
        return list(found) or ["accuracy"]

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
        own = merit(self.entries[row, column])
        return own > -math.inf and own == max(merit(self.entries[place]) for place in rivals)

    def is_gain(self, row: Labels, column: str) -> bool:
        """Return whether the encoder beats the best row without training beyond chance."""
        gain = self.gains_over_best.get((row, column))
        return gain is not None and gain.significant and gain.mean > 0

    def reference_rows(self) -> list[tuple[str, list[Labels], dict[str, Entry]]]:
        """Return a tuple for each distinct reference row: its name, the rows that it applies to, column -> entry."""
        found: dict[tuple[Any, ...], tuple[str, list[Labels], dict[str, Entry]]] = {}
        for name in row_labels({name for entries in self.references.values() for name in entries}):
            for row in self.rows:
                places = {column: self.references[row, column] for column in self.columns}
                entries = {column: each[name] for column, each in places.items() if name in each}
                same = tuple(score.accuracy for entry in entries.values() for score in entry.scores)
                if entries:
                    found.setdefault((name, same), (name, [], entries))[1].append(row)
        return list(found.values())


def _without_dataset(layout: Layout, row: Sequence[str], column: str) -> Labels:
    labels = zip((*layout.rows, layout.columns), (*row, column), strict=True)
    return tuple(label for axis, label in labels if axis != "dataset")


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
    layout = plan.table
    places: dict[Place, list[Cell]] = {}
    for cell in plan.cells:
        row = tuple(cell.coordinates[axis] for axis in layout.rows)
        places.setdefault((row, cell.coordinates[layout.columns]), []).append(cell)
    references: dict[Place, dict[str, Entry]] = {}
    for place, cells in places.items():
        before = [records.get(key, {}) for key in dict.fromkeys(cell.reference for cell in cells)]
        given = [record.get("references", {}).get(evaluator, {}) for record in before]
        rows = {name: [FoldScores.of(each[name]) for each in given if name in each] for each in given for name in each}
        references[place] = {name: Entry(_sorted(rows[name]), len(before)) for name in row_labels(rows)}
    entries = _entries(layout, places, records, evaluator)
    untrained = {place: found["untrained"] for place, found in references.items() if "untrained" in found}
    best, baseline = {}, {}
    for (row, column), found in references.items():
        if found:
            best[row, column] = found[best_row({name: entry.scores for name, entry in found.items()})]
        other = tuple((layout.baseline or {}).get(axis, label) for axis, label in zip(layout.rows, row, strict=True))
        if other != row:
            baseline[row, column] = entries[other, column]
    return Table(
        evaluator=evaluator,
        layout=layout,
        rows=list(dict.fromkeys(row for row, _ in places)),
        columns=plan.axes[layout.columns],
        entries=entries,
        references=references,
        datasets={place: _dataset(cells[0]) for place, cells in places.items()},
        gains=_gains(entries, untrained),
        gains_over_best=_gains(entries, best),
        gains_over_baseline=_gains(entries, baseline),
        least={place: least_gain(*both) for place, both in _paired(entries, best).items()},
    )


def _dataset(cell: Cell) -> str:
    """Return the label of a cell's data set, with that of its split if there are several."""
    return ", ".join(cell.coordinates[axis] for axis in ("dataset", "split") if axis in cell.coordinates)


def _entries(
    layout: Layout, places: Mapping[Place, Sequence[Cell]], records: Mapping[str, Mapping[str, Any]], evaluator: str
) -> dict[Place, Entry]:
    """Return the entry of each place, with the labels that inner folds select."""
    found: dict[Place, dict[str, list[FoldScores]]] = {}
    failed: dict[Place, int] = {}
    for place, cells in places.items():
        found[place] = {}
        for cell in cells:
            scores = found[place].setdefault(", ".join(cell.coordinates[axis] for axis in layout.select), [])
            if records.get(cell.key, {}).get("status") == "done":
                scores.append(scores_of(records[cell.key], evaluator))
        failed[place] = sum(records.get(cell.key, {}).get("status") == "failed" for cell in cells)
    groups: dict[Any, dict[Place, dict[str, list[FoldScores]]]] = {}  # places that share a choice
    for place, labels in found.items():
        groups.setdefault(_without_dataset(layout, *place) if layout.jointly else place, {})[place] = labels
    entries = {}
    for group in groups.values():
        for place, (scores, chosen) in select(group).items():
            expected = len(places[place]) // len(found[place])
            entries[place] = Entry(_sorted(scores), expected, failed[place], chosen if layout.select else {})
    return {place: entries[place] for place in places}


def scores_of(record: Mapping[str, Any], evaluator: str) -> FoldScores:
    """Return the scores of `evaluator` in the record of a finished cell."""
    return FoldScores.of(record["scores"][evaluator])


def _sorted(scores: Iterable[FoldScores]) -> list[FoldScores]:
    return sorted(scores, key=lambda each: each.seed)


def _paired(
    entries: Mapping[Place, Entry], others: Mapping[Place, Entry]
) -> dict[Place, tuple[list[FoldScores], list[FoldScores]]]:
    """Return the scores of each entry and of the one in `others`, of the seeds and folds that both have."""
    found = {}
    for place, other in others.items():
        after, before = ({(each.seed, each.folds): each for each in one.scores} for one in (entries[place], other))
        if common := [split for split in after if split in before]:
            found[place] = [after[split] for split in common], [before[split] for split in common]
    return found


def _gains(entries: Mapping[Place, Entry], others: Mapping[Place, Entry]) -> dict[Place, PairedTest]:
    """Return the gain of each entry over the one in `others`, on the seeds and folds that both have."""
    tests = {place: paired_test(*both) for place, both in _paired(entries, others).items()}
    adjusted = holm([test.p for test in tests.values()])
    return {place: PairedTest(test.mean, p) for (place, test), p in zip(tests.items(), adjusted, strict=True)}
