"""Show the progress of a run: bars on a terminal, else lines; and log it to TensorBoard or Weights & Biases."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import yaml
from typing_extensions import Self

from graphcl.config import Config
from graphcl.errors import one_line
from graphcl.system.optional import optional
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


class Tracker:
    """Log of one seed in an external tool such as TensorBoard; a callback of `train` and a context manager.

    Leaving the context closes the log, and marks it as failed after an exception. If logging fails, for example because
    a server is down, a warning is printed on stderr, logging stops, and training continues. Subclasses implement
    `_open`, `_log` and `_close`.

    Args:
        folder: run folder, for the tool's local files.
        seed: seed of the training run.
        settings: settings of the run, stored in the log.

    Raises:
        InputError: the library is not installed.

    Example::

        with TensorBoard("runs/mine", seed=0) as log:
            train(method, loader, first, second, callbacks=[log])
    """

    name: ClassVar[str]
    """Name of the tracker on the command line, and of the extra that installs its library."""
    module: ClassVar[str]
    """Module of the tracker's library, imported at first use."""
    _open: Callable[[Path, int, Mapping[str, Any]], None]
    _log: Callable[[Mapping[str, float], int], None]
    _close: Callable[[bool], None]

    @classmethod
    def library(cls) -> Any:
        """Import and return the tracker's library; InputError, with the command to install it, if it is missing."""
        return optional(cls.module, f"tracking with {cls.name} needs its library", cls.name)

    def __init__(self, folder: str | Path, seed: int = 0, settings: Mapping[str, Any] | None = None) -> None:
        self._epoch, self._failed = 0, False
        self._open(Path(folder), seed, settings or {})

    def __call__(self, epoch: Epoch) -> None:
        """Log the metrics of a finished epoch."""
        self._epoch = epoch.epoch
        self.add_scores(epoch.metrics())

    def add_scores(self, scores: Mapping[str, float]) -> None:
        """Log scores (name -> value) as metrics of the last epoch."""
        self._attempt(lambda: self._log(scores, self._epoch))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._attempt(lambda: self._close(kind is not None))

    def _attempt(self, write: Callable[[], Any]) -> None:
        self._failed = self._failed or not _attempt(self.name, write)


class TensorBoard(Tracker):
    """A `Tracker` that writes `FOLDER/tensorboard/seed-SEED`; `tensorboard --logdir FOLDER` shows all seeds."""

    name = "tensorboard"
    module = "torch.utils.tensorboard"

    def _open(self, folder: Path, seed: int, settings: Mapping[str, Any]) -> None:
        self._writer = self.library().SummaryWriter(str(folder / "tensorboard" / f"seed-{seed}"))
        if settings:
            self._writer.add_text("settings", f"```yaml\n{yaml.safe_dump(dict(settings), sort_keys=False)}```")

    def _log(self, metrics: Mapping[str, float], epoch: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def _close(self, failed: bool) -> None:
        self._writer.close()


class WandB(Tracker):
    """A `Tracker` that logs each seed as the W&B run `FOLDER-seed-SEED` in the group `FOLDER`.

    Local files are in `FOLDER/wandb`. W&B's environment variables apply: `WANDB_MODE=offline` writes local files only,
    `WANDB_PROJECT` names the project (default `graphcl`).
    """

    name = module = "wandb"

    def _open(self, folder: Path, seed: int, settings: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._run = self.library().init(
            project=os.environ.get("WANDB_PROJECT", "graphcl"),
            group=folder.name,
            name=f"{folder.name}-seed-{seed}",
            config={**settings, "seed": seed},
            dir=str(folder),
            reinit="create_new",  # else W&B would reuse or finish the caller's run
        )

    def _log(self, metrics: Mapping[str, float], epoch: int) -> None:
        self._run.log(dict(metrics), step=epoch)

    def _close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


TRACKERS: dict[str, type[Tracker]] = {tracker.name: tracker for tracker in (TensorBoard, WandB)}


@contextmanager
def tracking(names: Sequence[str], folder: Path, seed: int, settings: Mapping[str, Any]) -> Iterator[list[Tracker]]:
    """Yield the opened trackers of a seed, and close them afterwards; trackers that fail to open are skipped."""
    trackers: list[Tracker] = []
    with ExitStack() as stack:

        def start(name: str) -> None:
            trackers.append(stack.enter_context(TRACKERS[name](folder, seed, settings)))

        for name in names:
            _attempt(name, partial(start, name))
        yield trackers


def _attempt(name: str, write: Callable[[], Any]) -> bool:
    """Call `write` and return True; if it fails, print a warning on stderr, as the run continues, and return False."""
    try:
        write()
    except Exception as error:
        message = one_line(f"{type(error).__name__}: {error}", 300)
        print(f"graphcl: {name} has failed ({message}); the run continues without it.", file=sys.stderr)
        return False
    return True
