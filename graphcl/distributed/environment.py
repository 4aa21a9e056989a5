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
    """Return whether torchrun started this process as one of two or more."""
    known = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
    return known and int(os.environ["WORLD_SIZE"]) > 1
