"""Files that appear whole or not at all, and PyTorch files that are read without running code."""

from __future__ import annotations

import os
import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch

from graphcl.errors import InputError


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """A file that appears whole or not at all, in place of an earlier one.

    Args:
        path: of the file.
        write: called with an open file; what it raises is raised, and nothing remains.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def remove_partial(folder: Path) -> None:
    """Remove what `write_whole` had begun in a folder when its process was killed."""
    for path in folder.glob(".*.partial"):
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Let a rename outlive a power failure, where the system can."""
    try:
        number = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(number)
    except OSError:  # nor do some network disks sync them
        pass
    finally:
        os.close(number)


def write_text(path: Path, text: str) -> None:
    """A text file that appears whole or not at all, in place of an earlier one."""
    write_whole(path, lambda file: file.write(text.encode()))


def new_file(path: str | os.PathLike[str]) -> Path:
    """The path of a file that is to be written.

    Raises:
        InputError: it is there already, or its folder is not.
    """
    file = Path(path).expanduser()
    if os.path.lexists(file):
        raise InputError(f"{file} exists already, and nothing is ever overwritten; give another file.")
    if not file.parent.is_dir():
        raise InputError(f"there is no folder {str(file.parent)!r} to write {file.name} into.")
    return file


def read_plain(path: Path, instead: str) -> Any:
    """What `torch.save` wrote, of tensors, numbers, texts and their containers; on the CPU.

    Args:
        path: of the file.
        instead: what to do about a file that holds code, for the message.

    Raises:
        InputError: it cannot be read or is damaged, or it holds code, which is refused and never run.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of unusual pickles, about which an error says enough
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        found = re.search(r"GLOBAL ([\w.]+)", text) if isinstance(error, pickle.UnpicklingError) else None
        if found is not None:
            raise InputError(
                f"file {str(path)!r} holds pickled code ({found[1]}), which is never run; {instead}."
            ) from None
        # What torch says around it is advice to run the code.
        text = text.rpartition("WeightsUnpickler error: ")[2].partition(" Check the documentation")[0]
        text = text.partition(". ")[0][:200].rstrip(".")
        raise InputError(
            f"file {str(path)!r} cannot be read as a PyTorch file: it is none, or damaged ({text})."
        ) from None
