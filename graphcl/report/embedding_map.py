"""Draw a scatter plot of the embeddings' first two principal components, coloured by class."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcl.report.style import COLOURS, MARKERS, MUTED, TRAINED, panel, style

CLASSES = len(COLOURS) * len(MARKERS)
"""Number of distinct combinations of colour and marker; further classes are drawn as grey dots."""


@style()
def embedding_map(title: str, points: np.ndarray, shares: np.ndarray, y: np.ndarray | None = None) -> Any:
    """Return a scatter plot of `points [n, 2]`, the first two principal components of embeddings with classes `y [n]`.

    Points far outside the 1st to 99th percentile of a component are moved to the border, so that outliers do not
    compress the other points. `shares [2]` is the fraction of the variance in each component.
    """
    figure, axis = panel(title, height=2.9)
    low, high = np.percentile(points, [1, 99], axis=0)
    margin = 0.12 * (high - low) + 1e-9
    low, high = low - margin, high + margin
    inside = points.clip(low, high)
    random = np.random.default_rng(0)
    # draw random portions of all classes in turn, so that no class covers the other classes
    for part in np.array_split(random.permutation(len(inside)), 12):
        mine = np.zeros(len(part)) if y is None else y[part]
        for number in random.permutation(np.unique(mine)):
            colour, marker = class_style(None if y is None else number)
            axis.plot(*inside[part][mine == number].T, marker, color=colour, ms=3.2, mew=0, alpha=0.7)
    pad = 0.02 * (high - low)
    (left, bottom), (right, top) = low - pad, high + pad
    axis.set(xlim=(left, right), ylim=(bottom, top))
    first, second = (f"component {i + 1} ({100 * share:.0f} %" for i, share in enumerate(shares))
    axis.set(xlabel=f"{first} of the variance)", ylabel=f"{second})")
    return figure


def class_style(number: int | None) -> tuple[str, str]:
    """Return the colour and marker of class `number`; None stands for graphs without labels."""
    if number is None:
        return TRAINED, "o"
    if number >= CLASSES:
        return MUTED, "o"
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
