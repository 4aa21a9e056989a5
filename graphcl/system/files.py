"""Files that appear whole or not at all, and others' files, read without running code or filling the memory."""

from __future__ import annotations

import json
import os
import pickle
import re
import secrets
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from graphcl.errors import InputError, one_line, reason
from graphcl.system.torch_file import check_torch_file

MOST_TEXT = 16 * 2**20
"""Bytes of a text file of settings or figures; a run of a thousand seeds writes less."""
FREE_BYTES = 16 * 2**20
"""What packed arrays may unpack to in any case."""
MOST_RATIO = 4
MOST_METRICS = 256 * 2**20
"""Bytes of metrics.jsonl; a line an epoch takes a few hundred."""


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """A file that appears whole or not at all, in place of an earlier one.

    Args:
        path: of the file.
        write: called with an open file; what it raises is raised, and nothing remains.
    """
    # A new name, as whoever made the folder may have put a link under a known one.
    partial = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
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


def refuse_links(folder: Path, *names: str) -> None:
    """Refuse a folder in which one of these files or folders, which are to be written into, is a link.

    Whoever made the folder could have it lead to anything that the user may write to.

    Raises:
        InputError: so it is.
    """
    if found := [name for name in names if (folder / name).is_symlink()]:
        raise InputError(f"{folder / found[0]} is a link, and nothing is written through it; remove it.")


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


def read_text(path: Path, most: int = MOST_TEXT) -> str:
    """The text of a file of at most `most` bytes; of a pipe or a device no more is read either.

    Raises:
        InputError: it is larger, or no UTF-8.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise InputError(f"{path} is larger than {most} bytes.")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8: {error.reason} at byte {error.start}.") from None


def read_json(path: Path, most: int = MOST_TEXT) -> Any:
    """What a JSON file holds.

    Raises:
        InputError: it is larger, or no JSON.
        OSError: it cannot be read.
    """
    return parse_json(read_text(path, most), str(path))


def parse_json(text: str, what: str) -> Any:
    """The value of a JSON text.

    Raises:
        InputError: it is none, or nested too deeply.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} cannot be read: no JSON ({one_line(error)}).") from None


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays in a .npz file. One of objects is refused, never unpickled; so is one that is not as large as it says.

    Raises:
        InputError: it cannot be read, is damaged, or unpacks to far more than its size.
    """
    try:
        packed = path.stat().st_size
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            total = sum(entry.file_size for entry in entries)
            if total > max(FREE_BYTES, MOST_RATIO * packed):
                raise InputError(f"{path} is refused: its {packed} bytes would unpack to {total} bytes.")
            found = {}
            for entry in entries:
                with archive.open(entry) as member:
                    found[entry.filename.removesuffix(".npy")] = _read_array(member)
            return found
    except InputError:
        raise
    except Exception as error:  # a damaged archive ends in errors of all kinds
        raise InputError(f"{path} cannot be read: {reason(error)}.") from None


def _read_array(member: IO[bytes]) -> np.ndarray:
    """The array in an open .npy file; it is as large as what there is to read, whatever the header says."""
    if np.lib.format.read_magic(member) != (1, 0):
        raise ValueError("a part of it is no .npy file of version 1.0")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
    if dtype.hasobject:
        raise ValueError("a part of it holds objects, which would be code")
    return np.frombuffer(member.read(), dtype).reshape(shape, order="F" if fortran else "C")


def read_plain(path: Path, instead: str) -> Any:
    """What `torch.save` wrote, of tensors, numbers, texts and their containers; on the CPU.

    Args:
        path: of the file.
        instead: what to do about a file that holds code, for the message.

    Raises:
        InputError: it cannot be read or is damaged, or it holds code, which is refused and never run.
    """
    try:
        check_torch_file(path)
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
        text = one_line(text.partition(". ")[0]).rstrip(".")
        raise InputError(
            f"file {str(path)!r} cannot be read as a PyTorch file: it is none, or damaged ({text})."
        ) from None
