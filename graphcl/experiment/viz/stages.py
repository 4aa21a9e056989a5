"""Draw a bar chart of the wall time of each stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphcl.experiment.viz.style import TRAINED, panel, picture


@picture
def stages(title: str, seconds: Mapping[str, float]) -> Any:
    """Return a figure with one bar per stage of `seconds`, labelled with the stage's seconds."""
    figure, axis = panel(title, height=0.75 + 0.27 * len(seconds))
    bars = axis.barh(range(len(seconds)), list(seconds.values()), color=TRAINED, height=0.6)
    axis.bar_label(
        bars, [f"{value:.2f} s" if value < 10 else f"{value:.0f} s" for value in seconds.values()], padding=3
    )
    axis.set_yticks(range(len(seconds)), list(seconds))
    axis.invert_yaxis()
    axis.margins(x=0.22)
    axis.grid(False, axis="y")
    axis.set_xlabel("seconds")
    return figure
