"""Make the tables of a sweep: scores by row and column, gains between them, and the significance of the gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphcl.evaluate import LOWER, FoldScores, best_row, holm, paired_test, summarise
from graphcl.experiment.scores import REFERENCES
from graphcl.sweep.plan import Cell, Plan

Labels = tuple[str, ...]
Place = tuple[Labels, str]
"""The labels of a row and the label of a column, which name an entry of a table."""


@dataclass(frozen=True)
class Entry:
    """The results in one row and column of a table.

    Attributes:
        scores: the scores of each finished seed.
        expected: number of planned seeds.
        failed: number of seeds that failed.
    """

    scores: Sequence[FoldScores]
    expected: int
    failed: int = 0

    @property
    def mean(self) -> float | None:
        """Mean score over seeds and folds; None if no seed is finished."""
        return summarise(self.scores).mean if self.scores else None

    @property
    def is_error(self) -> bool:
        """Whether lower scores are better."""
        return any(score.metric in LOWER for score in self.scores)

    @property
    def std(self) -> float | None:
        """Standard deviation between the mean scores of the seeds; None if no seed is finished."""
        return summarise(self.scores).std_seeds if self.scores else None


@dataclass(frozen=True)
class Difference:
    """The gain of one entry over another on the same seeds and folds.

    Attributes:
        mean: mean gain, in percentage points or in the metric's unit.
        p: p-value, adjusted (Holm) for all comparisons of the same kind in the table.
        seeds: number of compared seeds.
    """

    mean: float
    p: float
    seeds: int

    @property
    def significant(self) -> bool:
        """Whether the adjusted p-value is below 0.05."""
        return self.p < 0.05


@dataclass(frozen=True)
class Table:
    """The scores of one evaluator by rows and columns; a place is a pair of row labels and a column label.

    Attributes:
        evaluator: name of the evaluator.
        header: axes of the rows.
        rows: labels of each row.
        columns: label of each column.
        entries: place -> results of the trained encoder.
        references: place -> name of a row without training, such as `untrained` -> results.
        gains: place -> gain over the untrained encoder.
        gains_over_best: place -> gain over the reference row with the best mean.
        gains_over_baseline: place -> gain over the baseline's row.
        baseline: axis -> label of the baseline, or None.
    """

    evaluator: str
    header: Labels
    rows: Sequence[Labels]
    columns: Sequence[str]
    entries: Mapping[Place, Entry]
    references: Mapping[Place, Mapping[str, Entry]]
    gains: Mapping[Place, Difference]
    gains_over_best: Mapping[Place, Difference]
    gains_over_baseline: Mapping[Place, Difference]
    baseline: Mapping[str, str] | None

    def best(self, column: str) -> Labels | None:
        """Return the row with the best mean in a column: the highest, or the lowest if the metric is an error."""
        known = {row: self.entries[row, column] for row in self.rows if (row, column) in self.entries}
        finished = {row: entry.mean for row, entry in known.items() if entry.mean is not None}
        choose = min if any(entry.is_error for entry in known.values()) else max
        return choose(finished, key=lambda row: finished[row]) if finished else None

    def beats_references(self, row: Labels, column: str) -> bool:
        """Return whether an entry's mean is better than the mean of each of its reference rows."""
        entry, rows = self.entries[row, column], self.references.get((row, column), {}).values()
        means = [round(each.mean, 2) for each in rows if each.mean is not None]
        if entry.mean is None or not means:
            return False
        mean = round(entry.mean, 2)  # compare as printed
        return mean < min(means) if entry.is_error else mean > max(means)

    @property
    def metrics(self) -> list[str]:
        """Names of the entries' metrics, keys of `METRICS`."""
        found = dict.fromkeys(score.metric for entry in self.entries.values() for score in entry.scores)
        return list(found) or ["accuracy"]

    def untrained(self, row: Labels, column: str) -> Entry | None:
        """Return the results of the untrained encoder for a row and column, or None if there are none."""
        return self.references.get((row, column), {}).get("untrained")

    def reference_rows(self) -> list[tuple[str, list[Labels], dict[str, Entry]]]:
        """Return a tuple for each distinct reference row: its name, the rows that it applies to, column -> entry."""
        found: dict[tuple[Any, ...], tuple[str, list[Labels], dict[str, Entry]]] = {}
        for name in REFERENCES:
            for row in self.rows:
                places = {column: self.references.get((row, column), {}) for column in self.columns}
                entries = {column: each[name] for column, each in places.items() if name in each}
                same = tuple(score.accuracy for entry in entries.values() for score in entry.scores)
                if entries:
                    found.setdefault((name, same), (name, [], entries))[1].append(row)
        return list(found.values())


def make_table(plan: Plan, records: Mapping[str, Mapping[str, Any]], evaluator: str = "svm") -> Table:
    """Return the table of one evaluator's scores.

    Args:
        plan: a plan that `make_plan` made.
        records: key of a cell -> its record; cells may be missing.
        evaluator: name of the evaluator whose scores to use.
    """
    places: dict[Place, list[Cell]] = {}
    for cell in plan.cells:
        row = tuple(cell.coordinates[axis] for axis in plan.rows)
        places.setdefault((row, cell.coordinates[plan.columns]), []).append(cell)

    entries = {place: _entry(cells, records, evaluator) for place, cells in places.items()}
    references = {place: _references(cells, records, evaluator) for place, cells in places.items()}
    untrained = {place: rows["untrained"] for place, rows in references.items() if "untrained" in rows}
    best = {place: _best(rows) for place, rows in references.items() if rows}
    baselines = {place: _baseline_place(place, plan) for place in places} if plan.baseline is not None else {}
    return Table(
        evaluator=evaluator,
        header=tuple(plan.rows),
        rows=list(dict.fromkeys(row for row, _ in places)),
        columns=[label for label in plan.axes[plan.columns] if any(column == label for _, column in places)],
        entries=entries,
        references=references,
        gains=_differences({place: (entries[place], each) for place, each in untrained.items()}),
        gains_over_best=_differences({place: (entries[place], each) for place, each in best.items()}),
        gains_over_baseline=_differences(
            {place: (entries[place], entries[other]) for place, other in baselines.items() if other != place}
        ),
        baseline=plan.baseline,
    )


def scores_of(record: Mapping[str, Any], evaluator: str) -> FoldScores:
    """Return the scores of `evaluator` in the record of a finished cell."""
    return FoldScores.of(record["scores"][evaluator])


def _entry(cells: Sequence[Cell], records: Mapping[str, Mapping[str, Any]], evaluator: str) -> Entry:
    found = [records.get(cell.key, {}) for cell in cells]
    scores = [scores_of(record, evaluator) for record in found if record.get("status") == "done"]
    failed = sum(record.get("status") == "failed" for record in found)
    return Entry(sorted(scores, key=lambda each: each.seed), len(cells), failed)


def _references(cells: Sequence[Cell], records: Mapping[str, Mapping[str, Any]], evaluator: str) -> dict[str, Entry]:
    """Return row name -> entry for the reference rows of one table entry; `cells` has one cell per seed."""
    found: dict[str, list[FoldScores]] = {}
    for key in dict.fromkeys(cell.reference for cell in cells):
        for name, kept in records.get(key, {}).get("references", {}).get(evaluator, {}).items():
            found.setdefault(name, []).append(FoldScores.of(kept))
    ordered = [name for name in REFERENCES if name in found]
    return {name: Entry(sorted(found[name], key=lambda each: each.seed), len(cells)) for name in ordered}


def _best(rows: Mapping[str, Entry]) -> Entry:
    return rows[best_row({name: entry.scores for name, entry in rows.items()})]


def _baseline_place(place: Place, plan: Plan) -> Place:
    """Return the place in the baseline row for `place`: the same labels, except on the axes of the baseline."""
    row, column = place
    assert plan.baseline is not None
    return tuple(plan.baseline.get(axis, label) for axis, label in zip(plan.rows, row, strict=True)), column


def _differences(pairs: Mapping[Place, tuple[Entry, Entry]]) -> dict[Place, Difference]:
    """Return the gain of the first entry of each pair over the second, on the seeds and folds that both have."""
    tests = {}
    for place, entries in pairs.items():
        after, before = ({(each.seed, each.folds): each for each in entry.scores} for entry in entries)
        if common := [split for split in after if split in before]:
            test = paired_test([after[split] for split in common], [before[split] for split in common])
            tests[place] = test, len(common)
    adjusted = holm([test.p for test, _ in tests.values()])
    return {
        place: Difference(test.mean, p, seeds)
        for (place, (test, seeds)), p in zip(tests.items(), adjusted, strict=True)
    }
