"""Draw heat maps of the accuracy over two settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphcl.report.style import PAPER, panels, style


@style()
def heat_map(
    tables: Mapping[str, np.ndarray],
    xs: Sequence[str],
    ys: Sequence[str],
    axes: tuple[str, str],
    title: str,
    untrained: Mapping[str, float | None] | None = None,
) -> Any:
    """Return a figure with one heat map per table; each has its own colour range, and values printed in the cells.

    Args:
        tables: label -> accuracies in percent `[len(ys), len(xs)]`; NaN for an unfinished cell.
        xs: labels of the columns.
        ys: labels of the rows.
        axes: titles of the horizontal and the vertical axis.
        title: title above all plots.
        untrained: label -> mean accuracy of the untrained encoder; None if it differs between cells.
    """
    wide = max(0.8 + 0.095 * max(map(len, tables)), 1.2 + 0.5 * len(xs))
    figure, plots = panels(len(tables), wide, 1.4 + 0.32 * len(ys))
    figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=10)
    for axis, (label, values) in zip(plots, tables.items(), strict=True):
        known = values[~np.isnan(values)]
        low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
        axis.imshow(values, cmap="cividis", aspect="auto", vmin=low - 1e-6, vmax=high + 1e-6)
        for (y, x), value in np.ndenumerate(values):
            if not np.isnan(value):
                colour = PAPER if value < (low + high) / 2 else "#000000"
                axis.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=8, color=colour)
        below = (untrained or {}).get(label)
        heading = label if below is None else f"{label}\nuntrained {below:.1f}"
        axis.set(title=heading, xlabel=axes[0], ylabel=axes[1])
        axis.set_xticks(range(len(xs)), xs)
        axis.set_yticks(range(len(ys)), ys)
        axis.grid(False)
        axis.spines[:].set_visible(False)
    return figure
