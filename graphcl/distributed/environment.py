"""Detect whether torchrun started this process. This module does not import torch, so that `--help` is fast."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from graphcl.errors import InputError


@contextmanager
def report_once() -> Iterator[None]:
    """Clear the message of an InputError before `launch` on all but one process per machine, to print it once."""
    try:
        yield
    except InputError as error:
        if launched() and os.environ["LOCAL_RANK"] != "0":
            error.args = ()
        raise


def launched() -> bool:
    """Return whether torchrun started this process as one of two or more.

    Raises:
        InputError: WORLD_SIZE is set, but a variable of torchrun is missing or has an impossible value.
    """
    if "WORLD_SIZE" not in os.environ:
        return False
    size = _number("WORLD_SIZE", 1, 2**31)
    if size == 1:
        return False
    if missing := [name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]:
        advice = "start the processes by torchrun, which sets it, or unset WORLD_SIZE for a single process"
        raise InputError(f"the variable WORLD_SIZE is {size}, but {missing[0]} is not set; {advice}.")
    _number("RANK", 0, size)
    _number("LOCAL_RANK", 0, size)
    _number("MASTER_PORT", 1, 2**16)
    return True


def _number(name: str, low: int, high: int) -> int:
    """Return the variable as a whole number in [low, high)."""
    text = os.environ[name].strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and low <= int(text) < high):
        what = f"the variable {name} must be a whole number in [{low}, {high})"
        raise InputError(f"{what}, got {text[:40]!r}; torchrun sets it.")
    return int(text)
