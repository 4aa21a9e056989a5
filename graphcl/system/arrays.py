"""Read the arrays of a `.npz` file."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.errors import InputError, reason

FREE_BYTES, MAX_RATIO = 16 * 2**20, 4
"""Arrays of more than `FREE_BYTES` bytes may unpack to at most `MAX_RATIO` times the size of their file."""


def _mapped(path: Path, archive: zipfile.ZipFile, member: str, arrays: Any) -> Any:
    """Return an array of a `.npz` file, memory-mapped if it is large and not compressed; its checksum is verified."""
    entry = archive.getinfo(member)
    if entry.file_size <= FREE_BYTES or entry.compress_type != zipfile.ZIP_STORED:
        return arrays[member.removesuffix(".npy")]
    with archive.open(entry) as file:
        while file.read(2**20):
            pass
    with path.open("rb") as file:
        file.seek(entry.header_offset + 26)
        file.seek(sum(struct.unpack("<HH", file.read(4))), os.SEEK_CUR)  # lengths of the name and of further fields
        if np.lib.format.read_magic(file) != (1, 0):
            return arrays[member.removesuffix(".npy")]
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.hasobject:
            raise ValueError("it holds Python objects")
        return np.memmap(path, dtype, "c", file.tell(), shape, "F" if fortran else "C")


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays in a `.npz` file, by name, large ones memory-mapped; Python objects are refused, not unpickled.

    Raises:
        InputError: the file cannot be read, is corrupted, or unpacks to far more than its size.
    """
    try:
        packed = path.stat().st_size
        with zipfile.ZipFile(path) as archive:
            total = sum(entry.file_size for entry in archive.infolist())
        if total > max(FREE_BYTES, MAX_RATIO * packed):
            raise ValueError(f"its {packed} bytes would unpack to {total} bytes")
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: _mapped(path, arrays.zip, f"{name}.npy", arrays) for name in arrays.files}
        if not all(isinstance(each, np.ndarray) for each in found.values()):
            raise ValueError("it does not hold arrays")
        return found
    except Exception as error:  # a corrupted archive can raise any exception, so catch all
        raise InputError(f"{path} cannot be read: {reason(error)}.") from None
