"""Signals that ask a program to stop: what is under way is finished and saved first."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from graphcl.errors import Stopped

_NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")  # the last two are not known to Windows
_SIGNALS: list[int] = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]


class Stop:
    """Whether a signal has asked to stop: SIGTERM, SIGINT, SIGHUP (a terminal closed), or SIGUSR1, by which Slurm warns
    ahead of a time limit. One that is ignored already, as under nohup, stays so.

    While the stop is `deferred` a signal is only noted, to be looked up as `wanted` where a stop costs nothing; a
    second SIGINT interrupts at once. At other times a signal raises `Stopped` where the program is.

    Args:
        quiet: whether to say nothing when a signal is noted.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.wanted = self._deferred = False
        self._quiet = quiet

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals within the block (in the main thread, where alone Python hands them on)."""
        before: dict[int, Any] = {}
        try:
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    before[number] = signal.signal(number, self._take)
        except ValueError:  # another thread
            pass
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Only note signals within the block, which looks at `wanted`."""
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
        # Nobody may read it any more, as after Ctrl-C in `2>&1 | tee log`; or it comes amidst another line's writing.
        with suppress(OSError, RuntimeError):
            print(f"\ngraphcl: {signal.Signals(number).name}: finishing the step and saving{again}.", file=sys.stderr)
