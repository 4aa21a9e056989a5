"""Draw the tables of a sweep: as bars, or as lines over its one setting that is a number, such as a temperature."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.evaluate.scores import sample_deviation
from graphcl.report.style import COLOURS, INK, MARKERS, MUTED, TRAINED, UNTRAINED, panels, style, to_svg
from graphcl.sweep.table import Entry, Labels, Table, merit
from graphcl.sweep.write import metric_names
from graphcl.system.files import write_text

_MAX_ROWS = 60
"""Largest number of table rows that are drawn as bars; more bars are harder to read than the table."""
_GAIN: dict[str, Any] = {"facecolor": TRAINED, "alpha": 0.35, "lw": 0}
_LOSS: dict[str, Any] = {"facecolor": "none", "edgecolor": UNTRAINED, "hatch": "/////", "lw": 0}
_DIAMOND: dict[str, Any] = {"ls": "", "color": MUTED, "marker": "D", "mfc": "white", "ms": 4.5, "mew": 1.2}
_TITLE: dict[str, Any] = {"x": 0.01, "ha": "left", "weight": "bold", "fontsize": 10}


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
    figure.suptitle(f"{table.evaluator}{by}", **_TITLE)
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
        Line2D([], [], **_DIAMOND, label="untrained encoder"),
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


def _bar(axis: Any, place: int, table: Table, row: Labels, column: str) -> None:
    entry = table.entries[row, column]
    references = {name: other for name, other in table.references[row, column].items() if other.mean is not None}
    best = max(references.values(), key=merit, default=None)
    if best is not None:
        axis.plot([best.mean] * 2, [place - 0.5, place + 0.5], color=UNTRAINED, lw=1.6, zorder=2)
    if "untrained" in references:
        # at the edge of the row, where neither the line of the best row nor the bar hides it
        axis.plot(references["untrained"].mean, place + 0.34, zorder=3, **_DIAMOND)
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


def numeric_axis(table: Table) -> str | None:
    """Return the only axis of a table whose labels are two or more numbers; None if there is none, or several."""

    def is_number(label: str) -> bool:
        try:
            return bool(np.isfinite(float(label)))
        except ValueError:
            return False

    axes = dict(zip(table.header, zip(*table.rows, strict=True), strict=True)) if table.header else {}
    axes[table.layout.columns] = tuple(table.columns)
    numeric = [axis for axis, labels in axes.items() if len({*labels}) > 1 and all(map(is_number, labels))]
    return numeric[0] if len(numeric) == 1 else None


@style()
def lines(table: Table, along: str) -> Any:
    """Return a figure with a plot for each data set, in it a line for each label of the other axes.

    A line joins the means over seeds, its band is one sample standard deviation (none for one seed); the best row
    without training is dotted. The x-axis is logarithmic if its positive values span a factor of ten or more.
    """
    from matplotlib.patches import Patch

    plots: dict[str, dict[str, dict[float, Entry]]] = {}
    best: dict[str, Entry] = {}
    for (row, column), entry in table.entries.items():
        labels = dict(zip((*table.header, table.layout.columns), (*row, column), strict=True))
        x, dataset = float(labels.pop(along)), table.datasets[row, column]
        name = ", ".join(label for axis, label in labels.items() if axis != "dataset") or "trained"
        plots.setdefault(dataset, {}).setdefault(name, {})[x] = entry
        for other in table.references[row, column].values():
            best[dataset] = max(best.get(dataset, other), other, key=merit)
    several = len(plots) > 1
    figure, axes = panels(len(plots), 3.2 if several else 4.4, 2.3)  # the legend needs the width
    figure.suptitle(f"{table.evaluator} by {along}", **_TITLE)
    for axis, (dataset, by_name) in zip(axes, plots.items(), strict=True):
        for number, (name, entries) in enumerate(by_name.items()):
            points = {x: [score.mean for score in entry.scores] for x, entry in sorted(entries.items()) if entry.scores}
            mean = np.array([np.mean(seeds) for seeds in points.values()])
            spread = np.array([sample_deviation(seeds) or 0.0 for seeds in points.values()])
            colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
            axis.plot([*points], mean, color=colour, marker=marker, ms=4, label=name)
            axis.fill_between([*points], mean - spread, mean + spread, color=colour, alpha=0.15, lw=0)
        if dataset in best and best[dataset].scores:
            axis.axhline(best[dataset].mean, color=MUTED, lw=1.2, ls=":", label="best row without training")
        axis.set(title=dataset, xlabel=along, ylabel=metric_names(table))
        values = sorted({x for entries in by_name.values() for x in entries})
        if values[0] > 0 and values[-1] >= 10 * values[0]:
            axis.set_xscale("log")
            axis.minorticks_off()
        axis.set_xticks(values, [f"{x:g}" for x in values])
    handles, _ = axes[0].get_legend_handles_labels()
    if any(entry.std is not None for entry in table.entries.values()):
        handles.append(Patch(facecolor=MUTED, alpha=0.25, label="± sample standard deviation over seeds"))
    figure.legend(handles=handles, loc="outside lower left", ncols=3 if several else 2)
    return figure
