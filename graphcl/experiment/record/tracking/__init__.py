"""Optional trackers, which log runs to TensorBoard, Weights & Biases or MLflow.

A tracker is a callback of `train`. `python -m graphcl.run --track tensorboard` creates one for every seed. The run
folder's `metrics.jsonl` and `metrics.csv` are written in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from graphcl.experiment.record.tracking.mlflow import MLflow
from graphcl.experiment.record.tracking.tensorboard import TensorBoard
from graphcl.experiment.record.tracking.tracker import Tracker, warn_failed
from graphcl.experiment.record.tracking.wandb import WandB

__all__ = ["TRACKERS", "MLflow", "TensorBoard", "Tracker", "WandB", "check_trackers", "tracking"]

TRACKERS: dict[str, type[Tracker]] = {each.name: each for each in (TensorBoard, WandB, MLflow)}


def check_trackers(names: Sequence[str]) -> None:
    """Raise InputError if a tracker's library is not installed; the message gives the command that installs it."""
    for name in names:
        TRACKERS[name].library()


@contextmanager
def tracking(
    names: Sequence[str], folder: Path, seed: int = 0, settings: Mapping[str, Any] | None = None
) -> Iterator[list[Tracker]]:
    """Yield the opened trackers of a seed, and close them afterwards; trackers that fail to open are skipped."""
    with ExitStack() as stack:
        trackers: list[Tracker] = []
        for name in names:
            try:
                trackers.append(stack.enter_context(TRACKERS[name](folder, seed, settings)))
            except Exception as error:  # an unreachable server must not stop training
                warn_failed(name, error)
        yield trackers
