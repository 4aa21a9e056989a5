"""From any source of graphs to a folder that `open_on_disk` opens, in memory that does not grow with the graphs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, Dataset, InMemoryDataset, OnDiskDataset

from graphcl.datasets.dataset import Benchmark, GraphDataset
from graphcl.datasets.features import check_features
from graphcl.datasets.load import load_dataset, prepare
from graphcl.datasets.networks import is_networkx
from graphcl.datasets.on_disk import DTYPES, FORMAT, META, VERSION, MappedDataset, check_attribute, open_on_disk
from graphcl.datasets.own import collate_dataset, collate_graphs
from graphcl.datasets.resident import not_resident
from graphcl.errors import InputError, InputTypeError, reason

_GROUP = 4096
"""Graphs that are collated at a time where they come one by one."""
_PIECE = 2**24
"""Bytes that are copied at a time."""
_HEADER = 256
_CODES = {dtype: code for code, dtype in DTYPES.items()}


def write_on_disk(
    source: object,
    folder: str | os.PathLike[str],
    root: str | os.PathLike[str] = "datasets",
    mirror: str | os.PathLike[str] | None = None,
    features: str = "auto",
    max_degree: int = 64,
    name: str | None = None,
) -> MappedDataset:
    """Write graphs into a new folder, from which `open_on_disk` and `load_dataset` map them into memory.

    The folder appears when everything is written; until then the files lie beside it in a hidden folder, which is
    removed if something goes wrong (and stays where the process is killed).

    Args:
        source: whatever `load_dataset` takes; or an iterable, also a generator, of `Data`, of batches, or of PyG data
            sets, of which no more than one at a time is held. A PyG `OnDiskDataset` is read in pieces too.
        folder: must not exist.
        root: see `load_dataset`.
        mirror: see `load_dataset`.
        features: see `load_dataset`; of an iterable no degrees, as these need all graphs at once.
        max_degree: see `load_dataset`.
        name: what to call the data set; default: as `load_dataset` does.

    Returns:
        The data set, opened.

    Raises:
        InputError: the folder exists or cannot be written, or see `load_dataset`.
    """
    check_features(features, max_degree)
    if not isinstance(folder, str | os.PathLike) or isinstance(os.fspath(folder), bytes):
        raise InputTypeError(f"`folder` must be a path, got {type(folder).__name__}.")
    path = Path(os.path.abspath(os.path.expanduser(folder)))
    if os.path.lexists(path):
        raise InputError(f"{str(path)!r} exists already, and nothing is ever overwritten; give another folder.")
    if _in_pieces(source):
        given = getattr(source, "name", None)
        name = name or (given if isinstance(given, str) else "own")
        shards = _shards(source, name, features)  # type: ignore[arg-type]
    else:
        whole = load_dataset(source, root, mirror, features, max_degree)
        name, shards = name or whole.name, iter([(whole, len(whole))])

    staging = path.parent / f".{path.name}-{uuid.uuid4().hex[:12]}"
    try:
        staging.mkdir(parents=True)
        with contextlib.ExitStack() as files:
            writer = _Writer(staging, name, files)
            for shard, count in shards:
                writer.add(shard, count)
            writer.finish()
        os.rename(staging, path)
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {reason(error)}.") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return open_on_disk(path)


def _in_pieces(source: object) -> bool:
    """Whether the source is to be read piece by piece, as opposed to what `load_dataset` reads as a whole."""
    if isinstance(source, str | os.PathLike | bytes | Data | InMemoryDataset):
        return isinstance(source, GraphDataset) and source._indices is not None  # a part: its tensors are the whole's
    if isinstance(source, list | tuple):
        return any(isinstance(each, Batch | torch.utils.data.Dataset | list | tuple) for each in source)
    return isinstance(source, Iterable | Dataset) and not is_networkx(source)


def _shards(source: Iterable[object], name: str, features: str) -> Iterator[tuple[GraphDataset, int]]:
    """Checked data sets, and how many graphs of each are to be taken."""
    if "degree" in features:
        raise InputError(f"`features` {features!r} needs all graphs at once; give `x` in the graphs.")
    done, chosen = 0, features

    def prepared(data: Data, slices: dict[str, Tensor] | None) -> GraphDataset:
        nonlocal chosen
        what = name if done == 0 else f"{name} (graphs from {done} on)"
        shard = prepare(data, slices, what, chosen, categories=isinstance(source, GraphDataset))
        chosen = shard.features
        return shard

    told = source if isinstance(source, GraphDataset) else None  # what is in its `x` already
    for group in _groups(source):
        if isinstance(group, InMemoryDataset):
            shard, count = prepared(*collate_dataset(group, name)), len(group)
        else:
            # A single graph is given twice, as a data set has two or more, and taken once.
            graphs = group if len(group) > 1 else 2 * group
            shard, count = prepared(*collate_graphs(graphs, f"{name} (graphs from {done} on)")), len(group)
        if told is not None:
            shard.features, shard.degree_columns = told.features, told.degree_columns
        yield shard, count
        done += count
    if done < 2:
        raise InputError(f"{name} holds {['no graph', '1 graph'][done]}; contrasting graphs needs at least two.")


def _groups(source: Iterable[object]) -> Iterator[list[Data] | InMemoryDataset]:
    """Lists of at most `_GROUP` graphs, and data sets that are collated already."""
    if isinstance(source, OnDiskDataset):
        for start in range(0, len(source), _GROUP):
            yield source.multi_get(range(start, min(start + _GROUP, len(source))))
        return
    waiting: list[Any] = []
    for item in source:
        if isinstance(item, InMemoryDataset) and len(item) > 1:
            if waiting:
                yield waiting
            waiting = []
            yield item
            continue
        if isinstance(item, Batch):
            waiting += item.to_data_list()
        elif isinstance(item, list | tuple | torch.utils.data.Dataset):
            waiting += [item[number] for number in range(len(item))]  # type: ignore[arg-type]
        else:
            waiting.append(item)
        while len(waiting) >= _GROUP:
            yield waiting[:_GROUP]
            waiting = waiting[_GROUP:]
    if waiting:
        yield waiting


class _Writer:
    """Appends data sets to the files of a folder."""

    def __init__(self, folder: Path, name: str, files: contextlib.ExitStack) -> None:
        self._folder, self._name, self._files = folder, name, files
        self._columns: dict[str, _Column] = {}
        self._num_graphs = 0
        self._features, self._degree_columns = "", 0
        self._classes: Tensor | None = torch.empty(0, dtype=torch.long)
        self._benchmark: Benchmark | None = None

    def add(self, shard: GraphDataset, count: int) -> None:
        """Append the first `count` graphs of a data set."""
        if why := not_resident(shard):
            raise InputError(f"{self._name} cannot be stored: {why}.")
        data, slices = shard._data, shard.slices or {}
        for key in slices:
            if not isinstance(data[key], Tensor):
                raise InputError(f"{self._name}: `{key}` cannot be stored, only tensors and numbers; remove it.")
        self._features, self._degree_columns = shard.features, shard.degree_columns
        self._benchmark = shard.benchmark
        self._classes = None if self._classes is None or shard.classes is None else self._classes
        if not self._columns:
            for key in slices:
                check_attribute(key, self._name)
                dim = (data.__cat_dim__(key, data[key]) or 0) % max(data[key].dim(), 1)
                self._columns[key] = _Column(self._folder, key, data[key], dim, self._name, self._files)
        if slices.keys() != self._columns.keys():
            key = min(slices.keys() ^ self._columns.keys())
            raise InputError(f"{self._name}: only some graphs have `{key}`; give it to all graphs or to none.")
        for key, column in self._columns.items():
            value, cut = data[key], slices[key][: count + 1].cpu()
            if key == "y" and shard.classes is not None:
                value = shard.classes[value]
                if self._classes is not None:
                    self._classes = torch.cat([self._classes, shard.classes]).unique()
            column.add(value, cut, self._num_graphs)
        self._num_graphs += count

    def finish(self) -> None:
        """Complete the files and write `graphcl.json`."""
        cut_as: dict[str, str] = {}
        for key, column in self._columns.items():
            column.finish(self._num_graphs)
            same = (
                other for other in cut_as if cut_as[other] == other and _same(column.cuts, self._columns[other].cuts)
            )
            cut_as[key] = next(same, key)
            if cut_as[key] != key:
                column.cuts.unlink()
        if self._classes is not None:
            self._columns["y"].replace(self._classes)
        meta = {
            "format": FORMAT,
            "version": VERSION,
            "name": self._name,
            "features": self._features,
            "degree_columns": self._degree_columns,
            "num_graphs": self._num_graphs,
            "classes": None if self._classes is None else self._classes.tolist(),
            "attributes": cut_as,
        }
        if self._benchmark is not None:
            meta["benchmark"] = {key: each for key, each in vars(self._benchmark).items() if key != "split"}
            for part, graphs in self._benchmark.split.items():
                with (self._folder / f"split.{part}.npy").open("xb") as file:
                    file.write(_npy_header(torch.long, tuple(graphs.shape)))
                    _append(file, graphs)
                    _to_disk(file)
        with (self._folder / META).open("x") as text:
            text.write(json.dumps(meta, indent=1) + "\n")
            _to_disk(text)


class _Column:
    """One attribute's files. Graphs follow one another along `dim`; what lies before it is written apart at first."""

    def __init__(self, folder: Path, key: str, value: Tensor, dim: int, what: str, files: contextlib.ExitStack) -> None:
        self.values, self.cuts = folder / f"{key}.npy", folder / f"{key}.slices.npy"
        self._key, self._what, self._dim, self._dtype = key, what, dim, value.dtype
        self._before, self._after = value.shape[:dim], value.shape[dim + 1 :]
        parts = math.prod(self._before)
        if value.dtype not in _CODES or not 1 <= parts <= 64 or value.dim() > 8:
            kind = str(value.dtype).removeprefix("torch.")
            raise InputError(f"{what}: `{key}`, {list(value.shape)} of {kind}, cannot be stored; remove or convert it.")
        names = [self.values, *(folder / f"{key}.{number}.part" for number in range(1, parts))]
        self._parts = [files.enter_context(name.open("xb")) for name in names]
        self._cut = files.enter_context(self.cuts.open("xb"))
        self._size = 0
        self._parts[0].write(bytes(_HEADER))
        self._cut.write(bytes(_HEADER + 8))  # the first part starts at 0

    def add(self, value: Tensor, cut: Tensor, first: int) -> None:
        size = int(cut[-1])
        expected = (*self._before, value.size(self._dim) if value.dim() > self._dim else 0, *self._after)
        if value.shape != expected or value.dtype != self._dtype:
            kinds = [str(dtype).removeprefix("torch.") for dtype in (value.dtype, self._dtype)]
            shape = [*self._before, "*", *self._after]
            raise InputError(
                f"{self._what}: `{self._key}` of the graphs from {first} on is {list(value.shape)} of {kinds[0]}, "
                f"before it was {shape} of {kinds[1]}; give all graphs the same."
            )
        rows = value.reshape(len(self._parts), value.size(self._dim), *self._after)
        step = max(1, _PIECE // max(1, self._dtype.itemsize * math.prod(self._after)))
        for part, file in zip(rows, self._parts, strict=True):
            for start in range(0, size, step):
                _append(file, part[start : min(start + step, size)])
        for start in range(1, cut.numel(), _PIECE // 8):
            _append(self._cut, cut[start : start + _PIECE // 8] + self._size)
        self._size += size

    def finish(self, num_graphs: int) -> None:
        """Put the parts together and say in front what they are."""
        whole = self._parts[0]
        for part in self._parts[1:]:
            part.close()
            with open(part.name, "rb") as source:
                shutil.copyfileobj(source, whole, _PIECE)
            os.unlink(part.name)
        for file, dtype, shape in (
            (whole, self._dtype, (*self._before, self._size, *self._after)),
            (self._cut, torch.long, (num_graphs + 1,)),
        ):
            file.seek(0)
            file.write(_npy_header(dtype, shape))
            _to_disk(file)
            file.close()

    def replace(self, classes: Tensor) -> None:
        """Put 0, 1, ... in the place of the class values, which are in ascending order."""
        if torch.equal(classes, torch.arange(classes.numel())):
            return
        values = np.memmap(self.values, np.int64, "r+", _HEADER)
        for start in range(0, len(values), _PIECE // 8):
            piece = slice(start, start + _PIECE // 8)
            values[piece] = np.searchsorted(classes.numpy(), values[piece])
        values.flush()


def _append(file: Any, values: Tensor) -> None:
    if values.numel():
        file.write(values.detach().cpu().contiguous().numpy().data.cast("B"))


def _npy_header(dtype: torch.dtype, shape: tuple[int, ...]) -> bytes:
    """The first `_HEADER` bytes of a .npy file, version 1.0."""
    text = repr({"descr": _CODES[dtype], "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little") + text.ljust(_HEADER - 11) + b"\n"


def _same(one: Path, other: Path) -> bool:
    if one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        while (piece := first.read(_PIECE)) == second.read(_PIECE):
            if not piece:
                return True
    return False


def _to_disk(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
