"""Logs of other programs, each one optional: TensorBoard, Weights & Biases, MLflow.

A tracker is a callback of `train`, and `python -m graphcl.run --track tensorboard` makes one for every seed. What a run
keeps by itself, `metrics.jsonl` and `metrics.csv`, does not hang on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from graphcl.experiment.tracking.mlflow import MLflow
from graphcl.experiment.tracking.tensorboard import TensorBoard
from graphcl.experiment.tracking.tracker import Tracker, say_lost
from graphcl.experiment.tracking.wandb import WandB

__all__ = ["TRACKERS", "MLflow", "TensorBoard", "Tracker", "WandB", "check_trackers", "tracking"]

TRACKERS: dict[str, type[Tracker]] = {each.name: each for each in (TensorBoard, WandB, MLflow)}


def check_trackers(names: Sequence[str]) -> None:
    """Refuse a tracker whose library is not installed, before any work is done.

    Raises:
        InputError: with the command that installs it.
    """
    for name in names:
        TRACKERS[name].library()


@contextmanager
def tracking(
    names: Sequence[str], folder: Path, seed: int = 0, settings: Mapping[str, Any] | None = None
) -> Iterator[list[Tracker]]:
    """The trackers of a seed, closed at the end of the block; one that cannot open its log is said and left out."""
    with ExitStack() as stack:
        trackers: list[Tracker] = []
        for name in names:
            try:
                trackers.append(stack.enter_context(TRACKERS[name](folder, seed, settings)))
            except Exception as error:  # of whatever kind: a server is no reason not to train
                say_lost(name, error)
        yield trackers
