"""Draw the tables of a sweep as figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.report.bars import Bar, bars
from graphcl.report.heat_map import heat_map
from graphcl.report.rank_diagram import rank_diagram
from graphcl.report.score_lines import score_lines
from graphcl.report.svg import to_svg
from graphcl.sweep.across import across
from graphcl.sweep.plan import Plan
from graphcl.sweep.table import Entry, Table, by_axis, merit
from graphcl.sweep.texts import metric_names
from graphcl.system.files import write_text

_MAX_ROWS = 60
"""Largest number of table rows that are drawn as bars; more bars are harder to read than the table."""


def write_figures(folder: Path, plan: Plan, tables: Mapping[str, Table]) -> list[str]:
    """Draw the tables into `folder/figures`, replacing earlier figures; return the names of the files.

    For each evaluator, `EVALUATOR.svg` has a plot for each table column, with a bar for each row. `EVALUATOR-lines.svg`
    has a line for each row over one numeric axis; over two or more, `EVALUATOR-heat.svg` has heat maps over the last
    two. `EVALUATOR-ranks.svg` is a critical-difference diagram, if there are enough data sets.
    """
    drawn: dict[str, Any] = {}
    for name, table in tables.items():
        if any(entry.scores for entry in table.entries.values()):
            if len(table.rows) <= _MAX_ROWS:
                drawn[f"figures/{name}.svg"] = bars_of(table)
            if len(numeric_axes(plan)) == 1:
                drawn[f"figures/{name}-lines.svg"] = lines_of(plan, table)
            if len(numeric_axes(plan)) >= 2:
                drawn[f"figures/{name}-heat.svg"] = heat_map_of(plan, table)
            if found := across(table):
                title = f"{name}: mean ranks over {len(found.datasets)} data sets"
                drawn[f"figures/{name}-ranks.svg"] = rank_diagram(found.ranks, found.critical_difference, title)
    for name, kind in itertools.product(tables, ("", "-lines", "-heat", "-ranks")):
        (folder / "figures" / f"{name}{kind}.svg").unlink(missing_ok=True)
    for name, figure in drawn.items():
        (folder / "figures").mkdir(exist_ok=True)
        write_text(folder / name, to_svg(figure))
    return list(drawn)


def bars_of(table: Table) -> Any:
    """Return a figure of `table` with a plot for each column and a bar for each row."""
    columns: dict[str, list[Bar]] = {column: [] for column in table.columns}
    for row, column in itertools.product(table.rows, table.columns):
        means = {name: entry.mean for name, entry in table.references[row, column].items()}
        best = max(table.references[row, column].values(), key=merit, default=None)
        seeds = [score.mean for score in table.entries[row, column].scores]
        columns[column].append(Bar(seeds, best.mean if best else None, means.get("untrained")))
    labels = [", ".join(row) or "trained" for row in table.rows]
    by = f" by {', '.join(table.header)}" if table.header else ""
    return bars(columns, labels, f"{table.evaluator}: gain of training{by}", metric_names(table))


def lines_of(plan: Plan, table: Table) -> Any:
    """Return a figure of the scores over the numeric axis: a plot for each data set, and a line for each other row."""
    (along,) = numeric_axes(plan)
    plots: dict[str, dict[str, dict[float, Entry]]] = {}
    best: dict[str, Entry] = {}
    for (row, column), entry in table.entries.items():
        where = by_axis(table.layout, row, column)
        place = table.datasets[row, column]
        label = ", ".join(each for axis, each in where.items() if axis not in (along, "dataset")) or "trained"
        plots.setdefault(place, {}).setdefault(label, {})[float(where[along])] = entry
        for other in table.references[row, column].values():
            best[place] = max(best.get(place, other), other, key=merit)
    series = {
        place: {
            label: [(x, [score.mean for score in entry.scores]) for x, entry in sorted(points.items()) if entry.scores]
            for label, points in lines.items()
        }
        for place, lines in plots.items()
    }
    means = {place: entry.mean for place, entry in best.items()}
    return score_lines(series, means, f"{table.evaluator}: by {along}", along, metric_names(table))


def heat_map_of(plan: Plan, table: Table) -> Any:
    """Return heat maps over the last two numeric axes: one for each combination of labels on the other axes."""
    down, along = numeric_axes(plan)[-2:]
    ys, xs = (sorted(plan.axes[axis], key=float) for axis in (down, along))
    values: dict[str, np.ndarray] = {}
    below: dict[str, set[float | None]] = {}
    for (row, column), entry in table.entries.items():
        where = by_axis(table.layout, row, column)
        rest = ", ".join(label for axis, label in where.items() if axis not in (down, along)) or table.evaluator
        grid = values.setdefault(rest, np.full((len(ys), len(xs)), math.nan))
        if entry.mean is not None:
            grid[ys.index(where[down]), xs.index(where[along])] = entry.mean
        untrained = table.references[row, column].get("untrained")
        below.setdefault(rest, set()).add(untrained.mean if untrained else None)
    same = {label: found.pop() if len(found) == 1 else None for label, found in below.items()}
    return heat_map(values, xs, ys, (along, down), f"{table.evaluator}: mean {metric_names(table)}", same)


def numeric_axes(plan: Plan) -> list[str]:
    """Return the axes of the plan's table that have two or more labels, all of them numbers."""
    axes = (*plan.table.rows, plan.table.columns)
    return [axis for axis in axes if len(plan.axes[axis]) > 1 and all(map(_is_number, plan.axes[axis]))]


def _is_number(label: str) -> bool:
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False
