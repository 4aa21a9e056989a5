"""Compare the rows of a table over several data sets: mean ranks, wins, and Wilcoxon's signed-rank test."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphcl.evaluate import holm
from graphcl.sweep.table import Entry, Table, merit

FEWEST = 3
"""Data sets from which on rows are compared over data sets."""


@dataclass(frozen=True)
class Duel:
    """A comparison of two rows over data sets.

    Attributes:
        wins: number of data sets on which the row has the better mean, as printed.
        ties: number of data sets with equal means.
        losses: number of data sets on which the row has the worse mean.
        p: two-sided p-value of Wilcoxon's signed-rank test, adjusted (Holm) for all rows of the table.
    """

    wins: int
    ties: int
    losses: int
    p: float


@dataclass(frozen=True)
class Across:
    """The rows of a table over the data sets on which all of them are finished.

    Attributes:
        datasets: labels of the data sets.
        ranks: row -> mean rank over the data sets, 1 is best; of equal means, the mean of their ranks.
        trained: rows of trained encoders; all other rows are without training.
        duels: "best row without training" or "baseline" -> row -> comparison with it.
    """

    datasets: Sequence[str]
    ranks: Mapping[str, float]
    trained: Sequence[str]
    duels: Mapping[str, Mapping[str, Duel]]

    @property
    def critical_difference(self) -> float:
        r"""The smallest difference of mean ranks with p < 0.05 in Nemenyi's test, adjusted for all pairs of rows.

        $$q_{0.05} \sqrt{k (k + 1) / 6 N}$$

        for k rows and N data sets; $q_{0.05}$ is the quantile of the studentised range, divided by the root of 2.

        References:
            Demsar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 2006.
        """
        from scipy.stats import studentized_range

        k, n = len(self.ranks), len(self.datasets)
        return float(studentized_range.ppf(0.95, k, np.inf) / math.sqrt(2) * math.sqrt(k * (k + 1) / (6 * n)))


def across(table: Table) -> Across | None:
    """Return the comparison of a table's rows over data sets; None for fewer than `FEWEST` data sets with all rows.

    Splits of one data set share molecules, so a table of several splits has no such comparison.
    """
    if "split" in (*table.header, table.layout.columns):
        return None
    trained = _by_name(table)
    plain = _plain(table)
    names = list(dict.fromkeys(table.datasets.values()))
    shared = {name for values in trained.values() for name in values}
    plain = {row: values for row, values in plain.items() if shared <= values.keys()}
    rows = plain | trained
    datasets = [name for name in names if all(values.get(name, -math.inf) > -math.inf for values in rows.values())]
    if len(datasets) < FEWEST or len(rows) < 2 or len(table.metrics) > 1:
        return None
    from scipy.stats import rankdata

    values = np.array([[each[name] for name in datasets] for each in rows.values()])
    ranks = dict(zip(rows, rankdata(-values, axis=0).mean(1).tolist(), strict=True))
    rivals: dict[str, dict[str, dict[str, float]]] = {}
    if plain:
        rivals["best row without training"] = _best_plain(table)
    if table.layout.baseline is not None:
        rivals["baseline"] = {row: trained[other] for row, other in _baselines(table).items() if other != row}
    duels = {name: _duels(trained, others, datasets) for name, others in rivals.items()}
    return Across(datasets, ranks, list(trained), duels)


def _by_name(table: Table) -> dict[str, dict[str, float]]:
    """Return the mean of each trained row on each data set, of rows without the axis of the data sets."""
    found: dict[str, dict[str, float]] = {}
    for place, entry in table.entries.items():
        found.setdefault(table.name(*place), {})[table.datasets[place]] = _finished(entry)
    return found


def _plain(table: Table) -> dict[str, dict[str, float]]:
    """Return the mean of each row without training on each data set; trained rows may have different ones."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for place, entries in table.references.items():
        for name, entry in entries.items():
            of_row = found.setdefault(name, {}).setdefault(table.name(*place), {})
            of_row[table.datasets[place]] = _finished(entry)
    plain = {}
    for name, rows in found.items():
        distinct: dict[tuple[tuple[str, float], ...], str] = {}
        for row, means in rows.items():
            distinct.setdefault(tuple(sorted(means.items())), row)
        for values, row in distinct.items():
            plain[name if len(distinct) == 1 else f"{name}, {row}"] = dict(values)
    return plain


def _best_plain(table: Table) -> dict[str, dict[str, float]]:
    """Return trained row -> data set -> best mean of that row's own references."""
    found: dict[str, dict[str, float]] = {}
    for place, entries in table.references.items():
        best = max(map(_finished, entries.values()), default=-math.inf)
        found.setdefault(table.name(*place), {})[table.datasets[place]] = best
    return found


def _finished(entry: Entry) -> float:
    """Return the `merit` of an entry, -inf if seeds are missing."""
    return merit(entry) if len(entry.scores) == entry.expected else -math.inf


def _baselines(table: Table) -> dict[str, str]:
    """Return the name of each trained row's baseline."""
    baseline, found = table.layout.baseline or {}, {}
    for row, column in table.entries:
        other = [baseline.get(axis, label) for axis, label in zip(table.header, row, strict=True)]
        found[table.name(row, column)] = table.name(other, column)
    return found


def _duels(
    rows: Mapping[str, Mapping[str, float]], others: Mapping[str, Mapping[str, float]], datasets: Sequence[str]
) -> dict[str, Duel]:
    from scipy.stats import wilcoxon

    gains = {
        row: np.array([rows[row][name] - other[name] for name in datasets]).round(2) for row, other in others.items()
    }
    p = holm([float(wilcoxon(gain).pvalue) if gain.any() else 1.0 for gain in gains.values()])
    return {
        row: Duel(int((gain > 0).sum()), int((gain == 0).sum()), int((gain < 0).sum()), each)
        for (row, gain), each in zip(gains.items(), p, strict=True)
    }
