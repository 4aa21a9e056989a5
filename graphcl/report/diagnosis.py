"""Draw what carries a score: the scores under controls, and the gains with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphcl.evaluate.scores import Interval
from graphcl.report.style import GRID, INK, MUTED, TRAINED, UNTRAINED, panels, style


@style()
def diagnosis(
    title: str,
    scores: Mapping[str, tuple[float, float | None]],
    none: float,
    gains: Mapping[str, Interval],
    label: str,
) -> Any:
    """Return a figure: on the left a bar of each control's score, on the right the gains that answer the questions.

    Args:
        title: title of the figure.
        scores: control -> scores of the best row without training and of the trained row.
        none: score without information, where the bars start.
        gains: question -> gain; a gain that does not hold zero is drawn in colour.
        label: name of the score.
    """
    from matplotlib.lines import Line2D

    figure, (left, right) = panels(2, 4.6, max(2.4, 0.9 + 0.3 * max(len(scores), len(gains))))
    figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=10, wrap=True)
    offset: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
    for place, (best, trained) in enumerate(scores.values()):
        left.barh(place, best - none, left=none, color=UNTRAINED, alpha=0.75, height=0.6)
        left.annotate(f"{best:.1f}", (max(best, trained or best, none), place), **offset, color=INK)
        if trained is not None:
            left.plot([trained] * 2, [place - 0.38, place + 0.38], color=TRAINED, lw=2.2)
    left.axvline(none, color=MUTED, lw=1)
    left.set(title="what is left of the graphs", xlabel=label)
    for place, gain in enumerate(gains.values()):
        colour = {1: TRAINED, 0: MUTED, -1: UNTRAINED}[gain.sign]
        right.plot([gain.low, gain.high], [place] * 2, color=colour, lw=2.2)
        right.plot(gain.mean, place, "o", color=colour, ms=5)
        text = f"{gain.mean:+.1f}{'' if gain.sign else ', not shown'}"
        right.annotate(text, (gain.high, place), **offset, color=INK if gain.sign else MUTED)
    right.axvline(0, color=INK, lw=1)
    right.set(title="gain in points, 99 % interval")
    right.margins(x=0.3)
    for axis, names in ((left, scores), (right, gains)):
        axis.set_yticks(range(len(names)), list(names))
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.grid(False, axis="y")
        axis.grid(True, axis="x", color=GRID)
    left.margins(x=0.14)
    marks = [
        Line2D([], [], color=UNTRAINED, lw=6, alpha=0.75, label="best row without training"),
        Line2D([], [], ls="", color=TRAINED, marker="|", ms=11, mew=2.2, label="trained encoder"),
    ]
    figure.legend(handles=marks, loc="outside lower left", ncols=2)
    return figure
