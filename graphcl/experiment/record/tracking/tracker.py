"""Define the base class of all trackers."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from graphcl.errors import one_line
from graphcl.system.optional import optional
from graphcl.training.epoch import Epoch

Self = TypeVar("Self", bound="Tracker")


class Tracker(ABC):
    """Log of one seed in an external tool such as TensorBoard; a callback of `train` and a context manager.

    Leaving the context closes the log, and marks it as failed after an exception. If logging fails, for example because
    a server is down, a warning is printed on stderr, logging stops, and training continues.

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

    name: str
    """Name of the tracker on the command line, and of the extra that installs its library."""
    module: str
    """Module of the tracker's library, imported at first use."""

    @classmethod
    def library(cls) -> Any:
        """Import and return the tracker's library; InputError, with the command to install it, if it is missing."""
        return optional(cls.module, f"tracking with {cls.name} needs its library", cls.name)

    def __init__(self, folder: str | Path, seed: int = 0, settings: Mapping[str, Any] | None = None) -> None:
        self._epoch, self._failed = 0, False
        self.open(Path(folder), seed, settings or {})

    def __call__(self, epoch: Epoch) -> None:
        """Log the metrics of a finished epoch."""
        self._epoch = epoch.epoch
        self._attempt(lambda: self.log(epoch.metrics(), self._epoch))

    def add_scores(self, scores: Mapping[str, float]) -> None:
        """Log the scores (name -> value) of the trained embeddings; call this after the last epoch."""
        self._attempt(lambda: self.summarise(scores, self._epoch))

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._attempt(lambda: self.close(failed=kind is not None))

    @abstractmethod
    def open(self, folder: Path, seed: int, settings: Mapping[str, Any]) -> None:
        """Open the log and store the settings in it."""

    @abstractmethod
    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Write the metrics (name -> value) of an epoch, and flush the log."""

    def summarise(self, scores: Mapping[str, float], epoch: int) -> None:
        """Write the scores (name -> value). By default, they become metrics of the last epoch, `epoch`."""
        self.log(scores, epoch)

    @abstractmethod
    def close(self, failed: bool = False) -> None:
        """Close the log; `failed` is whether the run ended with an exception."""

    def _attempt(self, write: Callable[[], Any]) -> None:
        self._failed = self._failed or not attempt(self.name, write)


def attempt(name: str, write: Callable[[], Any]) -> bool:
    """Call `write` and return True; if it fails, print a warning on stderr, as the run continues, and return False."""
    try:
        write()
    except Exception as error:
        message = one_line(f"{type(error).__name__}: {error}", 300)
        print(f"graphcl: {name} has failed ({message}); the run continues without it.", file=sys.stderr)
        return False
    return True
