"""Optional trackers, which log runs to TensorBoard, Weights & Biases or MLflow; `--track` creates one per seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from graphcl.experiment.record.tracking.tracker import MLflow, TensorBoard, Tracker, WandB, attempt

__all__ = ["TRACKERS", "MLflow", "TensorBoard", "Tracker", "WandB", "tracking"]

TRACKERS: dict[str, type[Tracker]] = {each.name: each for each in (TensorBoard, WandB, MLflow)}


@contextmanager
def tracking(names: Sequence[str], folder: Path, seed: int, settings: Mapping[str, Any]) -> Iterator[list[Tracker]]:
    """Yield the opened trackers of a seed, and close them afterwards; trackers that fail to open are skipped."""
    trackers: list[Tracker] = []
    with ExitStack() as stack:

        def start(name: str) -> None:
            trackers.append(stack.enter_context(TRACKERS[name](folder, seed, settings)))

        for name in names:
            attempt(name, partial(start, name))
        yield trackers
