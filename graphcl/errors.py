"""Define the exception and the warning for user input, and helpers that make messages printable and short."""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from contextvars import ContextVar
from types import ModuleType
from typing import Any

MAX_LINE = 2000
"""Largest number of characters in a line of a message; longer lines are cut."""

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
        super().__init__("\n".join(line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}..." for line in lines))


class InputTypeError(InputError, TypeError):
    """An argument has the wrong type; the exception is also a `TypeError`."""


class InputWarning(UserWarning):
    """A value from the user is used, but may not mean what the user wants; the command line prints it as one line."""


class Stopped(KeyboardInterrupt):
    """A signal stopped the program, and its state is saved; the program exits with `EXIT_CODE`."""


_SHOWN: dict[Any, Any] = {}
"""Registry of the warnings that were shown, so that each is shown once."""


READ_AS_OPTIONS = ContextVar("READ_AS_OPTIONS", default=False)
"""Whether warnings are read on the command line, where a setting is an option."""
_OPTION = re.compile(r"--([a-z][\w.-]*\w)")


def warn(text: str, category: type[InputWarning] = InputWarning) -> None:
    """Issue a warning that names the line of the user's code that called this package, directly or by scikit-learn.

    Outside the command line, an option in the text, such as `--batch-size`, is replaced by the setting's name.
    """
    if not READ_AS_OPTIONS.get():
        text = _OPTION.sub(lambda option: f"`{option[1].replace('-', '_')}`", text)
    frame = caller = sys._getframe(1)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").split(".")[0] in ("graphcl", "sklearn"):
            caller = frame.f_back
        frame = frame.f_back
    module = caller.f_globals.get("__name__")
    warnings.warn_explicit(text, category, caller.f_code.co_filename, caller.f_lineno, module, registry=_SHOWN)


def one_line(text: object, max_length: int = 200) -> str:
    """Return `text` as one line of at most `max_length` printable characters."""
    line = printable(" ".join(str(text)[: 4 * max_length].split()))
    return line if len(line) <= max_length else line[: max_length - 3] + "..."


def reason(error: BaseException) -> str:
    """Return the message of `error` as one line of at most 200 characters, or the type's name without a message."""
    return one_line(error) or type(error).__name__


def printable(text: str) -> str:
    """Return `text` with control characters and lone surrogates escaped, e.g. as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def load_module(name: str) -> ModuleType:
    """Import the module `name` in a module's `__getattr__`, where Python would hide an AttributeError of the import.

    Raises:
        ImportError: the import raised AttributeError; that error is the cause.
    """
    try:
        return importlib.import_module(name)
    except AttributeError as error:
        hint = "a package is broken, or hidden by a file with its name"
        raise ImportError(f"cannot import {name}: {one_line(error)}; {hint}, see the traceback above.") from error
