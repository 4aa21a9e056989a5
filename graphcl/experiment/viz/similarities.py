"""How similar positives and negatives are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphcl.experiment.viz.style import COLOURS, panel, picture

KINDS = {
    "positive": ("positives", COLOURS[1], "-"),
    "negative": ("negatives", COLOURS[0], "-"),
    "same_class": ("negatives of the same class", COLOURS[2], "--"),
}
"""What each histogram holds, in which colour and line."""


@picture
def similarities(title: str, edges: np.ndarray, counts: Mapping[str, np.ndarray], top: float | None = None) -> Any:
    """Densities over the cosine, each of area 1.

    Args:
        title: at which moment.
        edges: of the bins `[K + 1]`.
        counts: by kind, see `KINDS`: how many pairs lie in each bin `[K]`.
        top: upper end of the density axis, the same for pictures to be compared.
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
    """Counts brought to an area of 1."""
    return np.asarray(counts / (counts.sum() * np.diff(edges)))
