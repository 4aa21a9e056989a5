"""Draw each seed's scores before and after training, and each seed's gain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcl.evaluate import FoldScores, metric_name, paired_gain
from graphcl.report.style import MUTED, TRAINED, UNTRAINED, panel, style


@style()
def gains(title: str, untrained: Sequence[FoldScores], trained: Sequence[FoldScores]) -> Any:
    """Return a figure with each seed's untrained and trained mean score joined by a line; faint dots are folds."""
    figure, axis = panel(title, height=2.6)
    for before, after in zip(untrained, trained, strict=True):
        axis.plot([0, 1], [before.mean, after.mean], color=MUTED, lw=1, zorder=3)
    for place, scores, colour in ((0, untrained, UNTRAINED), (1, trained, TRAINED)):
        # small folds often have equal scores, so dots are offset sideways to keep all visible
        folds = np.concatenate([score.accuracy for score in scores])
        axis.scatter(place + _offsets(folds, 0.035), folds, s=9, color=colour, alpha=0.35, linewidths=0)
        means = [score.mean for score in scores]
        axis.scatter([place] * len(means), means, s=34, color=colour, zorder=4)
        side, align = (-0.16, "right") if place == 0 else (0.16, "left")
        axis.text(place + side, float(np.mean(means)), f"{np.mean(means):.2f}", ha=align, va="center", weight="bold")
    axis.set(xlim=(-0.75, 1.75), ylabel=metric_label(trained[0].metric))
    axis.set_xticks((0, 1), ("untrained", "trained"))
    axis.grid(False, axis="x")
    return figure


@style()
def gain_by_seed(title: str, untrained: Sequence[FoldScores], trained: Sequence[FoldScores]) -> Any:
    """Return a figure of each seed's gain, with the mean gain and a band of one standard deviation."""
    figure, axis = panel(title, height=2.6)
    gained = np.array([paired_gain([after], [before]).mean for after, before in zip(trained, untrained, strict=True)])
    mean, deviation = gained.mean(), gained.std()
    axis.axhline(0, color=MUTED, lw=1)
    if len(gained) > 1:
        axis.axhspan(mean - deviation, mean + deviation, color=TRAINED, alpha=0.13, lw=0)
        axis.axhline(mean, color=TRAINED, lw=1.4)
    axis.vlines(range(len(gained)), 0, gained, color=TRAINED, lw=1, alpha=0.5)
    axis.scatter(range(len(gained)), gained, s=34, color=TRAINED, zorder=4)
    axis.set_xticks(range(len(gained)), [str(score.seed) for score in trained])
    axis.set(xlim=(-0.6, len(gained) - 0.4), xlabel="seed", ylabel="gain")
    axis.grid(False, axis="x")
    return figure


def metric_label(metric: str) -> str:
    """Return the axis label for `metric`, a key of `METRICS`."""
    return metric_name(metric).replace(" %", " in %")


def _offsets(values: np.ndarray, step: float) -> np.ndarray:
    """Return horizontal offsets that separate equal `values`, by `step`, or by less if many values are equal."""
    order = np.zeros(len(values))
    for value in np.unique(values.round(6)):
        (same,) = np.nonzero(values.round(6) == value)
        order[same] = np.arange(len(same)) - (len(same) - 1) / 2
    widest = max(1.0, 2 * np.abs(order).max())
    return np.asarray(order * min(step, 0.5 / widest))
