"""Handle signals that ask a program to stop, so that it can save its state first."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from graphcl.errors import Stopped

_NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")  # Windows lacks the last two
_SIGNALS: list[int] = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]


class Stop:
    """Handler for requests to stop: SIGTERM, SIGINT, SIGHUP (terminal closed) and SIGUSR1 (Slurm's warning).

    Within `deferred`, a signal only sets `wanted`, which the caller checks where it can stop without losing work; a
    second SIGINT raises KeyboardInterrupt at once. Outside `deferred`, a signal raises `Stopped`. A signal that the
    process ignores already, such as SIGHUP under nohup, stays ignored.

    Args:
        quiet: whether to print nothing when a signal is deferred.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.wanted = self._deferred = False
        self._quiet = quiet

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals within the block; outside the main thread, do nothing."""
        before: dict[int, Any] = {}
        try:
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    before[number] = signal.signal(number, self._take)
        except ValueError:  # Python sets handlers only in the main thread, so leave the signals alone
            pass
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Within the block, let a signal set `wanted` instead of raising `Stopped`."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def _take(self, number: int, frame: FrameType | None) -> None:
        if not self._deferred:
            raise Stopped
        if self.wanted and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.wanted = True
        if self._quiet:
            return
        again = "; once more to stop at once" if number == signal.SIGINT else ""
        # ignore a closed pipe (Ctrl-C in `2>&1 | tee log`) or an interrupted write, so that the state is still saved
        with suppress(OSError, RuntimeError):
            print(f"\ngraphcl: {signal.Signals(number).name}: finishing the step and saving{again}.", file=sys.stderr)
