"""Draw histograms of the cosines of positives and negatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphcl.report.style import COLOURS, panel, picture

KINDS = {
    "positive": ("positives", COLOURS[1], "-"),
    "negative": ("negatives", COLOURS[0], "-"),
    "same_class": ("negatives of the same class", COLOURS[2], "--"),
}
"""Name of a histogram in `snapshot` -> its label, colour and line style."""


@picture
def similarities(title: str, edges: np.ndarray, counts: Mapping[str, np.ndarray], top: float | None = None) -> Any:
    """Return a figure of the densities of cosines: one curve of area 1 per kind of pair.

    Args:
        title: title of the figure.
        edges: edges of the K bins `[K + 1]`.
        counts: key of `KINDS` -> number of pairs in each bin `[K]`.
        top: upper limit of the density axis; pass the same value for figures that are to be compared.
    """
    figure, axis = panel(title)
    for kind, (_, colour, line) in KINDS.items():
        if kind in counts and counts[kind].sum():
            axis.stairs(density(counts[kind], edges), edges, color=colour, lw=1.6, ls=line, zorder=3)
            axis.stairs(density(counts[kind], edges), edges, color=colour, alpha=0.13, fill=True)
    axis.set(xlim=(-1.02, 1.02), ylim=(0, top), xlabel="cosine of two projections", ylabel="density")
    axis.set_xticks((-1, -0.5, 0, 0.5, 1))
    return figure


def density(counts: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the density of a histogram: `counts` per bin, scaled to an area of 1."""
    return np.asarray(counts / (counts.sum() * np.diff(edges)))
