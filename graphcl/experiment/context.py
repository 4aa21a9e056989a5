"""Hold what surrounds the training of one seed: ranks, checkpoints, clocks and logs, which by default do nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.distributed.launch import Ranks
from graphcl.distributed.ranks import across
from graphcl.errors import InputError
from graphcl.evaluate import FoldScores
from graphcl.loaders.order import WHOLE, Shard
from graphcl.methods import Method
from graphcl.training.checkpoint import Checkpoints
from graphcl.training.epoch import Epoch
from graphcl.training.state import Training

Scores = dict[str, dict[str, FoldScores]]
"""Evaluator -> row (see `graphcl.references.rows`) -> score."""
OnFold = Callable[[str, int, int], object]
"""Callback with the arguments "EVALUATOR, ROW", number of finished inner folds, number of all inner folds."""
_RANK_SEEDS = 2**41
"""Difference between the seeds of rank r and rank r + 1."""


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


class Context:
    """Surroundings of one seed: this process alone, without checkpoints and logs. Hooks that override call these first.

    Args:
        ranks: ranks that train together; default: this process alone.
        checkpoints: checkpoints to write, and to resume from; default: none.
        workers: number of threads of the evaluators; default: one per core.
    """

    on_fold: OnFold | None = None

    def __init__(
        self, ranks: Ranks | None = None, checkpoints: Checkpoints | None = None, workers: int | None = None
    ) -> None:
        self.ranks, self.checkpoints, self.workers, self.clock = ranks or Ranks(), checkpoints, workers, Clock()

    def on_embeddings(self, when: str, method: Method, whole: Iterable[Batch], h: Tensor | None) -> None:
        """Record the time of embedding. Override to handle the embeddings `h [n, H]` `before` and `after` training.

        `whole` is the loader of all graphs; `h` is None if the untrained embeddings are not computed.
        """
        self.clock.lap("embed")

    def on_step(self, training: Training) -> None:
        """Override to handle a finished step."""

    def on_epoch(self, epoch: Epoch) -> None:
        """Override to handle a finished epoch."""

    def on_scores(self, scores: Scores) -> None:
        """Record the time of the evaluation. Override to handle the scores."""
        self.clock.lap("evaluate")

    def on_predicted(self, name: str, rows: np.ndarray, predicted: np.ndarray) -> None:
        """Override to handle the predictions of the trained encoder for the test `rows` by the evaluator `name`."""

    def on_slow_scoring(self, expected: float, trained: float) -> None:
        """Override to tell that scoring will take `expected` seconds, more than the `trained` seconds of training."""

    def draws(self, method: Method, seed: int, device: torch.device) -> tuple[Shard, torch.Generator, torch.Generator]:
        """Return this rank's shard of each batch, the generator of the order, and that of the views on `device`.

        The order of the graphs is equal on all ranks, but the views of different graphs differ.
        """
        shard = self._shard(method)
        order = torch.Generator().manual_seed(2 * seed)
        return shard, order, torch.Generator(device).manual_seed(2 * seed + 1 + shard[0] * _RANK_SEEDS)

    @contextmanager
    def training(self, method: Method, seed: int, device: torch.device) -> Iterator[None]:
        """Within the block, losses see the batches of all ranks, and torch's global generators start from `seed`."""
        rank, _ = self._shard(method)
        forked = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
        with across(self.ranks.process_group), forked:
            torch.manual_seed(seed + rank * _RANK_SEEDS)  # for dropout
            try:
                yield
            except RuntimeError as error:
                if not torch.are_deterministic_algorithms_enabled() or "deterministic" not in str(error):
                    raise
                operation = str(error).partition(".")[0]
                raise InputError(f"{operation}; choose another loss or method, or drop --deterministic.") from None
        self.clock.lap("train")

    def _shard(self, method: Method) -> Shard:
        """Return this rank's shard of each batch; a method that divides the nodes itself takes whole batches."""
        return WHOLE if method.divides_nodes else (self.ranks.rank, self.ranks.size)
