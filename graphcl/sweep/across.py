"""Compare the rows of a table over several data sets: mean ranks, wins, and Wilcoxon's signed-rank test."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from graphcl.evaluate import holm
from graphcl.sweep.table import Entry, Table, baseline_row, merit

FEWEST = 3
"""Data sets from which on rows are compared over data sets."""


class Duel(NamedTuple):
    """Numbers of data sets on which a row has the better mean, as printed, than another, an equal and a worse one.

    `p` is the two-sided p-value of Wilcoxon's signed-rank test, adjusted (Holm) for all rows of the table.
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
        duels: "best row without training" or "baseline" -> row -> comparison with it.
    """

    datasets: Sequence[str]
    ranks: Mapping[str, float]
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

    Splits of one data set share graphs, so a table of several splits has no such comparison.
    """
    if "split" in (*table.header, table.layout.columns):
        return None
    trained: dict[str, dict[str, float]] = {}
    best: dict[str, dict[str, float]] = {}
    baseline: dict[str, str] = {}
    references: dict[str, dict[str, dict[str, float]]] = {}
    for (labels, column), entry in table.entries.items():
        row, dataset = table.name(labels, column), table.datasets[labels, column]
        trained.setdefault(row, {})[dataset] = _finished(entry)
        values = {name: _finished(other) for name, other in table.references[labels, column].items()}
        best.setdefault(row, {})[dataset] = max(values.values(), default=-math.inf)
        for name, value in values.items():
            references.setdefault(name, {}).setdefault(row, {})[dataset] = value
        baseline[row] = table.name(baseline_row(table.layout, labels), column)
    names, rows = dict.fromkeys(table.datasets.values()), dict[str, dict[str, float]]()
    for name, by_row in references.items():
        distinct: dict[tuple[tuple[str, float], ...], str] = {}
        for row, values in by_row.items():  # trained rows may have different rows without training
            distinct.setdefault(tuple(sorted(values.items())), row)
        for items, row in distinct.items():
            if len(items) == len(names):
                rows[name if len(distinct) == 1 else f"{name}, {row}"] = dict(items)
    plain = bool(rows)
    rows |= trained
    datasets = [name for name in names if all(means.get(name, -math.inf) > -math.inf for means in rows.values())]
    if len(datasets) < FEWEST or len(rows) < 2 or len(table.metrics) > 1:
        return None
    from scipy.stats import rankdata

    means = np.array([[rows[row][name] for name in datasets] for row in rows])
    ranks = dict(zip(rows, rankdata(-means, axis=0).mean(1).tolist(), strict=True))
    duels = {}
    if plain:
        duels["best row without training"] = _duels(trained, best, datasets)
    if table.layout.baseline is not None:
        others = {row: trained[other] for row, other in baseline.items() if other != row}
        duels["baseline"] = _duels(trained, others, datasets)
    return Across(datasets, ranks, duels)


def _finished(entry: Entry) -> float:
    """Return the `merit` of an entry, -inf if seeds are missing."""
    return merit(entry) if len(entry.scores) == entry.expected else -math.inf


def _duels(
    rows: Mapping[str, Mapping[str, float]], others: Mapping[str, Mapping[str, float]], datasets: Sequence[str]
) -> dict[str, Duel]:
    from scipy.stats import wilcoxon

    gains = {
        row: np.array([rows[row][name] - means[name] for name in datasets]).round(2) for row, means in others.items()
    }
    p = holm([float(wilcoxon(gain).pvalue) if gain.any() else 1.0 for gain in gains.values()])
    return {
        row: Duel(int((gain > 0).sum()), int((gain == 0).sum()), int((gain < 0).sum()), adjusted)
        for (row, gain), adjusted in zip(gains.items(), p, strict=True)
    }
