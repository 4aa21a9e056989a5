"""Read NumPy's `.npy` files as memory-mapped tensors, and make headers of such files."""

from __future__ import annotations

import math
import mmap
import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphcl.errors import InputError, reason

_INTEGERS, _FLOATS = ("uint8", "int8", "int16", "int32", "int64"), ("float16", "float32", "float64")
_NAMES = ("bool", *_INTEGERS, *_FLOATS, "complex64", "complex128")
_DTYPES: dict[str, torch.dtype] = {np.dtype(name).str: getattr(torch, name) for name in _NAMES}
"""NumPy's type code in native byte order, such as `<f4` -> torch dtype."""
CODES = {dtype: code for code, dtype in _DTYPES.items()}
_FLAGS = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
"""A private mapping, which reserves no memory, so that files may exceed the memory."""
HEADER = 256
"""Number of bytes in a header that `npy_header` returns."""


def map_npy(file: Path) -> Tensor:
    """Return the array in a `.npy` file as a memory-mapped tensor; writing into the tensor never changes the file.

    Raises:
        InputError: the file is missing or corrupted, or its type or layout is not supported.
        OSError: the file cannot be read.
    """
    if not file.is_file():
        raise InputError(f"{file.parent}: file {file.name} not found.")
    with file.open("rb") as handle:
        try:
            np.lib.format.read_magic(handle)
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(handle)
        except Exception as error:
            raise InputError(f"{file} is not a .npy file ({reason(error)}).") from None
        if dtype.str not in _DTYPES or fortran or not all(0 <= size < 2**48 for size in shape):
            order = "Fortran" if fortran else "C"
            raise InputError(f"{file}: arrays of {dtype.str!r} in {order} order of shape {shape} are not supported.")
        offset, size = handle.tell(), os.fstat(handle.fileno()).st_size
        wanted = offset + dtype.itemsize * math.prod(shape)
        if size != wanted:
            raise InputError(f"{file} has {size} bytes, but its header claims {wanted}; write the folder again.")
        if size == offset:
            return torch.empty(shape, dtype=_DTYPES[dtype.str])
        pages = mmap.mmap(handle.fileno(), size, _FLAGS, mmap.PROT_READ | mmap.PROT_WRITE)
    return torch.frombuffer(pages, dtype=_DTYPES[dtype.str], offset=offset).view(shape)


def npy_header(dtype: torch.dtype, shape: tuple[int, ...]) -> bytes:
    """Return the header of a `.npy` file, format version 1.0; its length is `HEADER` bytes for any shape."""
    text = repr({"descr": CODES[dtype], "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + text.ljust(HEADER - 11) + b"\n"
