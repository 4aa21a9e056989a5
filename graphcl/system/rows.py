"""Collect rows of numbers; many of them go to a temporary file, whose pages the system can write back."""

from __future__ import annotations

import math
import mmap
import tempfile
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from graphcl.system.files import naming

HELD = 2**26
"""Bytes from which rows are kept in a file."""


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
                for each in self._parts:
                    self._file.write(each.contiguous().numpy().data)
            self._parts = [part[:0]]

    def joined(self) -> Tensor:
        """Return all rows `[n, ...]`."""
        if self._file is None:
            return torch.cat(self._parts)
        like, shape = self._parts[0], (self._count, *self._parts[0].shape[1:])
        self._file.flush()
        pages = mmap.mmap(self._file.fileno(), self._bytes)
        return torch.frombuffer(pages, dtype=like.dtype, count=math.prod(shape)).view(shape)
