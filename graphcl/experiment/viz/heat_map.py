"""Accuracies over two numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphcl.experiment.viz.style import PAPER, panels, picture


@picture
def heat_map(
    tables: Mapping[str, np.ndarray],
    xs: Sequence[str],
    ys: Sequence[str],
    axes: tuple[str, str],
    title: str,
    untrained: Mapping[str, float | None] | None = None,
) -> Any:
    """A coloured table for each label, each over a range of its own, with the accuracy written into each cell.

    Args:
        tables: accuracies in percent `[len(ys), len(xs)]` by label; NaN where nothing is finished.
        xs: labels along.
        ys: labels down.
        axes: what they are of: along, down.
        title: over all plots.
        untrained: mean accuracy of the untrained encoder by label, where that is one number.
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
        told = "" if below is None else f"\nuntrained {below:.1f}"
        axis.set_title(f"{label}{told}")
        axis.set_xticks(range(len(xs)), xs)
        axis.set_yticks(range(len(ys)), ys)
        axis.set_xlabel(axes[0])
        axis.set_ylabel(axes[1])
        axis.grid(False)
        for side in axis.spines.values():
            side.set_visible(False)
    return figure
