"""Draw scores over a numeric setting, one plot per data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphcl.report.style import COLOURS, MARKERS, MUTED, panels, style

Points = Sequence[tuple[float, Sequence[float]]]
"""Values of the setting, each with the scores of its seeds."""


@style()
def score_lines(
    plots: Mapping[str, Mapping[str, Points]], best: Mapping[str, float | None], title: str, xlabel: str, ylabel: str
) -> Any:
    """Return a figure with a line through the mean scores and a band of one standard deviation over seeds.

    `plots` maps the label of each plot to its lines, label -> points; `best` to the best score without training, drawn
    dotted. The x-axis is logarithmic if all values are positive and the largest is ten times the smallest or more.
    """
    figure, axes = panels(len(plots), 3.2, 2.3)
    figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=10)
    values = [x for lines in plots.values() for points in lines.values() for x, _ in points]
    for axis, (name, lines) in zip(axes, plots.items(), strict=True):
        for number, (label, points) in enumerate(lines.items()):
            colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
            x = [each for each, _ in points]
            mean, deviation = (np.array([f(seeds) for _, seeds in points]) for f in (np.mean, np.std))
            axis.plot(x, mean, color=colour, marker=marker, ms=4, label=label)
            axis.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.15, lw=0)
        if (score := best.get(name)) is not None:
            axis.axhline(score, color=MUTED, lw=1.2, ls=":", label="best row without training")
        axis.set(title=name, xlabel=xlabel, ylabel=ylabel)
        if values and min(values) > 0 and max(values) >= 10 * min(values):
            axis.set_xscale("log")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=3)
    return figure
