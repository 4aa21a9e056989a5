"""A map of embeddings: a point a graph, by class."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcl.experiment.viz.style import COLOURS, MARKERS, MUTED, TRAINED, panel, picture

CLASSES = len(COLOURS) * len(MARKERS)
"""Classes that have a colour and a shape of their own; those beyond are grey."""


@picture
def embedding_map(title: str, points: np.ndarray, shares: np.ndarray, y: np.ndarray | None = None) -> Any:
    """Graphs on the plane of the first two principal components.

    Outliers beyond the outer 1 % are drawn on the border, so that the many are seen.

    Args:
        title: which encoder's.
        points: coordinates `[n, 2]`.
        shares: of the variance, of each component.
        y: classes `[n]`, counted from 0.
    """
    figure, axis = panel(title, height=2.9)
    low, high = np.percentile(points, [1, 99], axis=0)
    margin = 0.12 * (high - low) + 1e-9
    low, high = low - margin, high + margin
    inside = points.clip(low, high)
    for number in [None] if y is None else range(int(y.max()) + 1):
        mine = inside if number is None else inside[y == number]
        colour, marker = class_style(number)
        axis.plot(*mine.T, marker, color=colour, ms=3.2, mew=0, alpha=0.6)
    for axis_limits, bottom, top in zip((axis.set_xlim, axis.set_ylim), low, high, strict=True):
        pad = 0.02 * (top - bottom)
        axis_limits(bottom - pad, top + pad)
    axis.set_xlabel(f"component 1 ({shares[0]:.0%} of the variance)")
    axis.set_ylabel(f"component 2 ({shares[1]:.0%})")
    return figure


def class_style(number: int | None) -> tuple[str, str]:
    """Colour and shape of a class; grey dots beyond those that can be told apart."""
    if number is None:
        return TRAINED, "o"
    if number >= CLASSES:
        return MUTED, "o"
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
