"""Measure and save memory: keep freed memory, hold many rows in a file, import PyTorch without a garbage collection.

The system can write back the pages of a file.
"""

from __future__ import annotations

import ctypes
import gc
import math
import mmap
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from graphcl.system.files import naming

if TYPE_CHECKING:  # commands without torch import this module
    from torch import Tensor

HELD = 2**26
"""Bytes from which `Rows` are kept in a file."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h


def import_pyg() -> None:
    """Import PyTorch and PyG without garbage collections, which would take a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        import torch_geometric  # noqa: F401
    finally:
        if enabled:
            gc.enable()


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


class Rows:
    """Rows that are appended in parts; many are in an unlinked file in the folder for temporary files (TMPDIR)."""

    def __init__(self) -> None:
        self._parts: list[Tensor] = []
        self._file: IO[bytes] | None = None
        self._count = self._bytes = 0

    def append(self, part: Tensor) -> None:
        """Append rows `[B, ...]`, all of one shape and dtype."""
        self._parts.append(part)
        self._count, self._bytes = self._count + len(part), self._bytes + part.nbytes
        if self._bytes > HELD:
            with naming(Path(tempfile.gettempdir())):
                # closed with its mapping
                self._file = self._file or tempfile.TemporaryFile(prefix="graphcl-")  # noqa: SIM115
                for rows in self._parts:
                    self._file.write(rows.contiguous().numpy().data)
            self._parts = [part[:0]]

    def joined(self) -> Tensor:
        """Return all rows `[n, ...]`."""
        import torch

        if self._file is None:
            return torch.cat(self._parts)
        like, shape = self._parts[0], (self._count, *self._parts[0].shape[1:])
        self._file.flush()
        pages = mmap.mmap(self._file.fileno(), self._bytes)
        return torch.frombuffer(pages, dtype=like.dtype, count=math.prod(shape)).view(shape)
