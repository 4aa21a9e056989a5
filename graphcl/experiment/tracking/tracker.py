"""What every tracker is: a callback of `train` that hands finished epochs on to another program's log."""

from __future__ import annotations

import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from graphcl.errors import InputError, one_line
from graphcl.training.loop import Epoch

Self = TypeVar("Self", bound="Tracker")


class Tracker(ABC):
    """A log of one seed, kept by another program; a callback of `train` and a context manager.

    Leaving the context closes the log, as failed where an exception is the reason. A log that fails on the way, as when
    its server is gone, is said in one line on stderr and written no more: no training is lost for its log.

    Args:
        folder: the run's folder, where local files go.
        seed: which of its seeds this is.
        settings: those of the run, kept with the log.

    Raises:
        InputError: the library is not installed.
    """

    name: str
    """What it is called on the command line; also that of the extra which installs its library."""
    module: str
    """The library's module, imported only when it is needed."""

    @classmethod
    def library(cls) -> Any:
        """The library, imported.

        Raises:
            InputError: it is not installed; the message says how to install it.
        """
        try:
            return importlib.import_module(cls.module)
        except ImportError as error:
            command = f'pip install "graphcl[{cls.name}]"'
            raise InputError(f"tracking with {cls.name} needs its library ({error}); install it: {command}") from None

    def __init__(self, folder: str | Path, seed: int = 0, settings: Mapping[str, Any] | None = None) -> None:
        self._epoch, self._lost = 0, False
        self.open(Path(folder), seed, settings or {})

    def __call__(self, epoch: Epoch) -> None:
        """Add a finished epoch."""
        self._epoch = epoch.epoch
        self._attempt(lambda: self.log(epoch.figures(), self._epoch))

    def add_scores(self, scores: Mapping[str, float]) -> None:
        """Add what the embedding scored after the last epoch, by name."""
        self._attempt(lambda: self.summarise(scores, self._epoch))

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._attempt(lambda: self.close(failed=kind is not None))

    @abstractmethod
    def open(self, folder: Path, seed: int, settings: Mapping[str, Any]) -> None:
        """Open the log, with the settings in it."""

    @abstractmethod
    def log(self, figures: Mapping[str, float], epoch: int) -> None:
        """Write the figures of an epoch, so that they are safe when this returns."""

    @abstractmethod
    def summarise(self, scores: Mapping[str, float], epoch: int) -> None:
        """Write the scores after the last epoch."""

    @abstractmethod
    def close(self, failed: bool = False) -> None:
        """Close the log; nothing is written after that."""

    def _attempt(self, write: Callable[[], Any]) -> None:
        if self._lost:
            return
        try:
            write()
        except Exception as error:  # of whatever kind: the training goes on
            self._lost = True
            say_lost(self.name, error)


def say_lost(name: str, error: Exception) -> None:
    """One line on stderr: this log has failed, and the run goes on without it."""
    what = one_line(f"{type(error).__name__}: {error}", 300)
    print(f"graphcl: {name} has failed ({what}); the run goes on without it.", file=sys.stderr)
