"""Draw the tables of a sweep, as bar charts or as lines over a number."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.report.style import INK, MUTED, TRAINED, UNTRAINED, panels, style, to_svg
from graphcl.sweep.lines import lines, numeric_axis
from graphcl.sweep.table import Labels, Table, merit
from graphcl.sweep.texts import metric_names
from graphcl.system.files import write_text

_MAX_ROWS = 60
"""Largest number of table rows that are drawn as bars; more bars are harder to read than the table."""


def write_figures(folder: Path, tables: Mapping[str, Table]) -> list[str]:
    """Draw each table as `folder/figures/EVALUATOR.svg`, replacing earlier figures; return the names of the files."""
    names = []
    for name, table in tables.items():
        file = folder / "figures" / f"{name}.svg"
        if any(entry.scores for entry in table.entries.values()) and len(table.rows) <= _MAX_ROWS:
            file.parent.mkdir(exist_ok=True)
            along = numeric_axis(table)
            write_text(file, to_svg(bars(table) if along is None else lines(table, along)))
            names.append(f"figures/{name}.svg")
        else:
            file.unlink(missing_ok=True)
    return names


@style()
def bars(table: Table) -> Any:
    """Return a figure with a plot for each column of a table, and a bar for each row.

    A bar extends from the best score without training to the trained encoder's mean score: filled if training is
    better, hatched if it is worse, also for errors. Its length is the difference, so the axis need not start at zero.
    Dots are seeds, whiskers show one sample standard deviation over seeds.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    labels = [", ".join(row) or "trained" for row in table.rows]
    across = 2 if len(table.columns) == 4 else 3
    width = max(2.9 + 0.055 * min(max(map(len, labels)), 40), 4.4 if len(table.columns) == 1 else 0)  # for the legend
    legend = 0.6 if len(table.columns) <= across else 0.0  # its height counts where there is one row of plots
    figure, axes = panels(len(table.columns), width, max(1.7, 1.2 + 0.29 * len(labels)) + legend, across)
    by = f" by {', '.join(table.header)}" if table.header else ""
    figure.suptitle(f"{table.evaluator}{by}", x=0.01, ha="left", weight="bold", fontsize=10)
    for number, (axis, column) in enumerate(zip(axes, table.columns, strict=True)):
        for place, row in enumerate(table.rows):
            _bar(axis, place, table, row, column)
        axis.set(title=column, xlabel=metric_names(table), ylim=(len(labels) - 0.35, -0.65))
        axis.text(1.02, 1.04, "mean, gain", transform=axis.transAxes, color=MUTED)
        shown = [label if len(label) <= 40 else f"{label[:39]}…" for label in labels]
        axis.set_yticks(range(len(labels)), shown if number % across == 0 else [""] * len(labels))
        axis.grid(False, axis="y")
        axis.use_sticky_edges = False
        axis.margins(x=0.08)
    marks = [
        Line2D([], [], color=UNTRAINED, lw=1.6, label="best row without training"),
        Line2D([], [], ls="", **_DIAMOND, label="untrained encoder"),
        Line2D([], [], ls="", color=TRAINED, marker="|", ms=11, mew=2.2, label="trained, mean of the seeds"),
        Line2D([], [], ls="", color=INK, alpha=0.55, marker="o", ms=3, label="a seed"),
        Line2D([], [], color=TRAINED, lw=1.6, label="± sample standard deviation over seeds"),
        Patch(**_GAIN, label="better than that row"),
        Patch(**_LOSS, label="worse than that row"),
    ]
    if all(entry.std is None for entry in table.entries.values()):
        del marks[3:5]  # one seed
    figure.legend(handles=marks, loc="outside lower left", ncols=4 if min(len(table.columns), across) == 3 else 2)
    return figure


_GAIN: dict[str, Any] = {"facecolor": TRAINED, "alpha": 0.35, "lw": 0}
_LOSS: dict[str, Any] = {"facecolor": "none", "edgecolor": UNTRAINED, "hatch": "/////", "lw": 0}
_DIAMOND: dict[str, Any] = {"color": MUTED, "marker": "D", "mfc": "white", "ms": 4.5, "mew": 1.2}


def _bar(axis: Any, place: int, table: Table, row: Labels, column: str) -> None:
    entry, references = table.entries[row, column], table.references[row, column]
    best, untrained = max(references.values(), key=merit, default=None), references.get("untrained")
    if best is not None and best.mean is not None:
        axis.plot([best.mean] * 2, [place - 0.5, place + 0.5], color=UNTRAINED, lw=1.6, zorder=2)
    if untrained is not None and untrained.mean is not None:
        # at the edge of the row, where neither the line of the best row nor the bar hides it
        axis.plot(untrained.mean, place + 0.34, ls="", zorder=3, **_DIAMOND)
    if not entry.scores:
        where: dict[str, Any] = {"transform": axis.get_yaxis_transform(), "va": "center", "ha": "center"}
        axis.text(0.5, place, "not finished", color=MUTED, **where)
        return
    seeds = [score.mean for score in entry.scores]
    mean, beside = float(np.mean(seeds)), {"xycoords": axis.get_yaxis_transform(), "textcoords": "offset points"}
    axis.annotate(f"{mean:.1f}", (1.02, place), (0, 0), va="center", **beside)
    if best is not None and best.mean is not None:
        gain = (best.mean - mean) if entry.scores[0].is_error else (mean - best.mean)
        axis.barh(place, mean - best.mean, left=best.mean, height=0.5, zorder=1, **(_GAIN if gain > 0 else _LOSS))
        axis.annotate(f"{round(gain, 1) + 0.0:+.1f}", (1.02, place), (28, 0), va="center", **beside)  # never -0.0
    if entry.std is not None:
        axis.errorbar(mean, place, xerr=entry.std, color=TRAINED, lw=1.6, capsize=3, zorder=4)
        axis.scatter(seeds, [place] * len(seeds), s=8, color=INK, alpha=0.55, linewidths=0, zorder=5)
    axis.plot(mean, place, color=TRAINED, marker="|", ms=11, mew=2.2, zorder=4)
