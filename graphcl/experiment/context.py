"""Hold what surrounds the training of one seed: ranks, checkpoints, clocks and logs, which by default do nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from graphcl.distributed.launch import Group
from graphcl.distributed.ranks import across
from graphcl.errors import InputError
from graphcl.evaluate import FoldScores
from graphcl.loaders.order import WHOLE, Shard
from graphcl.methods import Method
from graphcl.training.checkpoint import Checkpoints
from graphcl.training.epoch import Epoch

Scores = dict[str, dict[str, FoldScores]]
"""Evaluator -> row (see `ROWS`) -> score."""
OnFold = Callable[[str, int, int], object]
"""Callback with the arguments "EVALUATOR, ROW", number of finished inner folds, number of all inner folds."""
_RANK_SEEDS = 2**41
"""Difference between the seeds of rank r and rank r + 1."""


class Clock:
    """Stopwatch that adds up the wall time of each stage, in seconds.

    Example:
        >>> clock = Clock()
        >>> clock.lap("load")
        >>> list(clock.seconds)
        ['load']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Add the time since the previous lap to the time of `stage`."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


class Context:
    """Surroundings of one seed: this process alone, without checkpoints and logs. Subclasses override the hooks.

    Args:
        group: ranks that train together; default: this process alone.
        checkpoints: checkpoints to write, and to resume from; default: none.
        workers: number of threads of the evaluators; default: one per core.
    """

    on_fold: OnFold | None = None

    def __init__(
        self, group: Group | None = None, checkpoints: Checkpoints | None = None, workers: int | None = None
    ) -> None:
        self.group, self.checkpoints, self.workers, self.clock = group or Group(), checkpoints, workers, Clock()

    def before_training(self, method: Method, h: Tensor | None) -> None:
        """Handle the start of training; `h [n, H]` are the untrained embeddings, None if they are not computed."""

    def on_epoch(self, epoch: Epoch) -> None:
        """Handle a finished epoch."""

    def after_training(self, method: Method, h: Tensor) -> None:
        """Handle the end of training; `h [n, H]` are the trained embeddings."""

    def on_scores(self, scores: Scores) -> None:
        """Handle the scores: evaluator -> row -> score."""

    def start_training(self, method: Method, h: Tensor | None) -> None:
        """Call `before_training`, and record the time of the stages."""
        self.clock.lap("embed")
        self.before_training(method, h)
        self.clock.lap("report")

    def end_training(self, method: Method, h: Tensor) -> None:
        """Call `after_training`, and record the time of the stages."""
        self.clock.lap("embed")
        self.after_training(method, h)
        self.clock.lap("report")

    def end(self, scores: Scores) -> None:
        """Call `on_scores`, and record the time of the stages."""
        self.clock.lap("evaluate")
        self.on_scores(scores)

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
        with ExitStack() as stack:
            stack.enter_context(across(self.group.process_group))
            stack.enter_context(reproducible(seed + rank * _RANK_SEEDS, device))
            stack.enter_context(_one_line_for_nondeterministic())
            yield
        self.clock.lap("train")

    def _shard(self, method: Method) -> Shard:
        """Return this rank's shard of each batch; a method that divides the nodes itself takes whole batches."""
        return WHOLE if method.divides_nodes else (self.group.rank, self.group.size)


@contextmanager
def reproducible(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators (used by dropout) within the block, and restore their state afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def _one_line_for_nondeterministic() -> Iterator[None]:
    """Convert PyTorch's error about an operation without a deterministic implementation into an InputError."""
    try:
        yield
    except RuntimeError as error:
        if not torch.are_deterministic_algorithms_enabled() or "deterministic" not in str(error):
            raise
        operation = str(error).partition(".")[0]
        raise InputError(f"{operation}; choose another loss or method, or drop --deterministic.") from None
