"""Draw measured against predicted numbers of a test part."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcl.evaluate.scores import NUMBERS
from graphcl.report.run_files import Run
from graphcl.report.style import MUTED, TRAINED, panel, style

PANELS = 8
"""Largest number of figures, as a run may have hundreds of targets."""


def predicted_section(run: Run) -> dict[str, Any] | None:
    """Return the figures of the first seed's predictions of numbers, and what they leave out; None without any."""
    scores = run.result.get("scores", {})
    rows = [row for row in run.predictions if scores.get(row["eval"], {}).get("metric") in NUMBERS]
    if not rows:
        return None
    seed, names = rows[0]["seed"], [name for name in rows[0] if f"{name}_predicted" in rows[0]]
    figures = []
    for evaluator in dict.fromkeys(row["eval"] for row in rows):
        mine = [row for row in rows if row["eval"] == evaluator and row["seed"] == seed]
        for name in names:
            known = [row for row in mine if row[name]]
            pairs = np.array([[float(row[name]), float(row[f"{name}_predicted"])] for row in known]).reshape(-1, 2)
            if len(pairs):
                label = f"{name} of {len(pairs)} test graphs, measured against predicted by {evaluator}"
                figures.append((label, agreement(f"{name}, {evaluator}", *pairs.T)))
    return {"figures": figures[:PANELS], "seed": seed, "more": len(figures) - PANELS}


@style()
def agreement(title: str, measured: np.ndarray, predicted: np.ndarray) -> Any:
    """Return a scatter plot of measured and predicted numbers on equal axes, with the line where both are equal."""
    figure, axis = panel(title, height=3.5)
    low, high = float(min(measured.min(), predicted.min())), float(max(measured.max(), predicted.max()))
    pad = 0.05 * (high - low) or 1.0
    ends = low - pad, high + pad
    axis.plot(ends, ends, color=MUTED, lw=1)
    axis.plot(measured, predicted, "o", color=TRAINED, ms=3.6, mew=0, alpha=0.6)
    errors = predicted - measured
    text = f"RMSE {np.sqrt(np.mean(errors**2)):.3g}, MAE {np.abs(errors).mean():.3g}"
    if measured.std() > 0:
        text += f", R2 {1 - np.mean(errors**2) / measured.var():.2f}"
    axis.set(xlim=ends, ylim=ends)
    axis.set_xticks(axis.get_yticks())
    axis.set(xlim=ends, ylim=ends, xlabel=f"measured\n{text}", ylabel="predicted")
    axis.set_box_aspect(1)
    return figure
