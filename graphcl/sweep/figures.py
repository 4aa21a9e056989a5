"""A sweep's tables as pictures, chosen by their shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.evaluate import METRICS
from graphcl.experiment.viz.bars import Bar, bars
from graphcl.experiment.viz.heat_map import heat_map
from graphcl.experiment.viz.svg import to_svg
from graphcl.sweep.plan import Plan
from graphcl.sweep.table import Entry, Table
from graphcl.system.files import write_text

_MOST_ROWS = 60
"""Rows beyond which a picture of bars says less than the table."""


def write_figures(folder: Path, plan: Plan, tables: Mapping[str, Table]) -> list[str]:
    """Draw the tables into `folder/figures`, in place of earlier ones; gives the files' names.

    For each evaluator `EVALUATOR.svg`, a bar a row and a plot a column; and where two axes are of numbers,
    `EVALUATOR-heat.svg`, accuracies over the two.

    Raises:
        InputError: matplotlib is not installed.
    """
    drawn: dict[str, Any] = {}
    for name, table in tables.items():
        if not any(entry.scores for entry in table.entries.values()):
            continue
        if len(table.rows) <= _MOST_ROWS:
            drawn[f"{name}.svg"] = bars_of(table)
        if len(numeric_axes(plan)) >= 2:
            drawn[f"{name}-heat.svg"] = heat_map_of(plan, table)
    texts = {name: to_svg(figure) for name, figure in drawn.items()}
    for name, text in texts.items():
        (folder / "figures").mkdir(exist_ok=True)
        write_text(folder / "figures" / name, text)
    return [f"figures/{name}" for name in texts]


def bars_of(table: Table) -> Any:
    """A bar for each row in a plot for each column."""
    columns = {column: [_bar(table, row, column) for row in table.rows] for column in table.columns}
    labels = [", ".join(row) or "trained" for row in table.rows]
    by = f" by {', '.join(table.header)}" if table.header else ""
    return bars(columns, labels, f"{table.evaluator}: what training gains{by}", _measured(table))


def heat_map_of(plan: Plan, table: Table) -> Any:
    """Accuracies over the last two axes of numbers, a plot for each combination of the other labels."""
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
    title = f"{table.evaluator}: mean {_measured(table)}"
    return heat_map(values, order[along], order[down], (along, down), title, untrained)


def numeric_axes(plan: Plan) -> list[str]:
    """The axes of the table all of whose labels, two or more, are numbers."""
    return [
        axis for axis in (*plan.rows, plan.columns) if len(plan.axes[axis]) > 1 and all(map(_number, plan.axes[axis]))
    ]


def _measured(table: Table) -> str:
    """What the scores are."""
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
