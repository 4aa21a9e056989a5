"""Draw the weights that a loss gives to negatives, by cosine."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcl.report.similarities import density
from graphcl.report.style import COLOURS, MUTED, TRAINED, panel, picture


@picture
def weights(title: str, edges: np.ndarray, negatives: np.ndarray, sums: np.ndarray, label: str) -> Any:
    """Return a figure of the mean weight of negatives by cosine, with a band of one standard deviation.

    The density of the negatives is drawn in the background.

    Args:
        title: title of the figure.
        edges: edges of the K bins for cosines `[K + 1]`.
        negatives: number of negatives in each bin `[K]`.
        sums: number, sum and sum of squares of the weights in each bin `[3, K]`.
        label: label of the weight axis.
    """
    figure, axis = panel(title)
    mean, deviation = mean_weight(sums)
    middle = (edges[1:] + edges[:-1]) / 2
    behind = axis.twinx()
    behind.stairs(density(negatives, edges), edges, color=MUTED, alpha=0.22, fill=True)
    behind.set_axis_off()
    axis.axhline(1, color=MUTED, lw=0.8, ls=":")
    axis.fill_between(middle, (mean - deviation).clip(min=0), mean + deviation, color=TRAINED, alpha=0.18, lw=0)
    axis.plot(middle, mean, color=COLOURS[0], lw=2)
    axis.set_zorder(behind.get_zorder() + 1)
    axis.set(xlim=(-1.02, 1.02), ylim=(min(0, np.nanmin(mean)), None), xlabel="cosine of a negative", ylabel=label)
    axis.set_xticks((-1, -0.5, 0, 0.5, 1))
    return figure


def mean_weight(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and standard deviation of the weights in each bin, see `weights`; NaN for bins with few pairs."""
    number, total, squares = sums
    enough = number >= max(5, 1e-4 * number.sum())
    number = np.where(enough, number, np.nan)
    mean = total / number
    return mean, np.sqrt((squares / number - mean**2).clip(min=0))
