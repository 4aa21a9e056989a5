"""The exception for a user's mistake, and helpers that keep messages on one printable line."""

from __future__ import annotations

MOST = 2000
"""Number of characters after which a line of a message is cut; only text quoted from a file makes it so long."""

EXIT_CODE = 75
"""Exit code (BSD's EX_TEMPFAIL) of a run that a signal stopped and that can be resumed."""


class InputError(ValueError):
    """A value from the user cannot be used; the message says what is wrong with the value and what to do.

    The command line prints the message and exits with code 2; in Python the exception is an ordinary `ValueError`.
    Control characters in the message are escaped, e.g. as `\\x1b`, so that quoted names cannot control a terminal.
    """

    exit_code = 2

    def __init__(self, message: object = "") -> None:
        lines = (printable(line) for line in str(message).split("\n"))
        super().__init__("\n".join(line if len(line) <= MOST else f"{line[:MOST]}..." for line in lines))


class InputTypeError(InputError, TypeError):
    """An argument has the wrong type; the exception is also a `TypeError`."""


class Stopped(KeyboardInterrupt):
    """A signal stopped the program, whose state is saved; the program exits with `EXIT_CODE`."""


def one_line(text: object, most: int = 200) -> str:
    """Return `text` as one line of at most `most` printable characters."""
    line = printable(" ".join(str(text)[: 4 * most].split()))
    return line if len(line) <= most else line[: most - 3] + "..."


def reason(error: BaseException) -> str:
    """Return the message of `error`, or the type's name if it is empty, as one line of at most 200 characters."""
    return one_line(error) or type(error).__name__


def printable(text: str) -> str:
    """Return `text` with control characters and lone surrogates escaped, e.g. as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
