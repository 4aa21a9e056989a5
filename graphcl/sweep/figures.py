"""Draw the tables of a sweep as figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.evaluate import METRICS
from graphcl.report.bars import Bar, bars
from graphcl.report.heat_map import heat_map
from graphcl.report.svg import to_svg
from graphcl.sweep.plan import Plan
from graphcl.sweep.table import Entry, Table
from graphcl.system.files import write_text

_MAX_ROWS = 60
"""Largest number of table rows that are drawn as bars; more bars are harder to read than the table."""


def write_figures(folder: Path, plan: Plan, tables: Mapping[str, Table]) -> list[str]:
    """Draw the tables into `folder/figures`, replacing earlier figures; return the names of the files.

    For each evaluator, `EVALUATOR.svg` has a plot for each table column, with a bar for each row. If two or more axes
    are numeric, `EVALUATOR-heat.svg` has heat maps of the mean scores over the last two numeric axes.
    """
    drawn: dict[str, Any] = {}
    for name, table in tables.items():
        if not any(entry.scores for entry in table.entries.values()):
            continue
        if len(table.rows) <= _MAX_ROWS:
            drawn[f"{name}.svg"] = bars_of(table)
        if len(numeric_axes(plan)) >= 2:
            drawn[f"{name}-heat.svg"] = heat_map_of(plan, table)
    texts = {name: to_svg(figure) for name, figure in drawn.items()}
    for name, text in texts.items():
        (folder / "figures").mkdir(exist_ok=True)
        write_text(folder / "figures" / name, text)
    return [f"figures/{name}" for name in texts]


def bars_of(table: Table) -> Any:
    """Return a figure of `table` with a plot for each column and a bar for each row."""
    columns = {column: [_bar(table, row, column) for row in table.rows] for column in table.columns}
    labels = [", ".join(row) or "trained" for row in table.rows]
    by = f" by {', '.join(table.header)}" if table.header else ""
    return bars(columns, labels, f"{table.evaluator}: gain of training{by}", _metric(table))


def heat_map_of(plan: Plan, table: Table) -> Any:
    """Return heat maps over the last two numeric axes: one for each combination of labels on the other axes."""
    down, along = numeric_axes(plan)[-2:]
    order = {axis: sorted(plan.axes[axis], key=float) for axis in (down, along)}
    values: dict[str, np.ndarray] = {}
    below: dict[str, set[float | None]] = {}
    for row, column in table.entries:
        where = {**dict(zip(table.header, row, strict=True)), plan.columns: column}
        rest = ", ".join(label for axis, label in where.items() if axis not in (down, along)) or table.evaluator
        grid = values.setdefault(rest, np.full((len(order[down]), len(order[along])), math.nan))
        mean = table.entries[row, column].mean
        if mean is not None:
            grid[order[down].index(where[down]), order[along].index(where[along])] = mean
        below.setdefault(rest, set()).add(_mean(table.untrained(row, column)))
    untrained = {label: next(iter(found)) if len(found) == 1 else None for label, found in below.items()}
    title = f"{table.evaluator}: mean {_metric(table)}"
    return heat_map(values, order[along], order[down], (along, down), title, untrained)


def numeric_axes(plan: Plan) -> list[str]:
    """Return the axes of the plan's table that have two or more labels, all of them numbers."""
    return [
        axis for axis in (*plan.rows, plan.columns) if len(plan.axes[axis]) > 1 and all(map(_number, plan.axes[axis]))
    ]


def _metric(table: Table) -> str:
    return ", ".join(METRICS[each].replace(" %", " in %") for each in table.metrics)


def _bar(table: Table, row: tuple[str, ...], column: str) -> Bar:
    entry = table.entries.get((row, column))
    seeds = [] if entry is None else [score.mean for score in entry.scores]
    return Bar(seeds, _mean(table.untrained(row, column)))


def _mean(entry: Entry | None) -> float | None:
    return None if entry is None else entry.mean


def _number(label: str) -> bool:
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False
