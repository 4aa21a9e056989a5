"""Progress of a run: bars on a terminal, one line an epoch elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from graphcl.config import Config
from graphcl.system.signals import Stop
from graphcl.training.epoch import Epoch


@contextmanager
def fold_bar(label: str) -> Iterator[Callable[[str, int, int], object] | None]:
    """Show finished folds on a terminal, as in "seed 0, svm, untrained: 3/10"; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    bar: Any = None

    def show(row: str, done: int, total: int) -> None:
        nonlocal bar
        if bar is None or bar.desc != f"{label}, {row}":
            if bar is not None:
                bar.close()
            form = "{desc}: {n_fmt}/{total_fmt} {bar}"
            bar = tqdm(desc=f"{label}, {row}", total=total, leave=False, mininterval=0, bar_format=form)
        bar.update(done - bar.n)

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()


@contextmanager
def epoch_bar(label: str, config: Config, stop: Stop) -> Iterator[Callable[[Epoch], None]]:
    """Show a progress bar on a terminal, print one line an epoch elsewhere; ask to stop when the reader has gone."""
    line = "loss {0.loss:.4f}, alignment {0.alignment:.3f}, uniformity {0.uniformity:.3f}, {0.seconds:.2f} s"
    if not sys.stderr.isatty():

        def log(epoch: Epoch) -> None:
            try:
                print(f"{label}, epoch {epoch.epoch}: {line.format(epoch)}", flush=True)
            except BrokenPipeError:
                stop.wanted = True

        yield log
        return
    from tqdm import tqdm

    with tqdm(total=None if config.steps else config.epochs, desc=label, leave=False) as bar:

        def show(epoch: Epoch) -> None:
            bar.update(epoch.epoch - bar.n)  # a resumed training has epochs behind it
            bar.set_postfix_str(line.format(epoch))

        yield show
