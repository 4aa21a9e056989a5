"""How much a loss makes of a negative, by its similarity."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcl.experiment.viz.similarities import density
from graphcl.experiment.viz.style import COLOURS, MUTED, TRAINED, panel, picture


@picture
def weights(title: str, edges: np.ndarray, negatives: np.ndarray, moments: np.ndarray, label: str) -> Any:
    """The mean over pairs of each bin with a band of one deviation, over the histogram of the negatives.

    Args:
        title: what is weighed.
        edges: bins of the cosine `[K + 1]`.
        negatives: how many lie in each bin `[K]`.
        moments: number, sum and sum of squares of the weights in each bin `[3, K]`.
        label: of the weights' axis.
    """
    figure, axis = panel(title)
    mean, deviation = mean_weight(moments)
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


def mean_weight(moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation in each bin; NaN where a bin has too few pairs to speak of."""
    number, total, squares = moments
    enough = number >= max(5, 1e-4 * number.sum())
    number = np.where(enough, number, np.nan)
    mean = total / number
    return mean, np.sqrt((squares / number - mean**2).clip(min=0))
