"""Define what a run hands out while a seed trains: times, logs, progress, checkpoints; by default, nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from graphcl.config import Config
from graphcl.evaluate import FoldScores
from graphcl.models.contrastive import ContrastiveModel
from graphcl.system.signals import Stop
from graphcl.training.checkpoint import Checkpoints
from graphcl.training.epoch import Epoch
from graphcl.training.state import Training

Scores = dict[str, dict[str, FoldScores]]
"""Evaluator -> row (see `graphcl.references.rows`) -> score."""
OnFold = Callable[[str, int, int], object]
"""Callback with the arguments "EVALUATOR, ROW", number of finished inner folds, number of all inner folds."""


class Clock:
    """Stopwatch that adds up the wall time of each stage, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Add the time since the previous lap to the time of `stage`."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


@dataclass
class SeedResult:
    """Result of one seed.

    Attributes:
        model: trained model.
        history: one `Epoch` per epoch.
        h: embeddings `[n, H]` of all graphs by the trained encoder.
        y: labels or targets of the graphs, or None.
        scores: evaluator -> row, see `graphcl.references.rows` -> score; empty if the graphs have no labels.
        epoch_scores: epoch -> evaluator -> score of the encoder at that epoch, every `score_every` epochs.
        seconds: stage -> wall time in seconds.
    """

    model: ContrastiveModel
    history: list[Epoch]
    h: Tensor
    y: Tensor | None
    scores: Scores
    epoch_scores: dict[int, dict[str, FoldScores]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class Output:
    """Hooks of a run and its trials, which do nothing but take the time and write checkpoints, if there are settings.

    `graphcl.experiment.record.output.RunOutput` writes the run folder; ranks other than 0 have this class.

    Args:
        config: settings of a run, which decide when checkpoints are written; default: none are.
        workers: number of threads of the evaluators; default: one per core.

    Attributes:
        path: the run folder; None without.
        rows: names of the rows to score.
        unfinished: seeds that are not finished yet.
        checkpoints: checkpoints to write, and to resume from, of the present seed.
        clock: times of the present seed.
    """

    path: Path | None = None
    rows: tuple[str, ...] = ()
    unfinished: tuple[int, ...] = ()
    checkpoints: Checkpoints | None = None
    on_fold: OnFold | None = None

    def __init__(self, config: Config | None = None, workers: int | None = None, quiet: bool = True) -> None:
        self.config, self.workers, self.clock, self.stop = config, workers, Clock(), Stop(quiet)

    def checkpoints_of(self, seed: int) -> Checkpoints | None:
        """Return the checkpoints of `seed`, which rank 0 reads and writes."""
        if self.config is None:
            return None
        folder = (self.path or Path("unused")) / "checkpoints" / f"seed-{seed}"
        return Checkpoints(folder, self.config.checkpoint.epochs, self.config.checkpoint.minutes, self.stop)

    @contextmanager
    def of_seed(self, seed: int) -> Iterator[None]:
        """Surround the trial of a seed; signals wait for its next checkpoint."""
        self.checkpoints, self.clock = self.checkpoints_of(seed), Clock()
        with self.stop.deferred():
            yield

    @contextmanager
    def training(self) -> Iterator[None]:
        """Surround training; record its time."""
        yield
        self.clock.lap("train")

    def on_embeddings(self, when: str, trial: Any, h: Any) -> None:
        """Handle the embeddings `h [n, H]` of all graphs `before` and `after` training a `Trial`; None without."""
        self.clock.lap("embed")

    def on_step(self, training: Training) -> None:
        """Handle a finished step."""

    def on_epoch(self, epoch: Epoch) -> None:
        """Handle a finished epoch."""

    def on_scores(self, scores: Scores) -> None:
        """Handle the scores; record the time of the evaluation."""
        self.clock.lap("evaluate")

    def on_predicted(self, name: str, rows: np.ndarray, predicted: np.ndarray) -> None:
        """Handle the predictions of the trained encoder for the test `rows` by the evaluator `name`."""

    def add(self, trial: Any, result: SeedResult) -> None:
        """Handle the result of a seed."""

    def finish(self) -> dict[str, Any]:
        """Finish the run, and return its summary, the content of `result.json`."""
        return {}
