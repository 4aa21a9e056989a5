"""Show the progress of a run: bars on a terminal; otherwise, one line per epoch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from graphcl.config import Config
from graphcl.system.signals import Stop
from graphcl.training.epoch import Epoch

_EPOCHS = "{desc} {n_fmt}/{total_fmt} {bar}{postfix}, {remaining} of training left"
_FOLDS = "{desc} {n_fmt}/{total_fmt} {bar} {elapsed}"


@contextmanager
def fold_bar(seed: int) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function `show(row, done, total)` that shows how many inner folds of a row are finished.

    On a terminal, it updates a bar such as "seed 0: svm, untrained 3/50". Otherwise, the first call prints one line.
    """
    bars: dict[str, Any] = {}

    def show(row: str, done: int, total: int) -> None:
        if not sys.stderr.isatty():
            if not bars:
                print(f"seed {seed}: scoring ...", flush=True)
            bars[row] = None
            return
        from tqdm import tqdm

        if row not in bars:
            close()
            bars[row] = tqdm(desc=f"seed {seed}: {row}", total=total, leave=False, mininterval=0, bar_format=_FOLDS)
        bars[row].update(done - bars[row].n)

    def close() -> None:
        for bar in bars.values():
            if bar is not None:
                bar.close()

    try:
        yield show
    finally:
        close()


@contextmanager
def epoch_bar(seed: int, config: Config, stop: Stop) -> Iterator[Callable[[Epoch], None]]:
    """Yield a function that shows a finished epoch, in a bar on a terminal, else as a printed line.

    If the output was closed, for example by `| head`, the function sets `stop.requested`.
    """
    line = "loss {0.loss:.4f}, alignment {0.alignment:.3f}, uniformity {0.uniformity:.3f}"
    if not sys.stderr.isatty():

        def log(epoch: Epoch) -> None:
            try:
                print(f"seed {seed}, epoch {epoch.epoch}: {line.format(epoch)}, {epoch.seconds:.2f} s", flush=True)
            except BrokenPipeError:
                stop.requested = True

        yield log
        return
    from tqdm import tqdm

    total = None if config.steps else config.epochs
    with tqdm(total=total, desc=f"seed {seed}, epoch", leave=False, bar_format=_EPOCHS) as bar:

        def show(epoch: Epoch) -> None:
            if not bar.n:  # resumed training starts at a later epoch, which took no time now
                bar.n = bar.initial = epoch.epoch - 1
            bar.update()
            bar.set_postfix_str(line.format(epoch))

        yield show
