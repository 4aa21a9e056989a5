"""Open data sets on disk as memory-mapped files; only the pages that are accessed are loaded.

    FOLDER/graphcl.json     name, features, classes, number of graphs, slices file of each attribute, ...
    FOLDER/x.npy            the attribute `x` of all graphs, concatenated as in PyG's `InMemoryDataset`; one-hot columns
                            as category numbers, other columns in fewer bytes where exact (`compact` in graphcl.json)
    FOLDER/x.slices.npy     start of each graph in `x`, `[n + 1]`; attributes with equal slices share one file
    FOLDER/id.npy           a string attribute of all graphs, concatenated as UTF-8 bytes
    FOLDER/split.train.npy  benchmark only: indices of the training graphs; also split.valid.npy, split.test.npy

`numpy.load(file, mmap_mode="r")` reads each `.npy` file. Writing a folder checks all values. Opening a folder checks
`graphcl.json`, file headers, sizes and slices; edges and features are checked when they are read.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, ValidationError
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.separate import separate

from graphcl.arguments import Count, Name, Settings, interval, named_arguments, problems
from graphcl.datasets.collate import LARGEST, describe
from graphcl.datasets.dataset import Benchmark, Classes, GraphDataset
from graphcl.datasets.settings import FeatureName
from graphcl.errors import InputError, one_line, reason
from graphcl.graphs.compact import Compact, Layout
from graphcl.system.arrays import decode
from graphcl.system.files import read_json

META = "graphcl.json"
CHECKED = ("edge_index", "x", "edge_attr", "edge_weight")
"""Attributes that `MappedDataset.check` checks."""
_BLOCK, _BLOCKS = 4096, 1024
"""Size in bytes of the blocks that `MappedDataset.fingerprint` reads, and their largest number in one file."""
_INTEGERS, _FLOATS = ("uint8", "int8", "int16", "int32", "int64"), ("float16", "float32", "float64")
_NAMES = ("bool", *_INTEGERS, *_FLOATS, "complex64", "complex128")
_DTYPES: dict[str, torch.dtype] = {np.dtype(name).str: getattr(torch, name) for name in _NAMES}
"""NumPy's type code in native byte order, such as `<f4` -> torch dtype."""
CODES = {dtype: code for code, dtype in _DTYPES.items()}
_FLAGS = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
"""A private mapping, which reserves no memory, so that files may exceed the memory."""
HEADER = 256
"""Number of bytes in a header that `npy_header` returns."""
_Int64 = Annotated[int, interval("[-9223372036854775808, 9223372036854775808)")]


class _BenchmarkMeta(Settings):
    """The entry `benchmark` of `graphcl.json`."""

    task_type: Name
    eval_metric: Name
    num_tasks: Count
    tasks: list[str] = []  # noqa: RUF012, pydantic copies it
    classes: list[str] = []  # noqa: RUF012


class _CompactMeta(Settings):
    """Columns in `graphcl.json` whose file holds bytes, see `graphcl.graphs.compact.Layout`."""

    dtype: Literal["float32", "float64", "int64"]
    kinds: list[Literal["code8", "code16", "float16", "float32", "float64", "uint8", "int16", "int32", "int64"]]
    widths: list[Count]


class Meta(Settings):
    """The content of `graphcl.json`."""

    format: Literal["graphcl graphs on disk"] = "graphcl graphs on disk"
    version: Literal[3] = 3
    name: Name
    features: FeatureName
    degree_columns: Annotated[int, interval("[0, inf)")]
    num_graphs: Annotated[int, interval("[1, 1e15)")]
    classes: list[_Int64] | list[str] | None = None
    attributes: dict[str, str]
    """Attribute -> attribute that names its slices file; attributes with equal slices share one file."""
    texts: list[str] = Field([])
    """Attributes that hold a string for each graph, as UTF-8 bytes."""
    compact: dict[str, _CompactMeta] = Field({})
    """Attributes whose file holds the bytes of compact columns, uint8 `[rows, bytes]`."""
    benchmark: _BenchmarkMeta | None = None


class MappedDataset(GraphDataset):
    """A `GraphDataset` whose tensors are memory-mapped files; a page of a file is read on first access.

    The mapping is private: writing into a tensor changes this process's copy of the page, never the file.
    `fingerprint` reads sizes, slices, labels, groups, ids, strings and 1,024 evenly spaced blocks of 4 kB of every
    other file, so a change between the blocks goes unnoticed.

    Attributes:
        folder: folder of the memory-mapped files.
    """

    folder: Path

    def get(self, idx: int) -> Data:
        """Return graph `idx` without caching the graph, unlike PyG's `InMemoryDataset`.

        Raises:
            InputError: an edge ends outside the graph, or a feature is not finite, so the file is damaged.
        """
        graph: Data = separate(Data, self._data, idx, self.slices, decrement=False)
        self.check(graph.to_dict(), torch.tensor([0, graph.x.size(0)]), torch.tensor([0, graph.num_edges]))
        return graph

    def _add_bytes(self, digest: Any, key: str, value: Tensor) -> None:
        content = value.raw.flatten() if isinstance(value, Compact) else value.flatten().view(torch.uint8)
        if key in ("y", "group", "id") or key.endswith(".slices") or content.numel() <= _BLOCK * _BLOCKS:
            super()._add_bytes(digest, key, value)
            return
        for start in torch.linspace(0, content.numel() - _BLOCK, _BLOCKS, dtype=torch.float64).long().tolist():
            digest.update(content[start : start + _BLOCK].numpy())

    def check(self, batch: Mapping[str, Tensor], ptr: Tensor, edge_ptr: Tensor) -> None:
        """Raise InputError if an edge ends outside its graph, or a feature is not finite: the file is damaged.

        Args:
            batch: attributes of a batch of B graphs.
            ptr: index of the first node of each graph, and the number of nodes, `[B + 1]`.
            edge_ptr: index of the first edge of each graph, and E, `[B + 1]`.
        """
        edges = edge_ptr.diff()
        first, after = ptr[:-1].repeat_interleave(edges), ptr[1:].repeat_interleave(edges)
        edge_index = batch["edge_index"]
        if bool(((edge_index < first) | (edge_index >= after)).any()):
            raise InputError(f"{self.folder}: edge_index.npy has an edge that leaves its graph; write it again.")
        for key in CHECKED[1:]:
            values = batch.get(key)
            if values is None or not values.is_floating_point() or not values.numel():
                continue
            parts = values.parts() if isinstance(values, Compact) else (values,)
            for part in parts:
                low, high = part.aminmax()
                if not (low >= -LARGEST and high <= LARGEST):  # NaN fails every comparison
                    rule = f"a value that is NaN, infinite or beyond {LARGEST:.0e}"
                    raise InputError(f"{self.folder}: {key}.npy has {rule}; write it again.")


def is_on_disk(path: str | os.PathLike[str]) -> bool:
    """Return True if `path` is a folder written by `write_on_disk`."""
    return os.path.isfile(os.path.join(path, META))


@named_arguments
def open_on_disk(folder: str | os.PathLike[str]) -> MappedDataset:
    """Return the memory-mapped data set in a folder written by `write_on_disk`.

    Args:
        folder: path of the folder, which is only read.

    Raises:
        InputError: the folder is not found, or a file is missing, damaged or inconsistent with another file.

    Example:
        >>> import tempfile
        >>> from graphcl.datasets import write_on_disk
        >>> with tempfile.TemporaryDirectory() as place:
        ...     _ = write_on_disk("synthetic", f"{place}/graphs")
        ...     dataset = open_on_disk(f"{place}/graphs")
        >>> dataset
        MappedDataset('synthetic', 600 graphs, x: 7 columns (labels), 4 classes)
    """
    path = Path(os.path.abspath(os.path.expanduser(folder)))
    try:
        return _open(path)
    except OSError as error:
        raise InputError(f"cannot open {str(path)!r}: {reason(error)}.") from None


def check_attribute(key: str, what: str) -> None:
    """Raise InputError if the attribute name `key` is not a valid file name, or if PyG's batches use this name."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,99}", key) or "batch" in key or key in ("ptr", "num_nodes"):
        rule = "a name has letters, digits and '_', and is none of PyG's batches (ptr, num_nodes, batch)"
        raise InputError(f"{what}: attribute {one_line(repr(key), 100)} cannot be stored: {rule}.")


def _open(path: Path) -> MappedDataset:
    """Open the folder `path`; check the slices and sizes, which index operations rely on."""
    meta = _read_meta(path / META)
    n, data, slices, cuts = meta.num_graphs, Data(), dict[str, Tensor](), dict[str, Tensor]()
    for key in set(meta.attributes.values()):
        cut = cuts[key] = map_npy(path / f"{key}.slices.npy")
        if not (cut.shape == (n + 1,) and cut.dtype == torch.long and cut[0] == 0 and bool((cut.diff() >= 0).all())):
            rule = f"[{n + 1}] of int64, start at 0 and ascend, for {n} graphs, got {describe(cut)}"
            raise InputError(f"{path / key}.slices.npy must be {rule}; write the folder again.")
    for key, cut_as in meta.attributes.items():
        value, cut, compact = map_npy(path / f"{key}.npy"), cuts[cut_as], meta.compact.get(key)
        if compact is not None:
            layout = Layout(getattr(torch, compact.dtype), tuple(zip(compact.kinds, compact.widths, strict=True)))
            value = Compact(value, layout)
        size = value.size(data.__cat_dim__(key, value) or 0) if value.dim() else -1
        if size != int(cut[-1]):
            rule = f"of {int(cut[-1])} entries, as {cut_as}.slices.npy, got {describe(value)}"
            raise InputError(f"{path / key}.npy must be {rule}; write the folder again.")
        data[key], slices[key] = value, cut
        if key in meta.texts:
            data[key], slices[key] = decode(value.numpy(), cut.numpy()), torch.arange(n + 1)
    classes: Classes | None = None
    if meta.classes is not None:
        texts = any(isinstance(value, str) for value in meta.classes)
        classes = np.array(meta.classes, dtype=object) if texts else torch.tensor(meta.classes, dtype=torch.long)
    benchmark = None
    if meta.benchmark is not None:
        split = {part: map_npy(path / f"split.{part}.npy") for part in ("train", "valid", "test")}
        benchmark = Benchmark(split=split, **meta.benchmark.model_dump())
    dataset = MappedDataset(data, slices, meta.name, meta.features, classes, meta.degree_columns, benchmark)
    dataset.folder = path
    return dataset


def _read_meta(file: Path) -> Meta:
    """Return the validated content of `graphcl.json`; reject attribute names that lead out of the folder."""
    if not file.is_file():
        raise InputError(f"{file.parent} is not a data set on disk: {META} not found; write one with graphcl pack.")
    try:
        meta = Meta.model_validate(read_json(file))
    except ValidationError as error:
        raise InputError(f"{file}: {problems(error, Meta)[0]} Write the folder again.") from None
    for key in meta.attributes:
        check_attribute(key, str(file))
    if not {"x", "edge_index", *meta.attributes.values()} <= meta.attributes.keys():
        raise InputError(f"{file}: `attributes` must map x, edge_index and others to attributes with the same slices.")
    return meta


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
