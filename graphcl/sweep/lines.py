"""Draw the scores of a sweep over its one setting that is a number, such as a temperature or `pair_share`."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcl.evaluate.scores import sample_deviation
from graphcl.report.style import COLOURS, MARKERS, MUTED, panels, style
from graphcl.sweep.table import Entry, Table, merit
from graphcl.sweep.texts import metric_names


def numeric_axis(table: Table) -> str | None:
    """Return the only axis of a table whose labels are two or more numbers; None if there is none, or several."""
    axes = dict(zip(table.header, zip(*table.rows, strict=True), strict=True)) if table.header else {}
    axes[table.layout.columns] = tuple(table.columns)
    found = [axis for axis, labels in axes.items() if len({*labels}) > 1 and all(map(_is_number, labels))]
    return found[0] if len(found) == 1 else None


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
        where = dict(zip((*table.header, table.layout.columns), (*row, column), strict=True))
        x, dataset = float(where.pop(along)), table.datasets[row, column]
        label = ", ".join(each for axis, each in where.items() if axis != "dataset") or "trained"
        plots.setdefault(dataset, {}).setdefault(label, {})[x] = entry
        for other in table.references[row, column].values():
            best[dataset] = max(best.get(dataset, other), other, key=merit)
    several = len(plots) > 1
    figure, axes = panels(len(plots), 3.2 if several else 4.4, 2.3)  # the legend needs the width
    figure.suptitle(f"{table.evaluator} by {along}", x=0.01, ha="left", weight="bold", fontsize=10)
    for axis, (dataset, named) in zip(axes, plots.items(), strict=True):
        for number, (label, entries) in enumerate(named.items()):
            _line(axis, entries, COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)], label)
        if dataset in best and best[dataset].scores:
            axis.axhline(best[dataset].mean, color=MUTED, lw=1.2, ls=":", label="best row without training")
        axis.set(title=dataset, xlabel=along, ylabel=metric_names(table))
        values = [x for entries in named.values() for x in entries]
        if min(values) > 0 and max(values) >= 10 * min(values):
            axis.set_xscale("log")
            axis.minorticks_off()
        axis.set_xticks(sorted({*values}), [f"{x:g}" for x in sorted({*values})])
    handles, _ = axes[0].get_legend_handles_labels()
    if any(entry.std is not None for entry in table.entries.values()):
        handles.append(Patch(facecolor=MUTED, alpha=0.25, label="± sample standard deviation over seeds"))
    figure.legend(handles=handles, loc="outside lower left", ncols=3 if several else 2)
    return figure


def _line(axis: Any, entries: dict[float, Entry], colour: str, marker: str, label: str) -> None:
    done = [(x, [score.mean for score in entry.scores]) for x, entry in sorted(entries.items()) if entry.scores]
    x = [each for each, _ in done]
    mean = np.array([np.mean(seeds) for _, seeds in done])
    deviation = np.array([sample_deviation(seeds) or 0.0 for _, seeds in done])
    axis.plot(x, mean, color=colour, marker=marker, ms=4, label=label)
    axis.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.15, lw=0)


def _is_number(label: str) -> bool:
    try:
        return bool(np.isfinite(float(label)))
    except ValueError:
        return False
