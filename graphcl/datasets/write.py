"""Write a data set into a folder, one piece at a time, so that memory use does not grow with the number of graphs."""

from __future__ import annotations

import contextlib
import copy
import filecmp
import math
import os
import shutil
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.arguments import checked, keywords
from graphcl.datasets.collate import describe, not_resident
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.load import kind_of, load_dataset
from graphcl.datasets.on_disk import (
    CODES,
    HEADER,
    META,
    MappedDataset,
    Meta,
    check_attribute,
    npy_header,
    open_on_disk,
)
from graphcl.datasets.settings import Loading, Table, loading
from graphcl.datasets.sources import Pieces, Request, as_path
from graphcl.datasets.tables import write_invalid
from graphcl.errors import InputError, one_line, reason
from graphcl.graphs.compact import ROWS, Compact, Layout, layout_of
from graphcl.system.arrays import encode, write_array
from graphcl.system.files import claimed, whole_folder, write_text
from graphcl.system.progress import Update, progress


@checked
@keywords(Loading, ["tu_features", "categories", *Table.model_fields])
def write_on_disk(
    source: object,
    folder: str | os.PathLike[str],
    data_root: str | os.PathLike[str] = "datasets",
    mirror: str | os.PathLike[str] | None = None,
    features: str = "auto",
    max_degree: int = 64,
    name: str | None = None,
    *,
    executor: Executor | None = None,
    **settings: Any,
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
        executor: processes that parse a table. After a kill, the next call parses the rest only.
        **settings: `tu_features`, `categories`, `id`, `target`, `group`, `invalid` and those that extensions add, see
            `load_dataset`. A table is parsed and written in chunks. `invalid.csv` in the folder lists invalid rows or
            graphs.

    Returns:
        The data set, opened with `open_on_disk`.

    Raises:
        InputError: the folder exists or cannot be written, or `source` cannot be used.
    """
    source, path = as_path(source), Path(os.path.abspath(os.path.expanduser(folder)))
    if os.path.lexists(path):
        raise InputError(f"{str(path)!r} exists already and is never overwritten; give another folder.")
    kept = path.parent / f".{path.name}-parts"
    values = loading(features=features, max_degree=max_degree, **settings)
    request = Request(values, Path(data_root), mirror, executor=executor, folder=kept)
    kind = kind_of(source, request)
    pieces = kind.pieces(source, request)
    if executor is not None and (pieces is None or "executor" not in kind.settings):
        raise InputError("only a table is parsed by many workers; leave out `workers` and `executor`.")
    if pieces is None:
        whole = load_dataset(source, data_root, mirror, features, max_degree, **settings)
        pieces = Pieces(whole.name, iter([whole]), list(whole.invalid))

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with claimed(path), whole_folder(path) as staging, contextlib.ExitStack() as files:
            bar = files.enter_context(progress("writing", None, "B"))
            writer = _Writer(staging, one_line(name or pieces.name), files, bar)
            for part in pieces.parts:
                writer.add(part)
            writer.finish()
            write_invalid(pieces.invalid, staging / "invalid.csv")
        shutil.rmtree(kept, ignore_errors=True)
    except OSError as error:
        rest = f"; parsed rows are kept in {kept}" if kept.is_dir() else ""
        raise InputError(f"cannot write {str(path)!r}: {error.strerror or reason(error)}{rest}.") from None
    except KeyboardInterrupt as interrupt:
        if kept.is_dir():
            line = f"parsed rows are kept in {kept}; the same command parses the rest"
            raise type(interrupt)(line) from None
        raise
    return open_on_disk(path)


class _Writer:
    """Writer that appends graphs to the files of a data set on disk."""

    def __init__(self, folder: Path, name: str, files: contextlib.ExitStack, on_write: Update) -> None:
        self._folder, self._name, self._files, self._on_write = folder, name, files, on_write
        self._columns: dict[str, _Column] = {}
        self._num_graphs = 0
        self._classes: dict[Any, int] | None = {}  # class value -> its number in `y` of the file, by first occurrence

    def add(self, part: GraphDataset) -> None:
        """Append the graphs of the data set `part`."""
        if why := not_resident(part):
            raise InputError(f"{self._name} cannot be stored: {why}.")
        data, slices, self._last = copy.copy(part._data), part.slices or {}, part
        if part.classes is None or self._classes is None:
            self._classes = None
        else:
            numbers = [self._classes.setdefault(value, len(self._classes)) for value in part.classes.tolist()]
            if len({*map(type, self._classes)}) > 1:
                raise InputError(f"{self._name}: `y` of some graphs is a string, of others a number; use one type.")
            data.y = torch.tensor(numbers)[data.y]
        if not self._columns:
            for key in slices:
                check_attribute(key, self._name)
                self._columns[key] = _Column(self._folder, key, data, self._name, self._files)
        for key in slices.keys() ^ self._columns.keys():
            raise InputError(f"{self._name}: only some graphs have `{key}`; give it to all graphs or to none.")
        for key, column in self._columns.items():
            value, cut = data[key], slices[key].cpu()
            if column.text != _is_text(value):
                raise InputError(f"{self._name}: `{key}` of some graphs is a string, of others a number; use one type.")
            if column.text:
                value, cut = map(torch.from_numpy, encode(value))
            column.add(value, cut, self._num_graphs, self._on_write)
        self._num_graphs += len(part)

    def finish(self) -> None:
        """Complete the files of all attributes, and write the splits and `graphcl.json`."""
        cut_as: dict[str, str] = {}
        for key, column in self._columns.items():
            column.finish(self._num_graphs)
            same = (other for other in cut_as.values() if filecmp.cmp(column.cuts, self._columns[other].cuts, False))
            cut_as[key] = next(same, key)
            if cut_as[key] != key:
                column.cuts.unlink()
        classes = None if self._classes is None else sorted(self._classes)
        if self._classes is not None and classes is not None:
            index = np.argsort([self._classes[value] for value in classes])
            y = np.memmap(self._columns["y"].values, np.int64, "r+", HEADER)
            y[:] = index[y]
            y.flush()
        benchmark, about = self._last.benchmark, dict[str, Any]()
        if benchmark is not None:
            for part, graphs in benchmark.split.items():
                write_array(self._folder / f"split.{part}.npy", graphs.numpy())
            about = {**vars(benchmark), "tasks": [*benchmark.tasks], "classes": [*benchmark.classes]}
            del about["split"]
        meta = Meta.of({
            "name": self._name, "features": self._last.features, "degree_columns": self._last.degree_columns,
            "num_graphs": self._num_graphs, "attributes": cut_as,
            "compact": {key: column.compact for key, column in self._columns.items() if column.compact},
            "texts": [key for key, column in self._columns.items() if column.text],
            "classes": classes, "benchmark": about or None,
        })  # fmt: skip
        write_text(self._folder / META, meta.model_dump_json(indent=1) + "\n")


class _Column:
    """Writer that appends one attribute of the graphs to a `.npy` file, along the axis `dim` of PyG's batches.

    The file is in C order, so only the first axis can grow. If `dim` is a later axis, there is one temporary file for
    each index of the earlier axes, and `finish` joins these files.
    """

    def __init__(self, folder: Path, key: str, data: Data, what: str, files: contextlib.ExitStack) -> None:
        value = data[key]
        self.text = _is_text(value)
        if self.text:
            value, _ = map(torch.from_numpy, encode(value))
        if not isinstance(value, Tensor):
            raise InputError(f"{what}: `{key}` cannot be stored, only tensors, numbers and strings; remove it.")
        self.values, self.cuts = folder / f"{key}.npy", folder / f"{key}.slices.npy"
        self._dim = (data.__cat_dim__(key, value) or 0) % max(value.dim(), 1)
        self._what, self._dtype = f"{what}: `{key}`", value.dtype
        self._before, self._after = value.shape[: self._dim], value.shape[self._dim + 1 :]
        parts = math.prod(self._before)
        self._files = files
        wide = value.dim() == 2 and 0 < value.size(1) < 2**16
        self._packs = key in ("x", "edge_attr") and wide and value.dtype in (torch.float32, torch.float64, torch.int64)
        self._layout: Layout | None = None
        self.compact: dict[str, Any] = {}  # the entry of `graphcl.json`, if the columns are compact
        if value.dtype not in CODES or not 1 <= parts <= 64:
            raise InputError(f"{self._what}, {describe(value)}, cannot be stored; remove or convert it.")
        names = [self.values, *(folder / f"{key}.{number}.part" for number in range(1, parts))]
        self._parts = [files.enter_context(name.open("xb")) for name in names]
        self._cut = files.enter_context(self.cuts.open("xb"))
        self._size = 0
        self._parts[0].write(bytes(HEADER))
        self._cut.write(bytes(HEADER + 8))  # 8 bytes of zeros after the header: the first graph starts at 0

    def add(self, value: Tensor, cut: Tensor, first: int, on_write: Update) -> None:
        """Append consecutive graphs, of which `first` is the first: `value` along `dim`, cut at `cut [graphs + 1]`."""
        size, around = int(cut[-1]), (value.shape[: self._dim], value.shape[self._dim + 1 :])
        if around != (self._before, self._after) or value.dtype != self._dtype:
            raise InputError(
                f"{self._what} of the graphs from {first} on is {describe(value)}; use one shape and dtype."
            )
        if self._packs:
            parts = value.parts() if isinstance(value, Compact) else value.cpu().split(ROWS)
            for part in parts:
                on_write(self._pack(part))
        else:
            rows = value.reshape(len(self._parts), value.size(self._dim), *self._after)
            for part, file in zip(rows, self._parts, strict=True):
                _append(file, part)
                on_write(part.nbytes)
        _append(self._cut, cut[1:] + self._size)
        self._size += size

    def _pack(self, rows: Tensor) -> int:
        """Append rows in the fewest bytes, which are those of all rows so far; return the number of bytes."""
        layout = layout_of(rows, self._layout)
        if layout is None:  # no rows yet
            return 0
        if self._layout not in (None, layout):
            self._write_again(self._layout, layout)
        self._layout = layout
        packed = layout.pack(rows)
        _append(self._parts[0], packed)
        return packed.nbytes

    def _write_again(self, before: Layout, layout: Layout) -> None:
        """Write the rows so far in a finer layout."""
        path = self.values.with_suffix(".again")
        self._parts[0].close()
        self._parts[0] = self._files.enter_context(path.open("xb"))
        self._parts[0].write(bytes(HEADER))
        with self.values.open("rb") as source:
            source.seek(HEADER)
            while content := source.read(ROWS * before.row_bytes):
                raw = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, before.row_bytes)
                _append(self._parts[0], layout.pack(before.expand(raw)))
        os.replace(path, self.values)

    def finish(self, num_graphs: int) -> None:
        """Concatenate the temporary files and write the headers of the `.npy` files."""
        whole = self._parts[0]
        for part in self._parts[1:]:
            part.close()
            with open(part.name, "rb") as source:
                shutil.copyfileobj(source, whole)
            os.unlink(part.name)
        header = npy_header(self._dtype, (*self._before, self._size, *self._after))
        if self._layout is not None and self._layout.is_smaller:
            header = npy_header(torch.uint8, (self._size, self._layout.row_bytes))
            kinds, widths = zip(*self._layout.blocks, strict=True)
            self.compact = {"dtype": str(self._dtype).removeprefix("torch."), "kinds": [*kinds], "widths": [*widths]}
        for file, text in ((whole, header), (self._cut, npy_header(torch.long, (num_graphs + 1,)))):
            file.seek(0)
            file.write(text)
            file.close()


def _is_text(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _append(file: Any, values: Tensor) -> None:
    if values.numel():
        file.write(values.detach().cpu().contiguous().numpy().data.cast("B"))
