"""Read and write arrays (`.npz`, `.npy`) and PyTorch files, without running code; store strings as UTF-8 bytes."""

from __future__ import annotations

import copy
import io
import itertools
import os
import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from graphcl.errors import InputError, one_line, reason
from graphcl.system.files import check_regular, write_whole

MAPPED = 16 * 2**20
"""Bytes from which an array of a `.npz` file is memory-mapped."""


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays in a `.npz` file, by name, large ones memory-mapped; Python objects are refused, not unpickled.

    Raises:
        InputError: the file cannot be read or is corrupted.
    """
    check_regular(path)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            values = {name: _mapped(path, arrays, name) for name in arrays.files}
        if not all(isinstance(value, np.ndarray) for value in values.values()):
            raise ValueError("it does not hold arrays")
        return values
    except Exception as error:  # a corrupted archive can raise any exception, so catch all
        raise InputError(f"{path} cannot be read: {reason(error)}.") from None


def _mapped(path: Path, arrays: Any, name: str) -> Any:
    """Return an array of a `.npz` file, memory-mapped if it is large and not compressed; its checksum is verified."""
    entry = arrays.zip.getinfo(f"{name}.npy")
    if entry.file_size <= MAPPED or entry.compress_type != zipfile.ZIP_STORED:
        return arrays[name]
    with arrays.zip.open(entry) as file:
        while file.read(2**20):
            pass
    with path.open("rb") as file:
        file.seek(entry.header_offset + 26)
        file.seek(sum(struct.unpack("<HH", file.read(4))), os.SEEK_CUR)  # lengths of the name and of further fields
        if np.lib.format.read_magic(file) != (1, 0):
            return arrays[name]
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.hasobject:
            raise ValueError("it holds Python objects")
        return np.memmap(path, dtype, "c", file.tell(), shape, "F" if fortran else "C")


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


def write_torch_file(file: str | os.PathLike[str] | IO[bytes], content: object) -> None:
    """Write a PyTorch file, by a path atomically, or into an open file."""
    import torch  # imported here, as help texts need no torch

    buffer = io.BytesIO()  # PyTorch's own file writer aborts the process on a full disk
    torch.save(content, buffer)
    if isinstance(file, str | os.PathLike):
        write_whole(Path(file), lambda whole: whole.write(buffer.getbuffer()))
    else:
        file.write(buffer.getbuffer())


def read_torch_file(path: Path, instead: str) -> Any:
    """Return the content of a file that `torch.save` wrote, on the CPU: tensors, numbers, strings and containers.

    The file is read with `weights_only=True`. It is refused if a record does not match its checksum.

    Args:
        path: path of the file.
        instead: advice in the message about a file that holds code.

    Raises:
        InputError: the file cannot be read, is corrupted, or holds code, which is never run.
    """
    import torch  # imported here, as help texts need no torch

    check_regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            if any(name.endswith("/constants.pkl") for name in archive.namelist()):
                raise ValueError("it is a TorchScript program")
            damaged = archive.testzip()  # torch.load does not verify checksums, so a flipped bit would go unnoticed
            if damaged is not None:
                raise ValueError(f"{damaged} does not match its checksum")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about unusual pickles, but the error below suffices
            # memory-mapped, as some versions of torch otherwise read past the end of a short record
            content = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        return copy.deepcopy(content)  # a copy in memory, so that the file may change
    except Exception as error:  # a corrupted file can raise any exception, so catch all
        text = " ".join(str(error).split()) or type(error).__name__
        code = re.search(r"GLOBAL ([\w.]+)", text) if isinstance(error, pickle.UnpicklingError) else None
        # drop the rest of the message, which advises to run the code
        text = text.rpartition("WeightsUnpickler error: ")[2].partition(" Check the documentation")[0]
        fault = f"is not a PyTorch file, or is corrupted ({one_line(text.partition('. ')[0]).rstrip('.')})"
        fault = f"holds pickled code ({code[1]}), which is never run; {instead}" if code else fault
        raise InputError(f"file {str(path)!r} {fault}.") from None
