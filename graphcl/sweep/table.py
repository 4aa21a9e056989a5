"""From cells to a table: what lies in each place, what it gains, and whether that is more than chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphcl.evaluate import LOWER, FoldScores, best_row, holm, paired_test, summarise
from graphcl.experiment.summary import ROWS
from graphcl.sweep.plan import Cell, Plan

Labels = tuple[str, ...]
Place = tuple[Labels, str]  # row, column
REFERENCES = tuple(row for row in ROWS if row != "trained")
"""The reference rows, without training."""


@dataclass(frozen=True)
class Entry:
    """What is known in a place of the table: scores by seed, and how many seeds there should be."""

    scores: Sequence[FoldScores]
    wanted: int
    failed: int = 0

    @property
    def mean(self) -> float | None:
        """Mean accuracy in percent; None where nothing is finished."""
        return summarise(self.scores).mean if self.scores else None

    @property
    def std(self) -> float | None:
        """Deviation of the seeds' means."""
        return summarise(self.scores).std_seeds if self.scores else None


@dataclass(frozen=True)
class Difference:
    """What one place gains over another on the same folds, in percentage points, with the adjusted p."""

    mean: float
    p: float
    seeds: int

    @property
    def significant(self) -> bool:
        """Whether p is below 0.05, after Holm's correction for all comparisons of its table."""
        return self.p < 0.05


@dataclass(frozen=True)
class Table:
    """Rows x columns of one evaluator's accuracies, or what else it measures by.

    Args:
        evaluator: its name.
        header: the axes of the rows.
        rows: labels of each row.
        columns: labels of the columns.
        entries: by row and column.
        references: the reference rows of each place by name, `majority` to `calibrated`.
        gains: of each place over its untrained encoder.
        gains_over_best: of each place over the best of its reference rows.
        against: of each place over the baseline's.
        baseline: the labels on which the baseline is set.
    """

    evaluator: str
    header: Labels
    rows: Sequence[Labels]
    columns: Sequence[str]
    entries: Mapping[Place, Entry]
    references: Mapping[Place, Mapping[str, Entry]]
    gains: Mapping[Place, Difference]
    gains_over_best: Mapping[Place, Difference]
    against: Mapping[Place, Difference]
    baseline: Mapping[str, str] | None

    def best(self, column: str) -> Labels | None:
        """The row of the highest mean in a column, or of the lowest if it is an error."""
        known = {row: self.entries[row, column] for row in self.rows if (row, column) in self.entries}
        finished = {row: entry.mean for row, entry in known.items() if entry.mean is not None}
        lower = any(score.metric in LOWER for entry in known.values() for score in entry.scores)
        choose = min if lower else max
        return choose(finished, key=lambda row: finished[row]) if finished else None

    @property
    def metrics(self) -> list[str]:
        """What the entries are measured by, names of `METRICS`."""
        found = dict.fromkeys(score.metric for entry in self.entries.values() for score in entry.scores)
        return list(found) or ["accuracy"]

    def untrained(self, row: Labels, column: str) -> Entry | None:
        """Return the entry of the untrained encoder of a place."""
        return self.references.get((row, column), {}).get("untrained")

    def reference_rows(self) -> list[tuple[str, list[Labels], dict[str, Entry]]]:
        """Return the different reference rows: name, the rows that they belong to, and entries by column."""
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
    """The table of a plan from the records that there are.

    Args:
        plan: from `make_plan`.
        records: of cells by key, as the files hold them; any may be missing.
        evaluator: whose scores.
    """
    places: dict[Place, list[Cell]] = {}
    for cell in plan.cells:
        row = tuple(cell.coordinates[axis] for axis in plan.rows)
        places.setdefault((row, cell.coordinates[plan.columns]), []).append(cell)

    entries = {
        place: _entry(cells, [cell.key for cell in cells], records, evaluator) for place, cells in places.items()
    }
    references = {place: _references(cells, records, evaluator) for place, cells in places.items()}
    untrained = {place: rows["untrained"] for place, rows in references.items() if "untrained" in rows}
    best = {place: _best(rows) for place, rows in references.items() if rows}
    rows = list(dict.fromkeys(row for row, _ in places))
    columns = [label for label in plan.axes[plan.columns] if any(column == label for _, column in places)]
    twins = {place: _twin(place, plan) for place in places} if plan.baseline is not None else {}
    return Table(
        evaluator,
        tuple(plan.rows),
        rows,
        columns,
        entries,
        references,
        _differences({place: (entries[place], each) for place, each in untrained.items()}),
        _differences({place: (entries[place], each) for place, each in best.items()}),
        _differences({place: (entries[place], entries[twin]) for place, twin in twins.items() if twin != place}),
        plan.baseline,
    )


def _entry(
    cells: Sequence[Cell], keys: Sequence[str], records: Mapping[str, Mapping[str, Any]], evaluator: str
) -> Entry:
    found = [records.get(key, {}) for key in keys]
    scores = [scores_of(record, evaluator) for record in found if record.get("status") == "done"]
    failed = sum(record.get("status") == "failed" for record in found)
    return Entry(sorted(scores, key=lambda each: each.seed), len(cells), failed)


def _references(cells: Sequence[Cell], records: Mapping[str, Mapping[str, Any]], evaluator: str) -> dict[str, Entry]:
    """Return the reference rows of a place that are finished for any seed."""
    found: dict[str, list[FoldScores]] = {}
    for key in dict.fromkeys(cell.untrained for cell in cells):
        for name, kept in records.get(key, {}).get("references", {}).get(evaluator, {}).items():
            found.setdefault(name, []).append(FoldScores.of(kept))
    ordered = [name for name in REFERENCES if name in found]
    return {name: Entry(sorted(found[name], key=lambda each: each.seed), len(cells)) for name in ordered}


def _best(rows: Mapping[str, Entry]) -> Entry:
    """Return the best of the reference rows by its mean."""
    return rows[best_row({name: entry.scores for name, entry in rows.items()})]


def scores_of(record: Mapping[str, Any], evaluator: str) -> FoldScores:
    """The scores that a finished cell's record holds."""
    return FoldScores.of(record["scores"][evaluator])


def _twin(place: Place, plan: Plan) -> Place:
    row, column = place
    assert plan.baseline is not None
    return tuple(plan.baseline.get(axis, label) for axis, label in zip(plan.rows, row, strict=True)), column


def _differences(pairs: Mapping[Place, tuple[Entry, Entry]]) -> dict[Place, Difference]:
    """Paired over the seeds that both have, where their folds are the same; p corrected for their number."""
    tests = {}
    for place, (after, before) in pairs.items():
        splits = [{(each.seed, each.folds) for each in entry.scores} for entry in (after, before)]
        common = splits[0] & splits[1]
        if common:
            mine, other = (
                [each for each in entry.scores if (each.seed, each.folds) in common] for entry in (after, before)
            )
            tests[place] = (paired_test(mine, other), len(common))
    adjusted = holm([test.p for test, _ in tests.values()])
    return {
        place: Difference(test.mean, p, seeds)
        for (place, (test, seeds)), p in zip(tests.items(), adjusted, strict=True)
    }
