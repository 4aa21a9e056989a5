"""The one exception for a user's mistake: one line that names the argument, the rule and the value."""

from __future__ import annotations

MOST = 2000
"""Characters of a line of a message; longer is only what a file's writer has put into it."""


class InputError(ValueError):
    """Something the user gave cannot be used; the message says what, why and what to do.

    The command line prints the message and exits with code 2; in Python it is an ordinary `ValueError`. Signs in names
    of others that a terminal would obey are written as `\\x1b`.
    """

    exit_code = 2

    def __init__(self, message: object = "") -> None:
        lines = (printable(line) for line in str(message).split("\n"))
        super().__init__("\n".join(line if len(line) <= MOST else f"{line[:MOST]}..." for line in lines))


class InputTypeError(InputError, TypeError):
    """An argument of the wrong type; also a `TypeError`."""


def one_line(text: object, most: int = 200) -> str:
    """A text on one line of at most `most` characters, each of which can be printed."""
    line = printable(" ".join(str(text)[: 4 * most].split()))
    return line if len(line) <= most else line[: most - 3] + "..."


def reason(error: BaseException) -> str:
    """What an exception says, on one line of at most 200 characters; its name, where it says nothing."""
    return one_line(error) or type(error).__name__


def printable(text: str) -> str:
    """A text whose control characters and lone surrogates are written as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


EXIT_CODE = 75
"""Exit code of a run that was asked to stop and can be resumed: BSD's EX_TEMPFAIL, "try again later"."""


class Stopped(KeyboardInterrupt):
    """A signal asked to stop and everything is saved; the program exits with `EXIT_CODE`."""
