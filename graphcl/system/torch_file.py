"""What a PyTorch file claims, compared with what it holds, before PyTorch reads it.

`torch.load(weights_only=True)` runs no code of a file's. But it believes the file's numbers: up to some versions it
reads as far beyond a record as the file tells it to, a compressed record may unpack to a thousand times its size, a
tensor of one number may be viewed as 10^12 of them, and a list may hold itself ten times, ten times over. Here the
archive is looked at first, and its pickle is gone through with a stand-in for everything that it names: nothing is
imported or called.
"""

from __future__ import annotations

import io
import itertools
import math
import os
import pickle
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import torch

from graphcl.errors import one_line

FREE_BYTES = 16 * 2**20
"""What tensors may claim in any case: views of one number, such as `expand` makes, are honest while they are small."""
MOST_DEPTH = 100
_BYTES = {
    **dict.fromkeys(("DoubleStorage", "LongStorage", "ComplexFloatStorage"), 8),
    **dict.fromkeys(("FloatStorage", "IntStorage"), 4),
    **dict.fromkeys(("HalfStorage", "BFloat16Storage", "ShortStorage"), 2),
    **dict.fromkeys(("CharStorage", "ByteStorage", "BoolStorage", "UntypedStorage"), 1),
    "ComplexDoubleStorage": 16,
}
_TENSORS = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3")
_AROUND_TENSORS = ("_rebuild_parameter", "_rebuild_sparse_tensor")


class UnsoundFileError(ValueError):
    """The file is damaged, or claims what it does not hold."""


def check_torch_file(path: str | os.PathLike[str]) -> None:
    """Refuse a file that `torch.save` cannot have written, or that would unfold to far more than its size.

    Args:
        path: of the file.

    Raises:
        UnsoundFileError: so it is; the message is a few words.
        OSError: it cannot be read.
    """
    size = os.path.getsize(path)
    with Path(path).open("rb") as file:
        try:
            pickled, records = _contents(file, size)
            look = _Look(pickled, records)
            claimed = _claimed(look.load(), len(pickled))
        except (UnsoundFileError, OSError):
            raise
        except Exception as error:  # a damaged pickle ends in errors of all kinds
            told = one_line(error)
            raise UnsoundFileError(f"{type(error).__name__}{told and ': '}{told}") from None
    if claimed > FREE_BYTES + 4 * size:
        raise UnsoundFileError(f"its tensors claim {claimed} bytes, it has {size}")


def _contents(file: IO[bytes], size: int) -> tuple[bytes, dict[str, int]]:
    """The pickle, and the sizes of the records with numbers; of an archive that any reader understands alike."""
    if file.read(4) != b"PK\x03\x04":
        raise UnsoundFileError("no zip archive, which PyTorch writes since version 1.6")
    _check_end(file, size)
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        names = [entry.orig_filename for entry in entries]
        top = names[0].split("/")[0] + "/"
        if len({name.lower() for name in names}) < len(names) or not all(name.startswith(top) for name in names):
            raise UnsoundFileError("its entries are not those of one saved object")
        for entry in entries:
            end = entry.header_offset + 30 + len(entry.orig_filename) + entry.file_size
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                raise UnsoundFileError("it is compressed, which PyTorch never does")
            if entry.flag_bits & 0x1 or end > archive.start_dir:
                raise UnsoundFileError("its entries are not where it says")
        if sum(entry.file_size for entry in entries) > size:
            raise UnsoundFileError("its entries overlap")
        if f"{top}constants.pkl" in names:
            raise UnsoundFileError("a TorchScript program")
        if f"{top}data.pkl" not in names:
            raise UnsoundFileError("no data.pkl in it")
        data = f"{top}data/"
        records = {entry.orig_filename: entry.file_size for entry in entries}
        records = {name.removeprefix(data): held for name, held in records.items() if name.startswith(data)}
        return archive.read(f"{top}data.pkl"), records


def _check_end(file: IO[bytes], size: int) -> None:
    """The table of contents ends where the file does, so that there is but one."""
    file.seek(max(0, size - 98))
    tail = file.read(98)
    sound = tail[-22:-18] == b"PK\x05\x06" and tail[-2:] == b"\0\0"
    if tail[-42:-38] == b"PK\x06\x07":  # the form for archives beyond 4 GB, which PyTorch always adds
        length, start = struct.unpack("<QQ", tail[40:56])
        sound = sound and tail[:4] == b"PK\x06\x06" and start + length + 98 == size
    else:
        length, start = struct.unpack("<LL", tail[-10:-2])
        sound = sound and start + length + 22 == size
    if not sound:
        raise UnsoundFileError("it does not end as a zip archive does")


class _Thing:
    """Stands for whatever the file names, and keeps what it is given."""

    name = ""
    parts: list[Any]

    def __new__(cls, *parts: Any) -> _Thing:
        thing = super().__new__(cls)
        thing.parts = list(parts)
        return thing

    def __setstate__(self, state: Any) -> None:
        self.parts.append(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.parts += (key, value)


class _Storage(_Thing):
    pass


class _Look(pickle._Unpickler):
    """Goes through a pickle; in Python, as the compiled one makes room for as many entries as the file says."""

    def __init__(self, pickled: bytes, records: Mapping[str, int]) -> None:
        super().__init__(io.BytesIO(pickled))
        self._records = records

    def find_class(self, module: str, name: str) -> type[_Thing]:
        if module == "torch._utils" and name.startswith("_rebuild") and name not in (*_TENSORS, *_AROUND_TENSORS):
            raise UnsoundFileError(f"tensors of the kind {name}")
        # The name goes into no message as it is: it is whatever the file's writer liked.
        return type("_Named", (_Thing,), {"name": f"{module}.{name}" if re.fullmatch(r"[\w.]+", module + name) else ""})

    def persistent_load(self, pid: Any) -> _Storage:
        _, kind, key, _, count = pid
        item = _BYTES.get(kind.name.rpartition(".")[2])
        if item is None or type(count) is not int or not isinstance(key, str):
            raise UnsoundFileError("a storage of unknown kind")
        if self._records.get(key) != item * count:
            raise UnsoundFileError(f"a storage claims {item * count} bytes, its record has {self._records.get(key, 0)}")
        return _Storage(item)


def _claimed(content: Any, most: int) -> int:
    """Bytes of all tensors, each as often as it is referred to; refuses what unfolds to more than `most` entries."""
    claimed = count = 0
    path: list[tuple[Any, Iterator[Any]]] = [(None, iter([content]))]
    above: set[int] = set()
    while path:
        item = next(path[-1][1], path)
        if item is path:  # all of it is done
            above.discard(id(path.pop()[0]))
            continue
        if (count := count + 1) > most or len(path) > MOST_DEPTH:
            raise UnsoundFileError("lists within lists without end")
        # PyG's `Data` holds a store that holds the `Data`; a list that holds itself unfolds without end.
        if isinstance(item, dict | list | tuple | set | _Thing) and not (
            isinstance(item, _Thing) and id(item) in above
        ):
            if isinstance(item, _Thing) and item.name.rpartition(".")[2] in _TENSORS:
                claimed += _bytes(*item.parts)
            above.add(id(item))
            path.append((item, _children(item)))
    return claimed


def _children(item: Any) -> Iterator[Any]:
    if isinstance(item, dict):
        return itertools.chain(item, item.values())
    return iter(item.parts if isinstance(item, _Thing) else item)


def _bytes(storage: Any, offset: Any, size: Any, *rest: Any) -> int:
    """What a tensor would fill if it did not share its numbers."""
    if not isinstance(storage, _Storage) or not all(type(n) is int and n >= 0 for n in (offset, *size)):
        raise UnsoundFileError("a tensor of unknown kind")
    # Newer types are stored as bytes; the tensor says of which type.
    named = [each.name.rpartition(".")[2] for each in rest if isinstance(each, type) and issubclass(each, _Thing)]
    kinds = [kind.itemsize for name in named if isinstance(kind := getattr(torch, name, None), torch.dtype)]
    return math.prod(size) * max([storage.parts[0], *kinds])
