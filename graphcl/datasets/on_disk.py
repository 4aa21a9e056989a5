"""Data sets that stay on disk: memory-mapped, so that a loop over them holds what it has just touched, no more.

    FOLDER/graphcl.json     name, features, numbers of columns and graphs, classes; attributes and whose slices cut them
    FOLDER/x.npy            an attribute of all graphs, one after the other, as PyG collates it
    FOLDER/x.slices.npy     where each graph's part starts, `[n + 1]`; attributes that are cut alike share it
    FOLDER/split.train.npy  of a benchmark's set: numbers of the training graphs; split.valid.npy, split.test.npy

No pickles; `numpy.load(file, mmap_mode="r")` reads each file. `graphcl.datasets.write` writes such a folder, and checks
the values then, once; at each opening only what is cheap is looked at: the files' headers, sizes and ends.
"""

from __future__ import annotations

import math
import mmap
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.separate import separate

from graphcl.datasets.dataset import Benchmark, GraphDataset
from graphcl.datasets.features import FEATURES
from graphcl.errors import InputError, InputTypeError, one_line, reason
from graphcl.system.files import read_json

META = "graphcl.json"
FORMAT = "graphcl graphs on disk"
VERSION = 2
_NAMES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
DTYPES: dict[str, torch.dtype] = {np.dtype(name).str: getattr(torch, name) for name in _NAMES}
"""numpy's code -> dtype, in this machine's order of bytes."""
_META_LIMIT = 64 * 2**20


class MappedDataset(GraphDataset):
    """A `GraphDataset` whose tensors are files: pages are read when touched, and the system may forget them again.

    The mapping is private: writing into a tensor changes this process's copy of the page, never the file.

    Attributes:
        folder: where it lies.

    Args:
        folder: see above.
        data: all graphs in one.
        slices: where each attribute is cut.
        name: see `GraphDataset`.
        features: see `GraphDataset`.
        classes: see `GraphDataset`.
        degree_columns: see `GraphDataset`.
        benchmark: see `GraphDataset`.
    """

    def __init__(
        self,
        folder: Path,
        data: Data,
        slices: dict[str, Tensor],
        name: str,
        features: str,
        classes: Tensor | None = None,
        degree_columns: int = 0,
        benchmark: Benchmark | None = None,
    ) -> None:
        super().__init__(data, slices, name, features, classes, degree_columns, benchmark)
        self.folder = folder

    def get(self, idx: int) -> Data:
        """The graph of that number. It is not kept, as PyG's `InMemoryDataset` does.

        Raises:
            InputError: its edges are damaged.
        """
        graph: Data = separate(Data, self._data, idx, self.slices, decrement=False)
        self.check_edges(graph.edge_index, torch.tensor([0, graph.x.size(0)]), torch.tensor([0, graph.num_edges]))
        return graph

    def check_edges(self, edge_index: Tensor, ptr: Tensor, edge_ptr: Tensor) -> None:
        """Refuse edges that leave their graph: files may be damaged where nobody has looked before.

        Args:
            edge_index: of a batch, `[2, E]`.
            ptr: the first node of each graph, `[B + 1]`.
            edge_ptr: the first edge of each graph, `[B + 1]`.

        Raises:
            InputError: there are such edges.
        """
        edges = edge_ptr.diff()
        first, after = ptr[:-1].repeat_interleave(edges), ptr[1:].repeat_interleave(edges)
        if bool(((edge_index < first) | (edge_index >= after)).any()):
            raise InputError(
                f"{self.folder}: edge_index.npy is damaged, an edge of it leaves its graph; write the folder again."
            )


def is_on_disk(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a folder that holds a data set on disk."""
    return os.path.isfile(os.path.join(path, META))


def open_on_disk(folder: str | os.PathLike[str]) -> MappedDataset:
    """The data set in a folder that `graphcl.datasets.write.write_on_disk` made, memory-mapped.

    Args:
        folder: it is only read.

    Raises:
        InputError: no such folder, or a file is missing, damaged or does not fit the others.

    Example:
        >>> import tempfile
        >>> from graphcl.datasets import write_on_disk
        >>> with tempfile.TemporaryDirectory() as place:
        ...     _ = write_on_disk("synthetic", f"{place}/graphs")
        ...     dataset = open_on_disk(f"{place}/graphs")
        >>> dataset
        MappedDataset('synthetic', 600 graphs, x: 7 columns (labels), 4 classes)
    """
    if not isinstance(folder, str | os.PathLike) or isinstance(os.fspath(folder), bytes):
        raise InputTypeError(f"`folder` must be a path, got {type(folder).__name__}.")
    path = Path(os.path.abspath(os.path.expanduser(folder)))
    try:
        if not path.is_dir():
            raise InputError(f"there is no folder {str(path)!r}.")
        return _open(path)
    except OSError as error:
        raise InputError(f"cannot open {str(path)!r}: {reason(error)}.") from None


def _open(path: Path) -> MappedDataset:
    meta = _meta(path / META)
    num_graphs, classes = meta["num_graphs"], meta["classes"]
    cuts = {key: _slices(path, key, num_graphs) for key in set(meta["attributes"].values())}
    data, slices = Data(), {}
    for key, cut_as in meta["attributes"].items():
        value, cut = _mapped(path / f"{key}.npy"), cuts[cut_as]
        size = value.size(data.__cat_dim__(key, value) or 0) if value.dim() else -1
        if size != int(cut[-1]):
            raise InputError(f"{path}: {key}.npy has {size} entries, but {cut_as}.slices.npy ends at {int(cut[-1])}.")
        data[key], slices[key] = value, cut
    x, edge_index = data.x, data.edge_index
    if x.dim() != 2 or not (x.is_floating_point() or x.dtype == torch.long):
        raise InputError(f"{path}: x.npy must be [N, F] of floating numbers or int64, got {_told(x)}.")
    for key, beside in (("pos", "x"), ("edge_attr", "edge_index"), ("edge_weight", "edge_index")):
        if key in slices and not torch.equal(slices[key], slices[beside]):
            raise InputError(f"{path}: {key}.npy is not cut as {beside}.npy is.")
    if bool((slices["x"][1:] <= slices["x"][:-1]).any()):
        raise InputError(f"{path}: a graph has no node.")
    if meta["degree_columns"] > x.size(1):
        raise InputError(f"{path}: of {x.size(1)} columns of x.npy, {meta['degree_columns']} cannot be degrees.")
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.dtype != torch.long:
        raise InputError(f"{path}: edge_index.npy must be [2, E] of int64, got {_told(edge_index)}.")
    if classes is not None and (data.y is None or data.y.shape != (num_graphs,) or data.y.dtype != torch.long):
        got = "none" if data.y is None else _told(data.y)
        raise InputError(f"{path}: y.npy must be [{num_graphs}] of int64, as there are classes; got {got}.")
    classes = None if classes is None else torch.tensor(classes, dtype=torch.long)
    if classes is not None and bool(((data.y < 0) | (data.y >= classes.numel())).any()):
        raise InputError(f"{path}: y.npy must number the {classes.numel()} classes.")
    benchmark = _benchmark(path, meta["benchmark"], num_graphs)
    if benchmark is not None and (data.y is None or data.y.shape != (num_graphs, benchmark.num_tasks)):
        got = "none" if data.y is None else _told(data.y)
        raise InputError(f"{path}: y.npy must be [{num_graphs}, {benchmark.num_tasks}], a column a task; got {got}.")
    degrees = meta["degree_columns"]
    return MappedDataset(path, data, slices, meta["name"], meta["features"], classes, degrees, benchmark)


def _benchmark(path: Path, facts: Mapping[str, Any] | None, num_graphs: int) -> Benchmark | None:
    """What a benchmark prescribes, its split in files of its own."""
    if facts is None:
        return None
    split = {}
    for part in ("train", "valid", "test"):
        graphs = split[part] = _mapped(path / f"split.{part}.npy")
        inside = (
            graphs.dim() == 1 and graphs.dtype == torch.long and bool(((graphs >= 0) & (graphs < num_graphs)).all())
        )
        if not inside:
            raise InputError(f"{path}: split.{part}.npy must be numbers of graphs, int64 below {num_graphs}.")
    return Benchmark(split=split, **facts)


def _meta(file: Path) -> dict[str, Any]:
    """The checked content of `graphcl.json`. Files are named after attributes, whose names cannot leave the folder."""
    if not file.is_file():
        raise InputError(
            f"{file.parent}: no data set on disk, there is no {META}; write one with python -m graphcl.commands.pack."
        )
    meta = read_json(file, _META_LIMIT)
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise InputError(f"{file}: it must say `format`: {FORMAT!r}.")
    if meta.get("version") != VERSION:
        raise InputError(
            f"{file}: its `version` is {meta.get('version')!r}, this library reads {VERSION}; write it again."
        )

    def need(ok: bool, key: str, rule: str) -> None:
        if not ok:
            raise InputError(f"{file}: `{key}` must be {rule}, got {one_line(meta.get(key), 100)}.")

    name: Any = meta.get("name")
    need(isinstance(name, str) and name.isprintable() and len(name) <= 200, "name", "a text of one line")
    need(meta.get("features") in FEATURES, "features", f"one of {', '.join(FEATURES)}")
    degrees: Any = meta.get("degree_columns")
    need(_whole(degrees) and degrees >= 0, "degree_columns", "a whole number from 0 on")
    need(_whole(meta.get("num_graphs")) and meta["num_graphs"] >= 2, "num_graphs", "a whole number from 2 on")
    classes = meta.setdefault("classes", None)
    need(
        classes is None or (isinstance(classes, list) and all(map(_whole, classes))), "classes", "whole numbers or null"
    )
    benchmark = meta.setdefault("benchmark", None)
    keys = {"name": str, "task_type": str, "eval_metric": str, "num_tasks": int}
    told = isinstance(benchmark, dict) and {key: type(each) for key, each in benchmark.items()} == keys
    need(benchmark is None or told, "benchmark", f"a mapping with {', '.join(keys)}, or null")
    if benchmark is not None:
        sound = benchmark["num_tasks"] >= 1 and all(str(each).isprintable() for each in benchmark.values())
        need(sound, "benchmark", "of one task or more, named on one line each")
    attributes: Any = meta.get("attributes")
    fits = isinstance(attributes, dict) and {"x", "edge_index"} <= attributes.keys()
    rule = "x, edge_index and others, each with the attribute whose slices cut it"
    need(fits and all(isinstance(each, str) and each in attributes for each in attributes.values()), "attributes", rule)
    for key in meta["attributes"]:
        check_attribute(key, str(file))
    return meta


def check_attribute(key: str, what: str) -> None:
    """Refuse names of attributes that are no plain file name, or that PyG's batches use themselves."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,99}", key) or "batch" in key or key in ("ptr", "num_nodes"):
        raise InputError(
            f"{what}: attribute {one_line(repr(key), 100)} cannot be stored: a name has letters, digits and '_', "
            "starts with a letter, and is neither ptr nor num_nodes nor has 'batch' in it."
        )


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _slices(path: Path, key: str, num_graphs: int) -> Tensor:
    cut = _mapped(path / f"{key}.slices.npy")
    if cut.shape != (num_graphs + 1,) or cut.dtype != torch.long or cut[0] != 0 or bool((cut[1:] < cut[:-1]).any()):
        raise InputError(
            f"{path}: {key}.slices.npy must be [{num_graphs + 1}] of int64, start at 0 and ascend, as there are "
            f"{num_graphs} graphs; got {_told(cut)}."
        )
    return cut


def _mapped(file: Path) -> Tensor:
    """The tensor in a `.npy` file, its pages shared with the file until they are written to."""
    if not file.is_file():
        raise InputError(f"{file.parent}: there is no file {file.name}.")
    with file.open("rb") as handle:
        try:
            if np.lib.format.read_magic(handle) != (1, 0):
                raise InputError(f"{file}: it must be a .npy file of version 1.0.")
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(handle)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{file}: it is no .npy file ({reason(error)}).") from None
        if dtype.str not in DTYPES or fortran or not all(0 <= size < 2**48 for size in shape):
            order = "Fortran" if fortran else "C"
            raise InputError(
                f"{file}: arrays of {dtype.str!r} in {order} order and of shape {shape} are not supported."
            )
        offset, size = handle.tell(), os.fstat(handle.fileno()).st_size
        wanted = offset + dtype.itemsize * math.prod(shape)
        if size != wanted:
            raise InputError(f"{file}: it has {size} bytes, but its header tells of {wanted}; write the folder again.")
        if size == offset:
            return torch.empty(shape, dtype=DTYPES[dtype.str])
        pages = mmap.mmap(handle.fileno(), size, **_private())
    return torch.frombuffer(pages, dtype=DTYPES[dtype.str], offset=offset).view(shape)


def _private() -> Mapping[str, int]:
    """Copy on write. Nothing is reserved for it, else the system might refuse a file larger than its memory."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return {"access": mmap.ACCESS_COPY}
    nothing_reserved = getattr(mmap, "MAP_NORESERVE", 0x4000 if os.uname().sysname == "Linux" else 0)
    return {"flags": mmap.MAP_PRIVATE | nothing_reserved, "prot": mmap.PROT_READ | mmap.PROT_WRITE}


def _told(value: Tensor) -> str:
    return f"{list(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
