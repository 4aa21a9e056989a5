"""Write a data set into a folder, one piece at a time, so that memory use does not grow with the number of graphs."""

from __future__ import annotations

import contextlib
import filecmp
import math
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from graphcl.arguments import named_arguments, problems
from graphcl.datasets.dataset import Benchmark, GraphDataset
from graphcl.datasets.disk.npy import CODES, HEADER, npy_header
from graphcl.datasets.disk.on_disk import META, MappedDataset, Meta, absolute, check_attribute, open_on_disk
from graphcl.datasets.disk.pieces import in_pieces, pieces
from graphcl.datasets.features import check_features
from graphcl.datasets.load import load_dataset
from graphcl.datasets.molecules.smiles import molecule_pieces
from graphcl.datasets.molecules.table import is_molecules, read_table
from graphcl.datasets.store import not_resident
from graphcl.errors import InputError, reason

_PIECE = 2**24
"""Number of bytes that are copied at a time."""


@named_arguments
def write_on_disk(
    source: object,
    folder: str | os.PathLike[str],
    data_root: str | os.PathLike[str] = "datasets",
    mirror: str | os.PathLike[str] | None = None,
    features: str = "auto",
    max_degree: int = 64,
    name: str | None = None,
    categories: bool = False,
    smiles: str | None = None,
    target: str | Sequence[str] = (),
    invalid: str = "skip",
    on_write: Callable[[int], object] = lambda size: None,
) -> MappedDataset:
    """Write graphs into a new folder, which `open_on_disk` and `load_dataset` memory-map, and return the data set.

    The files are written into a hidden folder, which is renamed to `folder` when it is complete. The hidden folder is
    removed after an error, but remains if the process is killed.

    Args:
        source: any source of `load_dataset`; or an iterable or generator of `Data`, batches or PyG data sets, read one
            at a time. A PyG `OnDiskDataset` is read in pieces too.
        folder: path of the new folder, which must not exist.
        features: see `load_dataset`, as for the other arguments that it has. An iterable cannot have degrees, as they
            need all graphs at once.
        name: name of the data set; default: the name that `load_dataset` gives it.
        smiles: see `load_dataset`. Molecules are parsed and written in chunks; the SMILES themselves are not kept.
        on_write: called with the number of bytes of each piece that was written, for a progress bar.

    Returns:
        The data set, opened with `open_on_disk`.

    Raises:
        InputError: the folder exists or cannot be written, or `source` cannot be used.
    """
    check_features(features, max_degree)
    path = absolute(folder)
    if os.path.lexists(path):
        raise InputError(f"{str(path)!r} exists already and is never overwritten; give another folder.")
    shards: Iterator[tuple[GraphDataset, int]]
    if is_molecules(source, smiles) and features in ("auto", "labels"):
        table = read_table(source, smiles, [target] if isinstance(target, str) else target)
        name, shards = name or table.name, molecule_pieces(table, invalid)
    elif in_pieces(source):
        given = getattr(source, "name", None)
        name = name or (given if isinstance(given, str) else "own")
        shards = pieces(source, name, features, categories)  # type: ignore[arg-type]
    else:
        whole = load_dataset(
            source, data_root, mirror, features, max_degree,
            categories=categories, smiles=smiles, target=target, invalid=invalid,
        )  # fmt: skip
        name, shards = name or whole.name, iter([(whole, len(whole))])

    staging = path.parent / f".{path.name}-{uuid.uuid4().hex[:12]}"
    try:
        staging.mkdir(parents=True)
        with contextlib.ExitStack() as files:
            writer = _Writer(staging, name, files, on_write)
            for shard, count in shards:
                writer.add(shard, count)
            writer.finish()
        os.rename(staging, path)
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {reason(error)}.") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return open_on_disk(path)


class _Writer:
    """Writer that appends graphs to the files of a data set on disk."""

    def __init__(self, folder: Path, name: str, files: contextlib.ExitStack, on_write: Callable[[int], object]) -> None:
        self._folder, self._name, self._files, self._on_write = folder, name, files, on_write
        self._columns: dict[str, _Column] = {}
        self._num_graphs = 0
        self._features, self._degree_columns = "", 0
        self._classes: Tensor | None = torch.empty(0, dtype=torch.long)
        self._benchmark: Benchmark | None = None

    def add(self, shard: GraphDataset, count: int) -> None:
        """Append the first `count` graphs of the data set `shard`."""
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
            column.add(value, cut, self._num_graphs, self._on_write)
        self._num_graphs += count

    def finish(self) -> None:
        """Complete the files of all attributes, and write the splits and `graphcl.json`."""
        cut_as: dict[str, str] = {}
        for key, column in self._columns.items():
            column.finish(self._num_graphs)
            kept = {other for other in cut_as.values() if filecmp.cmp(column.cuts, self._columns[other].cuts, False)}
            cut_as[key] = kept.pop() if kept else key
            if cut_as[key] != key:
                column.cuts.unlink()
        if self._classes is not None:
            self._columns["y"].replace(self._classes)
        benchmark = None
        if self._benchmark is not None:
            benchmark = {key: each for key, each in vars(self._benchmark).items() if key != "split"}
            for part, graphs in self._benchmark.split.items():
                with (self._folder / f"split.{part}.npy").open("xb") as file:
                    file.write(npy_header(torch.long, tuple(graphs.shape)))
                    _append(file, graphs)
                    _flush(file)
        try:
            classes = None if self._classes is None else self._classes.tolist()
            meta = Meta.model_validate({
                "name": self._name, "features": self._features, "degree_columns": self._degree_columns,
                "num_graphs": self._num_graphs, "classes": classes, "attributes": cut_as, "benchmark": benchmark,
            })  # fmt: skip
        except ValidationError as error:
            raise InputError(problems(error, Meta)[0]) from None
        with (self._folder / META).open("x") as text:
            text.write(meta.model_dump_json(indent=1) + "\n")
            _flush(text)


class _Column:
    """Writer that appends one attribute of the graphs to a `.npy` file, along the axis `dim`.

    The file is in C order, so only the first axis can grow. If `dim` is a later axis, there is one temporary file for
    each index of the earlier axes, and `finish` joins these files.
    """

    def __init__(self, folder: Path, key: str, value: Tensor, dim: int, what: str, files: contextlib.ExitStack) -> None:
        self.values, self.cuts = folder / f"{key}.npy", folder / f"{key}.slices.npy"
        self._key, self._what, self._dim, self._dtype = key, what, dim, value.dtype
        self._before, self._after = value.shape[:dim], value.shape[dim + 1 :]
        parts = math.prod(self._before)
        if value.dtype not in CODES or not 1 <= parts <= 64 or value.dim() > 8:
            kind = str(value.dtype).removeprefix("torch.")
            raise InputError(f"{what}: `{key}`, {list(value.shape)} of {kind}, cannot be stored; remove or convert it.")
        names = [self.values, *(folder / f"{key}.{number}.part" for number in range(1, parts))]
        self._parts = [files.enter_context(name.open("xb")) for name in names]
        self._cut = files.enter_context(self.cuts.open("xb"))
        self._size = 0
        self._parts[0].write(bytes(HEADER))
        self._cut.write(bytes(HEADER + 8))  # 8 bytes of zeros after the header: the first graph starts at 0

    def add(self, value: Tensor, cut: Tensor, first: int, on_write: Callable[[int], object]) -> None:
        """Append consecutive graphs, of which `first` is the first: `value` along `dim`, cut at `cut [graphs + 1]`."""
        size = int(cut[-1])
        expected = (*self._before, value.size(self._dim) if value.dim() > self._dim else 0, *self._after)
        if value.shape != expected or value.dtype != self._dtype:
            kinds = [str(dtype).removeprefix("torch.") for dtype in (value.dtype, self._dtype)]
            shape = [*self._before, "*", *self._after]
            raise InputError(
                f"{self._what}: `{self._key}` of the graphs from {first} on is {list(value.shape)} of {kinds[0]}, "
                f"before it was {shape} of {kinds[1]}; use one shape and dtype."
            )
        rows = value.reshape(len(self._parts), value.size(self._dim), *self._after)
        step = max(1, _PIECE // max(1, self._dtype.itemsize * math.prod(self._after)))
        for part, file in zip(rows, self._parts, strict=True):
            for start in range(0, size, step):
                piece = part[start : min(start + step, size)]
                _append(file, piece)
                on_write(piece.nbytes)
        for start in range(1, cut.numel(), _PIECE // 8):
            _append(self._cut, cut[start : start + _PIECE // 8] + self._size)
        self._size += size

    def finish(self, num_graphs: int) -> None:
        """Concatenate the temporary files and write the headers of the `.npy` files."""
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
            file.write(npy_header(dtype, shape))
            _flush(file)
            file.close()

    def replace(self, classes: Tensor) -> None:
        """Replace the stored class values by their indices in `classes`, which is in ascending order."""
        if torch.equal(classes, torch.arange(classes.numel())):
            return
        values = np.memmap(self.values, np.int64, "r+", HEADER)
        for start in range(0, len(values), _PIECE // 8):
            piece = slice(start, start + _PIECE // 8)
            values[piece] = np.searchsorted(classes.numpy(), values[piece])
        values.flush()


def _append(file: Any, values: Tensor) -> None:
    if values.numel():
        file.write(values.detach().cpu().contiguous().numpy().data.cast("B"))


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
