"""How freed memory is kept for the next step, instead of being given back to the system and asked for again."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


def keep_freed_memory(most: int = 2**30) -> bool:
    """Let this process keep up to `most` bytes of freed memory, and reuse them for large tensors.

    Training frees and asks for the same tensors at every step. By default glibc gives large ones back to the system at
    once, which then has to clear each page anew: a seventh to a fifth of the time of an epoch on large graphs. It is a
    setting of the whole process, so programs call this (as `python -m graphcl.run` does) and libraries do not.

    Returns:
        Whether the C library has such a setting; without one, nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, most)) and bool(mallopt(_TRIM_THRESHOLD, most))
