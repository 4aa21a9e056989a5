"""Show the progress of a run: bars on a terminal; otherwise, lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from graphcl.config import Config
from graphcl.system.progress import make_bar
from graphcl.system.signals import Stop
from graphcl.training.epoch import Epoch
from graphcl.training.state import Training


@contextmanager
def fold_bar(seed: int) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function `show(row, done, total)` that shows how many inner folds of a row are finished.

    Without a terminal, the first call prints a line.
    """
    bars: dict[str, Any] = {}

    def show(row: str, done: int, total: int) -> None:
        if not bars and not sys.stderr.isatty():
            print(f"seed {seed}: scoring ...", flush=True)
        if row not in bars:
            close()
            bars[row] = make_bar(f"seed {seed}: {row}", total, "fold", mininterval=0)
        bars[row].update(done - bars[row].n)

    def close() -> None:
        for bar in bars.values():
            bar.close()

    try:
        yield show
    finally:
        close()


class TrainingBar:
    """Progress of training: a bar over the graphs of all epochs on a terminal, else a line per epoch and every 30 s.

    If the output was closed, for example by `| head`, `stop.requested` is set.
    """

    def __init__(self, seed: int, config: Config, stop: Stop, has_batches: bool) -> None:
        self._seed, self._config, self._stop, self._has_batches = seed, config, stop, has_batches
        self._bar: Any = None

    def __enter__(self) -> TrainingBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def step(self, training: Training) -> None:
        """Show a finished step."""
        loader: Any = training.loader
        count = self._graphs_in(loader) if self._has_batches else (lambda steps: steps)
        if self._bar is None:
            total = training.settings.steps
            total = self._config.epochs * len(loader) if total is None else total
            self._bar = make_bar(
                "", count(total), "graph" if self._has_batches else "step", initial=count(training.steps - 1)
            )
        title = f"seed {self._seed}, epoch {training.epoch + 1}"
        self._bar.set_description_str(title, refresh=False)
        self._bar.update(count(training.steps) - self._bar.n)

    def _graphs_in(self, loader: Any) -> Callable[[int], int]:
        """Return a function from a number of steps to the number of graphs in them; a last batch may be smaller."""
        size, batches = self._config.batch_size, len(loader)
        graphs = getattr(getattr(loader, "batch_sampler", None), "num_graphs", batches * size)

        def count(steps: int) -> int:
            epochs, rest = divmod(steps, batches)
            return int(epochs * graphs + min(rest * size, graphs))

        return count

    def epoch(self, epoch: Epoch) -> None:
        """Show a finished epoch."""
        text = f"loss {epoch.loss:.4f}, alignment {epoch.alignment:.3f}, uniformity {epoch.uniformity:.3f}"
        if sys.stderr.isatty():
            if self._bar is not None:
                self._bar.set_postfix_str(text)
            return
        try:
            print(f"seed {self._seed}, epoch {epoch.epoch}: {text}, {epoch.seconds:.2f} s", flush=True)
        except BrokenPipeError:
            self._stop.requested = True
