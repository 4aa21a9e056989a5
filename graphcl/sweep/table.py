"""Make the tables of a sweep: scores by row and column, gains between them, and the significance of the gains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphcl.evaluate import LOWER, FoldScores, PairedTest, best_row, holm, paired_test, summarise
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
    def std(self) -> float | None:
        """Standard deviation between the mean scores of the seeds; None if no seed is finished."""
        return summarise(self.scores).std_seeds if self.scores else None


@dataclass(frozen=True)
class Table:
    """The scores of one evaluator by rows and columns; a place is a pair of row labels and a column label.

    A gain is a `PairedTest` on the seeds and folds that both entries have. Its p-value is adjusted (Holm) for all
    comparisons of the same kind in the table.

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
    gains: Mapping[Place, PairedTest]
    gains_over_best: Mapping[Place, PairedTest]
    gains_over_baseline: Mapping[Place, PairedTest]
    baseline: Mapping[str, str] | None

    @property
    def metrics(self) -> list[str]:
        """Names of the entries' metrics, keys of `METRICS`."""
        found = dict.fromkeys(score.metric for entry in self.entries.values() for score in entry.scores)
        return list(found) or ["accuracy"]

    def is_best(self, row: Labels, column: str) -> bool:
        """Return whether no mean of the column is better than this one, and all its reference rows are worse.

        Means are compared as printed.
        """

        def value(entry: Entry) -> float:
            mean = -math.inf if entry.mean is None else round(entry.mean, 2)
            return -mean if any(score.metric in LOWER for score in entry.scores) else mean

        own = value(self.entries[row, column])
        references = map(value, self.references[row, column].values())
        trained = [value(entry) for (_, place), entry in self.entries.items() if place == column]
        return own == max(trained) and own > max(references, default=math.inf)

    def reference_rows(self) -> list[tuple[str, list[Labels], dict[str, Entry]]]:
        """Return a tuple for each distinct reference row: its name, the rows that it applies to, column -> entry."""
        found: dict[tuple[Any, ...], tuple[str, list[Labels], dict[str, Entry]]] = {}
        for name in REFERENCES:
            for row in self.rows:
                places = {column: self.references[row, column] for column in self.columns}
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
    entries: dict[Place, Entry] = {}
    references: dict[Place, dict[str, Entry]] = {}
    for place, cells in places.items():
        kept = [records.get(cell.key, {}) for cell in cells]
        scores = [scores_of(record, evaluator) for record in kept if record.get("status") == "done"]
        entries[place] = _entry(scores, cells, sum(record.get("status") == "failed" for record in kept))
        before = [records.get(key, {}) for key in dict.fromkeys(cell.reference for cell in cells)]
        given = [record.get("references", {}).get(evaluator, {}) for record in before]
        rows = {name: [FoldScores.of(each[name]) for each in given if name in each] for name in REFERENCES}
        references[place] = {name: _entry(scores, cells) for name, scores in rows.items() if scores}
    untrained = {place: found["untrained"] for place, found in references.items() if "untrained" in found}
    best, baseline = {}, {}
    for (row, column), found in references.items():
        if found:
            best[row, column] = found[best_row({name: entry.scores for name, entry in found.items()})]
        other = tuple((plan.baseline or {}).get(axis, label) for axis, label in zip(plan.rows, row, strict=True))
        if other != row:
            baseline[row, column] = entries[other, column]
    return Table(
        evaluator=evaluator,
        header=tuple(plan.rows),
        rows=list(dict.fromkeys(row for row, _ in places)),
        columns=plan.axes[plan.columns],
        entries=entries,
        references=references,
        gains=_gains(entries, untrained),
        gains_over_best=_gains(entries, best),
        gains_over_baseline=_gains(entries, baseline),
        baseline=plan.baseline,
    )


def scores_of(record: Mapping[str, Any], evaluator: str) -> FoldScores:
    """Return the scores of `evaluator` in the record of a finished cell."""
    return FoldScores.of(record["scores"][evaluator])


def _entry(scores: Iterable[FoldScores], cells: Sequence[Cell], failed: int = 0) -> Entry:
    return Entry(sorted(scores, key=lambda each: each.seed), len(cells), failed)


def _gains(entries: Mapping[Place, Entry], others: Mapping[Place, Entry]) -> dict[Place, PairedTest]:
    """Return the gain of each entry over the one in `others`, on the seeds and folds that both have."""
    tests: dict[Place, PairedTest] = {}
    for place, other in others.items():
        after, before = ({(each.seed, each.folds): each for each in found.scores} for found in (entries[place], other))
        if common := [split for split in after if split in before]:
            tests[place] = paired_test([after[split] for split in common], [before[split] for split in common])
    adjusted = holm([test.p for test in tests.values()])
    return {place: PairedTest(test.mean, p) for (place, test), p in zip(tests.items(), adjusted, strict=True)}
