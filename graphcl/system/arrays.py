"""Read the arrays of a `.npz` file, write a `.npy` file, and store strings as UTF-8 bytes."""

from __future__ import annotations

import io
import itertools
import os
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.errors import InputError, reason
from graphcl.system.files import check_regular, write_whole

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
    check_regular(path)
    try:
        packed = path.stat().st_size
        with zipfile.ZipFile(path) as archive:
            total = sum(entry.file_size for entry in archive.infolist())
            names = [name.removesuffix(".npy") for name in archive.namelist()]
        if len({*names}) < len(names):
            raise ValueError("it has two arrays of the same name")
        if total > max(FREE_BYTES, MAX_RATIO * packed):
            raise ValueError(f"its {packed} bytes would unpack to {total} bytes")
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: _mapped(path, arrays.zip, f"{name}.npy", arrays) for name in arrays.files}
        if not all(isinstance(each, np.ndarray) for each in found.values()):
            raise ValueError("it does not hold arrays")
        return found
    except Exception as error:  # a corrupted archive can raise any exception, so catch all
        raise InputError(f"{path} cannot be read: {reason(error)}.") from None


def encode(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the UTF-8 bytes of all strings, and the start of each string with the end of the last one, `[n + 1]`.

    Example:
        >>> text, cut = encode(["a", "", "bc"])
        >>> text.tobytes(), cut.tolist(), decode(text, cut)
        (b'abc', [0, 1, 1, 3], ['a', '', 'bc'])
    """
    every = [text.encode() for text in texts]
    return np.frombuffer(b"".join(every), np.uint8).copy(), np.cumsum([0, *map(len, every)])


def decode(text: np.ndarray, cut: np.ndarray) -> list[str]:
    """Return the strings that `encode` stored."""
    whole = text.tobytes()
    return [whole[start:end].decode() for start, end in itertools.pairwise(cut.tolist())]


def id_arrays(ids: np.ndarray) -> dict[str, np.ndarray]:
    """Return ids as arrays for a `.npz` file: `id [n]`, or of strings the two arrays `id.text` and `id.slices`.

    A NumPy array of strings would give each string the memory of the longest one.
    """
    if ids.dtype != object:
        return {"id": ids}
    text, cut = encode(ids.tolist())
    return {"id.text": text, "id.slices": cut}


def ids_of(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the ids that `id_arrays` stored, `[n]` of int64 or of Python strings; ValueError for other arrays."""
    if (ids := arrays.get("id")) is not None:
        if ids.ndim != 1 or ids.dtype != np.int64:
            raise ValueError(f"`id` is {list(ids.shape)} of {ids.dtype}, not [n] of int64")
        return ids
    text, cut = arrays["id.text"], arrays["id.slices"]
    kinds = text.ndim == cut.ndim == 1 and text.dtype == np.uint8 and cut.dtype == np.int64 and len(cut) > 0
    if not kinds or cut[0] != 0 or cut[-1] != len(text) or (cut[1:] < cut[:-1]).any():
        raise ValueError("`id.slices` does not ascend from 0 to the bytes of `id.text`")
    return np.array(decode(text, cut), object)


def write_array(path: Path, values: np.ndarray) -> None:
    """Write a `.npy` file atomically."""
    buffer = io.BytesIO()  # into a file, NumPy may ignore that the disk is full
    np.save(buffer, values, allow_pickle=False)
    write_whole(path, lambda file: file.write(buffer.getbuffer()))
