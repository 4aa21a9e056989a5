"""Draw histograms of the cosines of positives and negatives, and the weights of negatives by cosine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphcl.report.run_files import EDGES
from graphcl.report.style import COLOURS, MUTED, TRAINED, panel, style

KINDS = {
    "positive": ("positives", COLOURS[1], "-"),
    "negative": ("negatives", COLOURS[0], "-"),
    "same_class": ("negatives of the same class", COLOURS[2], "--"),
}
"""Name of a histogram in `snapshot` -> its label, colour and line style."""


@style()
def similarities(title: str, counts: Mapping[str, np.ndarray], top: float | None = None) -> Any:
    """Return a figure of the densities of cosines: one curve of area 1 per kind of pair.

    `counts` maps keys of `KINDS` to the number of pairs in each bin of `EDGES`, `[K]`; `top` is the limit of the axis.
    """
    figure, axis = panel(title)
    for kind, (_, colour, line) in KINDS.items():
        if kind in counts and counts[kind].sum():
            axis.stairs(density(counts[kind]), EDGES, color=colour, lw=1.6, ls=line, zorder=3)
            axis.stairs(density(counts[kind]), EDGES, color=colour, alpha=0.13, fill=True)
    axis.set(xlim=(-1.02, 1.02), ylim=(0, top), xlabel="cosine of two projections", ylabel="density")
    axis.set_xticks((-1, -0.5, 0, 0.5, 1))
    return figure


@style()
def weights(title: str, negatives: np.ndarray, sums: np.ndarray, label: str) -> Any:
    """Return a figure of the mean weight of negatives by cosine, with a band of one standard deviation.

    The density of the negatives, `[K]` over the bins of `EDGES`, is drawn in the background. `sums [3, K]` holds the
    number of weights in each bin, their sum, and the sum of their squares.
    """
    figure, axis = panel(title)
    mean, deviation = mean_weight(sums)
    middle = (EDGES[1:] + EDGES[:-1]) / 2
    behind = axis.twinx()
    behind.stairs(density(negatives), EDGES, color=MUTED, alpha=0.22, fill=True)
    behind.set_axis_off()
    axis.axhline(1, color=MUTED, lw=0.8, ls=":")
    axis.fill_between(middle, (mean - deviation).clip(min=0), mean + deviation, color=TRAINED, alpha=0.18, lw=0)
    axis.plot(middle, mean, color=COLOURS[0], lw=2)
    axis.set_zorder(behind.get_zorder() + 1)
    axis.set(xlim=(-1.02, 1.02), ylim=(min(0, np.nanmin(mean)), None), xlabel="cosine of a negative", ylabel=label)
    axis.set_xticks((-1, -0.5, 0, 0.5, 1))
    return figure


def density(counts: np.ndarray) -> np.ndarray:
    """Return the density of a histogram over `EDGES`: `counts [K]` scaled to an area of 1."""
    return np.asarray(counts / (counts.sum() * np.diff(EDGES)))


def mean_weight(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and standard deviation of the weights in each bin, see `weights`; NaN for bins with few pairs."""
    number, total, squares = sums
    enough = number >= max(5, 1e-4 * number.sum())
    number = np.where(enough, number, np.nan)
    mean = total / number
    return mean, np.sqrt((squares / number - mean**2).clip(min=0))
