"""Draw bar charts of a table's scores, one plot per column of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcl.report.style import INK, MUTED, TRAINED, UNTRAINED, panels, style


@dataclass(frozen=True)
class Bar:
    """The mean scores in one cell of a table: of the trained encoder by finished seed, and of rows without training."""

    seeds: Sequence[float]
    best: float | None = None
    untrained: float | None = None


@style()
def bars(columns: Mapping[str, Sequence[Bar]], rows: Sequence[str], title: str, label: str = "accuracy in %") -> Any:
    """Return a figure whose bars extend from the best score without training to the trained encoder's mean score.

    The length of a bar is the gain, so the axis need not start at zero. Dots are seeds, whiskers show one standard
    deviation over seeds. `columns` maps the label of each plot to one `Bar` per row.
    """
    from matplotlib.lines import Line2D

    wide = max(map(len, rows), default=0)
    across = 2 if len(columns) == 4 else 3
    width = max(2.7 + 0.055 * min(wide, 40), 4.2 if len(columns) == 1 else 0)  # the legend needs room
    figure, axes = panels(len(columns), width, max(1.7, 1.15 + 0.28 * len(rows)), across)
    figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=10)
    for number, (axis, (column, entries)) in enumerate(zip(axes, columns.items(), strict=True)):
        for place, bar in enumerate(entries):
            _draw(axis, place, bar)
        axis.set(title=column, xlabel=label, ylim=(len(rows) - 0.4, -0.6))
        shown = [row if len(row) <= 40 else f"{row[:39]}…" for row in rows]
        axis.set_yticks(range(len(rows)), shown if number % across == 0 else [""] * len(rows))
        axis.grid(False, axis="y")
        axis.use_sticky_edges = False
        axis.margins(x=0.08)
    marks = [
        Line2D([], [], color=UNTRAINED, lw=1.6, label="best row without training"),
        Line2D([], [], color=MUTED, lw=1.6, ls=":", label="untrained encoder"),
        Line2D([], [], ls="", color=TRAINED, marker="|", ms=11, mew=2.2, label="trained, mean of the seeds"),
        Line2D([], [], ls="", color=INK, alpha=0.55, marker="o", ms=3, label="a seed"),
        Line2D([], [], color=TRAINED, lw=1.6, label="± standard deviation over seeds"),
    ]
    figure.legend(handles=marks, loc="outside lower left", ncols=5 if min(len(columns), across) == 3 else 2)
    return figure


def _draw(axis: Any, place: int, bar: Bar) -> None:
    for score, colour, line in ((bar.untrained, MUTED, ":"), (bar.best, UNTRAINED, "-")):
        if score is not None:
            axis.plot([score] * 2, [place - 0.5, place + 0.5], color=colour, ls=line, lw=1.6, zorder=2)
    if not bar.seeds:
        where: dict[str, Any] = {"transform": axis.get_yaxis_transform(), "va": "center", "ha": "center"}
        axis.text(0.5, place, "not finished", color=MUTED, **where)
        return
    mean, deviation = float(np.mean(bar.seeds)), float(np.std(bar.seeds))
    if bar.best is not None:
        axis.barh(place, mean - bar.best, left=bar.best, color=TRAINED, alpha=0.35, height=0.56, zorder=1)
    axis.errorbar(mean, place, xerr=deviation, color=TRAINED, lw=1.6, capsize=3, marker="|", ms=11, mew=2.2, zorder=4)
    axis.scatter(bar.seeds, [place] * len(bar.seeds), s=8, color=INK, alpha=0.55, linewidths=0, zorder=5)
    axis.text(1.02, place, f"{mean:.1f}", transform=axis.get_yaxis_transform(), va="center")
