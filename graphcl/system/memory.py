"""Measure the memory of the machine, and make glibc keep freed memory instead of returning it to the system."""

from __future__ import annotations

import ctypes
import math
import os
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h


def keep_freed_memory(max_bytes: int = 2**30) -> bool:
    """Let this process keep up to `max_bytes` of freed memory for reuse; return True if the C library supports it.

    Training allocates and frees the same large tensors at every step. By default, glibc returns their memory to the
    system at once, and the system clears every page before it can be used again. On large graphs, clearing takes a
    seventh to a fifth of an epoch. The setting affects the whole process, so only programs such as
    `python -m graphcl.run` should call this function, not libraries.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, max_bytes)) and bool(mallopt(_TRIM_THRESHOLD, max_bytes))


def release_freed_memory() -> None:
    """Return freed memory to the system now, where the C library can, before a stage that allocates other sizes."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def total_memory() -> float:
    """Return the memory of this machine in bytes; infinity if the system does not say, as on Windows."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return math.inf
