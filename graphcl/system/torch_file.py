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

FREE_BYTES = 16 * 2**20
"""Bytes that tensors may take regardless of the file size, as expanded views take more than their storage."""


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
            # torch.load does not verify checksums, so a flipped bit would go unnoticed
            if (damaged := archive.testzip()) is not None:
                raise ValueError(f"{damaged} does not match its checksum")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about unusual pickles, but the error below suffices
            # memory-mapped, as some versions of torch otherwise read past the end of a short record
            content = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        claimed = _claimed_bytes(content, size)
        if claimed > FREE_BYTES + 4 * size:
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


def _claimed_bytes(content: Any, max_objects: int) -> int:
    """Return the total bytes of the tensors in `content`; a tensor that occurs twice counts twice.

    Raises:
        ValueError: `content` has more than `max_objects` objects.
    """
    claimed = count = 0
    left = [content]
    while left:
        item = left.pop()
        count += 1
        if count > max_objects:
            raise ValueError("its containers are nested without end")
        if isinstance(item, Tensor):
            claimed += item.numel() * item.element_size() if item.layout == torch.strided else 0
        elif isinstance(item, dict):
            left += [*item, *item.values()]
        elif isinstance(item, list | tuple | set):
            left += item
        elif not isinstance(item, type) and hasattr(item, "__dict__"):  # such as PyG's `Data` and its storage
            left += vars(item).values()
    return claimed
