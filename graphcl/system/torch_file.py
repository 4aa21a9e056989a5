"""Read PyTorch files of unknown origin without running code, and with a limit on the memory used."""

from __future__ import annotations

import copy
import io
import os
import pickle
import re
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from graphcl.errors import InputError, one_line
from graphcl.system.files import check_regular, write_whole
from graphcl.system.memory import total_memory

FREE_BYTES = 16 * 2**20
"""Bytes that tensors may take regardless of the file size, as expanded views take more than their storage."""
_MAX_OBJECTS = 1000
"""Largest number of objects for each byte of a file, as two bytes can name a whole graph again."""


def write_torch_file(file: str | os.PathLike[str] | IO[bytes], content: object) -> None:
    """Write a PyTorch file, by a path atomically, or into an open file."""
    buffer = io.BytesIO()  # PyTorch's own file writer aborts the process on a full disk
    torch.save(content, buffer)
    if isinstance(file, str | os.PathLike):
        write_whole(Path(file), lambda whole: whole.write(buffer.getbuffer()))
    else:
        file.write(buffer.getbuffer())


def read_torch_file(path: Path, instead: str) -> Any:
    """Return the content of a file that `torch.save` wrote, on the CPU: tensors, numbers, strings and containers.

    The file is read with `weights_only=True`. It is refused if a record does not match its checksum, if it is
    compressed, or if its tensors or nested containers would expand to far more than the size of the file.

    Args:
        path: path of the file.
        instead: advice in the message about a file that holds code.

    Raises:
        InputError: the file cannot be read, is corrupted, or holds code, which is never run.
    """
    check_regular(path)
    try:
        size = path.stat().st_size
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > size:
                raise ValueError("it is compressed, which PyTorch never does")
            if any(name.endswith("/constants.pkl") for name in archive.namelist()):
                raise ValueError("it is a TorchScript program")
            names = archive.namelist()
            if len(set(names)) < len(names):
                raise ValueError("it has two records of the same name")
            # torch.load does not verify checksums, so a flipped bit would go unnoticed
            if (damaged := archive.testzip()) is not None:
                raise ValueError(f"{damaged} does not match its checksum")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about unusual pickles, but the error below suffices
            # memory-mapped, as some versions of torch otherwise read past the end of a short record
            content = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        unique, claimed, count = _sizes(content)
        if count > _MAX_OBJECTS * size:
            raise ValueError("its containers are nested without end")
        # a graph may occur several times in a list, which takes memory only when the graphs are joined
        if unique > FREE_BYTES + 4 * size or claimed > max(FREE_BYTES + 4 * size, total_memory() / 4):
            raise ValueError(f"its tensors claim {claimed} bytes, it has {size}")
        return copy.deepcopy(content)  # a copy in memory, so that the file may change
    except Exception as error:  # a corrupted file can raise any exception, so catch all
        text = " ".join(str(error).split()) or type(error).__name__
        code = re.search(r"GLOBAL ([\w.]+)", text) if isinstance(error, pickle.UnpicklingError) else None
        # drop the rest of the message, which advises to run the code
        text = text.rpartition("WeightsUnpickler error: ")[2].partition(" Check the documentation")[0]
        fault = f"is not a PyTorch file, or is corrupted ({one_line(text.partition('. ')[0]).rstrip('.')})"
        fault = f"holds pickled code ({code[1]}), which is never run; {instead}" if code else fault
        raise InputError(f"file {str(path)!r} {fault}.") from None


def _sizes(content: Any) -> tuple[int, int, int]:
    """Return the bytes of all different tensors in `content`; of all tensors, where one that occurs twice counts twice;
    and the number of objects, counted likewise.

    Raises:
        ValueError: an object contains itself.
    """
    unique, sizes = 0, dict[int, tuple[int, int] | None]()
    left: list[tuple[Any, list[Any] | None]] = [(content, None)]
    while left:
        item, parts = left.pop()
        if parts is None:
            if id(item) not in sizes:
                sizes[id(item)], parts = None, _parts(item)
                left += [(item, parts), *((part, None) for part in parts)]
            continue
        strided = isinstance(item, Tensor) and item.layout == torch.strided
        own = item.numel() * item.element_size() if strided else 0
        inner = [sizes[id(part)] for part in parts]
        if None in inner:
            raise ValueError("its containers are nested without end")
        unique += own
        sizes[id(item)] = own + sum(size[0] for size in inner if size), 1 + sum(size[1] for size in inner if size)
    claimed, count = sizes[id(content)] or (0, 0)
    return unique, claimed, count


def _parts(item: Any) -> list[Any]:
    """Return the objects that a container holds, also PyG's `Data` and its storage."""
    if isinstance(item, dict):
        return [*item, *item.values()]
    if isinstance(item, list | tuple | set):
        return list(item)
    if not isinstance(item, type | Tensor) and hasattr(item, "__dict__"):
        return list(vars(item).values())
    return []
