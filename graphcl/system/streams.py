"""Keep a program running whose terminal was closed or whose log is on a full disk."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


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
    sys.stdout, sys.stderr = (_Lasting(each, errors) for each in before)
    try:
        yield errors
        sys.stdout.flush()
    finally:
        sys.stdout, sys.stderr = before


def discard(stream: Any) -> None:
    """Redirect the file of a stream to /dev/null, so that later writes and the interpreter's last flush succeed."""
    with suppress(OSError), open(os.devnull, "w") as nowhere:  # a stream in memory has no file
        os.dup2(nowhere.fileno(), stream.fileno())
