"""Limit the CPU threads of small computations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread(active: bool = True) -> Iterator[None]:
    """Use one CPU thread within a `with` block, if `active`: on busy cores, threads of small operations wait long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if active else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
