"""Let a program save its state when a signal asks it to stop, its terminal is closed or the disk of its log is full."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from graphcl.errors import Stopped

_NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
_SIGNALS: list[int] = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]  # Windows lacks the last two

_interrupted: bool | None = None
"""Whether a KeyboardInterrupt was raised in `one_interrupt`; None outside of it."""


class Stop:
    """Handler of signals that ask the program to stop: SIGTERM, SIGINT, SIGHUP (terminal closed), SIGUSR1 (Slurm).

    Within `deferred`, a signal only sets `requested`, which the caller checks where it can stop without losing work. A
    second SIGINT raises KeyboardInterrupt at once. Outside `deferred`, a signal raises `Stopped`. A signal that the
    process already ignores, such as SIGHUP under nohup, stays ignored.

    Args:
        quiet: whether to print nothing when a signal arrives.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.requested = self._deferred = False
        self._quiet = quiet

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals within the block; outside the main thread, do nothing."""
        before: dict[int, Any] = {}
        with suppress(ValueError):  # Python sets handlers only in the main thread, so leave the signals alone
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    before[number] = signal.signal(number, self._take)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Within the block, let a signal set `requested` instead of raising `Stopped`."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def _take(self, number: int, frame: FrameType | None) -> None:
        if _stopping():
            return
        if self._deferred and self.requested and number == signal.SIGINT:
            _raise(KeyboardInterrupt())
        self.requested |= self._deferred
        what = "saving and stopping" if self._deferred else "stopping"
        again = "; repeat it to stop at once" if self._deferred and number == signal.SIGINT else ""
        # ignore a closed pipe (Ctrl-C in `2>&1 | tee log`) or an interrupted write, so that the state is saved
        with suppress(OSError, RuntimeError):
            if not self._quiet:
                print(f"\ngraphcl: {signal.Signals(number).name}: {what}{again}.", file=sys.stderr)
        if not self._deferred:
            _raise(Stopped())


@contextmanager
def one_interrupt() -> Iterator[None]:
    """Within the block, let the first Ctrl-C raise KeyboardInterrupt, and ignore later ones.

    A later one would raise within the code that cleans up.
    """
    global _interrupted
    usual = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        yield  # a block within a block, or a program that has its own handler
        return
    _interrupted = False

    def take(number: int, frame: FrameType | None) -> None:
        if not _stopping():
            _raise(KeyboardInterrupt())

    signal.signal(signal.SIGINT, take)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        _interrupted = None


def _raise(error: KeyboardInterrupt) -> None:
    global _interrupted
    _interrupted = None if _interrupted is None else True
    raise error


def _stopping() -> bool:
    """Return whether a KeyboardInterrupt was raised in `one_interrupt`, or is being handled."""
    return bool(_interrupted) or isinstance(sys.exc_info()[1], KeyboardInterrupt)


class _Lasting:
    """Text stream that drops what cannot be written, and appends its errors to `errors`.

    A closed pipe of stdout raises BrokenPipeError, as its reader wants no more. A closed terminal is no error.
    """

    def __init__(self, stream: Any, errors: list[OSError]) -> None:
        self._stream, self._errors, self._is_stdout = stream, errors, stream is sys.stdout

    def write(self, text: str) -> int:
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _try(self, function: Any, *arguments: str) -> None:
        try:
            function(*arguments)
        except BrokenPipeError:
            if self._is_stdout:
                raise
        except OSError as error:
            if error.errno == errno.EIO:  # the terminal is gone
                discard(self._stream)
            else:
                self._errors.append(error)


@contextmanager
def lasting_streams() -> Iterator[list[OSError]]:
    """Within the block, let no failing write to stdout or stderr end the program, and yield the errors."""
    errors: list[OSError] = []
    if isinstance(sys.stderr, _Lasting):  # a block within a block
        yield errors
        return
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Lasting(stream, errors) for stream in before)
    try:
        yield errors
        sys.stdout.flush()
    finally:
        sys.stdout, sys.stderr = before


def discard(stream: Any) -> None:
    """Redirect the file of a stream to /dev/null, so that later writes and the interpreter's last flush succeed."""
    with suppress(OSError), open(os.devnull, "w") as nowhere:  # a stream in memory has no file
        os.dup2(nowhere.fileno(), stream.fileno())
