"""Read TU data sets: text files, kept in the cache of PyG's `TUDataset`, root/NAME/raw and root/NAME/processed.

The result is that of PyG's `read_tu_data`, which drops the last line of a file that does not end with a line end. It
assigns nodes and edges to wrong graphs if `NAME_graph_indicator.txt` is not in ascending order, if an edge joins two
graphs or ends at a missing node, or if a file has fewer lines than there are nodes or graphs. Its messages name no
file. Of a set with both labels and attributes of graphs, it reads the attributes; here the labels are the classes.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import TUDataset
from torch_geometric.io.tu import split
from torch_geometric.utils import coalesce, one_hot, remove_self_loops

from graphcl.datasets.cache import allow_pyg_containers, fetch, load_cached, unpack
from graphcl.datasets.collate import check_store
from graphcl.datasets.names import TU_NAMES, dataset_names, listing, suggestion
from graphcl.datasets.settings import TUFeatures
from graphcl.datasets.sources import Graphs, Request, Source
from graphcl.errors import InputError, one_line, warn
from graphcl.registry import sources
from graphcl.system.arrays import write_torch_file

PARTS = (
    "A", "graph_indicator", "graph_labels", "graph_attributes", "node_labels", "node_attributes", "edge_labels",
    "edge_attributes",
)  # fmt: skip
"""Files of a TU set, NAME_PART.txt; only the first two are required."""
_MAX_LABEL = 2**16
"""Largest difference of two labels of a column, which is one-hot encoded."""
Texts = tuple[Data, dict[str, Tensor], dict[str, int]]
"""All graphs, collated; the slices; and numbers of columns, such as `num_node_labels`. Attributes precede labels."""


@sources.register("tu", takes="a name of dataset_names()")
class TU(Source):
    """Set of the TU collection: from the cache, else from the mirror or the server."""

    place = 90
    settings = frozenset({"mirror", "tu_features"})

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` is a name; other names are claimed before."""
        return isinstance(source, str)

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs of the set."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}", source):
            advice = "a folder or file is given as a path with a '/' in it"
            raise InputError(f"invalid data set name {source[:100]!r}; {advice}.")
        root, mirror = request.data_root, request.mirror
        if mirror is None and source not in TU_NAMES and not (root / source).is_dir():
            here = f"; for the folder {source} here, write './{source}'" if Path(source).is_dir() else ""
            advice = f"see dataset_names(); another TU set needs `mirror` (--mirror FOLDER) with {source}.zip{here}"
            raise InputError(f"unknown data set {source!r}; {suggestion(source, dataset_names())}{advice}.")

        def get(raw: Path) -> None:
            archive = fetch(f"{source}.zip", TUDataset.url, mirror, raw.parents[1])
            unpack(archive, source, raw, {f"{source}_{part}.txt" for part in PARTS}.__contains__)

        return _cached(root / source, source, get, request.settings.tu_features)


@sources.register("text_folder", takes="a folder in TU text layout (NAME_A.txt, ...)")
class TextFolder(Source):
    """Folder in TU text layout, which is only read.

    The cache is `data_root/NAME-<digest of the text files>`, so edited files are read again. Hidden files, such as
    `._NAME_A.txt` of macOS, are ignored.
    """

    place = 100
    settings = frozenset({"tu_features"})

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` is a folder with a file `NAME_A.txt`."""
        return isinstance(source, Path) and any(source.glob("[!.]*_A.txt"))

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs of the folder."""
        folder = source.resolve()
        there = [file.name for file in os.scandir(folder) if not file.name.startswith(".") and file.is_file()]
        names = [file.removesuffix("_A.txt") for file in there if file.endswith("_A.txt")]
        if len(names) != 1:
            raise InputError(
                f"folder {str(folder)!r} must hold .pt files or a data set in TU text layout (NAME_A.txt, ...), found "
                f"{len(names)} files *_A.txt. The folder holds: {listing(there)}."
            )
        name = names[0]
        prefix = re.sub(r"[^A-Za-z0-9_.+-]", "_", name)[:100] or "graphs"  # a name can hold any character
        parts = {part: folder / f"{name}_{part}.txt" for part in sorted(PARTS) if f"{name}_{part}.txt" in there}
        digest = hashlib.sha256()
        for file in parts.values():
            digest.update(f"{file.name}:{file.stat().st_size}\n".encode(errors="replace") + file.read_bytes())

        def get(raw: Path) -> None:
            for part, file in parts.items():
                shutil.copyfile(file, raw / f"{prefix}_{part}.txt")

        home = request.data_root / f"{prefix}-{digest.hexdigest()[:12]}" / prefix
        return _cached(home, name, get, request.settings.tu_features)


def _cached(home: Path, name: str, get: Callable[[Path], object], features: TUFeatures) -> Graphs:
    """Return the graphs of the set whose cache is `home`; `get` writes its text files into a new folder."""

    def read(home: Path, prepare: bool) -> Texts:
        file, raw = home / "processed" / "data.pt", home / "raw"
        if not prepare:
            allow_pyg_containers()
            data, slices, sizes = torch.load(file, weights_only=True)[:3]
            y = data.get("y")
            if y is not None and y.is_floating_point() and (raw / f"{home.name}_graph_labels.txt").is_file():
                raise FileNotFoundError  # of PyG, or an earlier version, where attributes replaced labels
            return (Data.from_dict(data) if isinstance(data, dict) else data), slices, {**sizes}
        if not all((raw / f"{home.name}_{part}.txt").is_file() for part in PARTS[:2]):
            raw.mkdir(parents=True, exist_ok=True)
            get(raw)
        data, slices, sizes = read_texts(raw, home.name, name)
        check_store(_chosen(data, sizes, "labels"), slices, name)
        file.parent.mkdir()
        write_torch_file(file, (data.to_dict(), slices, sizes, Data))  # as PyG's `TUDataset`
        return data, slices, sizes

    data, slices, sizes = load_cached(home, read)
    if sizes.get("num_graph_attributes") and sizes.get("num_graph_labels"):
        advice = f"as the classes are in {name}_graph_labels.txt; to read the attributes, leave that file out"
        warn(f"{name}: left out {name}_graph_attributes.txt, {advice}")
    files = {f"{name}_{unit}_attributes.txt": sizes[f"num_{unit}_attributes"] for unit in ("node", "edge")}
    attributes = [f"{file} ({columns} column{'s' * (columns != 1)})" for file, columns in files.items() if columns]
    if features != "labels" and not attributes:
        raise InputError(f"`tu_features` is {features!r}, but {name} has no {' and no '.join(files)}; choose 'labels'.")
    if features == "labels" and attributes:
        warn(f"{name}: left out {' and '.join(attributes)}; `tu_features` 'both' keeps attributes and labels")
    targets = isinstance(data.y, Tensor) and data.y.is_floating_point()  # of NAME_graph_attributes.txt
    return Graphs(name, _chosen(data, sizes, features), slices, targets=targets)


def _chosen(data: Data, sizes: dict[str, int], features: TUFeatures) -> Data:
    """Return a copy with the columns of attributes, which come first, with those of labels, or with both."""
    chosen = copy.copy(data)
    for key, unit in (("x", "node"), ("edge_attr", "edge")):
        values = data.get(key)
        if values is not None:
            k = sizes[f"num_{unit}_attributes"]
            parts = {"labels": slice(k, None), "attributes": slice(k), "both": slice(None)}
            chosen[key] = values[:, parts[features]]
    return chosen


def read_texts(folder: Path, prefix: str, name: str) -> Texts:
    """Return the graphs in the files `prefix_PART.txt` in `folder`; messages call the data set `name`.

    Raises:
        InputError: a file is missing or wrong; the message names the file and the line.
    """
    files = {
        part: _TextFile(folder, prefix, name, part)
        for part in PARTS
        if part in PARTS[:2] or (folder / f"{prefix}_{part}.txt").exists()
    }
    file = files["graph_indicator"]
    graph = file.integers(1)[:, 0]
    if not len(graph):
        raise InputError(f"{file.name} is empty; write the number of each node's graph, from 1.")
    step = np.diff(graph, prepend=0)
    rule = "graphs must be numbered from 1 in ascending order, without gaps"
    file.refuse_first((step < 0) | (step > 1) | (graph < 1), rule)
    ends = files["A"].integers(2)
    wrong = ((ends < 1) | (ends > len(graph))).any(axis=1)
    wrong |= np.ptp(graph.take(ends - 1, mode="clip"), axis=1) > 0
    files["A"].refuse_first(wrong, f"an edge must join two of the nodes 1 to {len(graph)}, in one graph")

    rows = {"graph": int(graph[-1]), "node": len(graph), "edge": len(ends)}
    values = {part: torch.empty(rows[part.partition("_")[0]], 0) for part in PARTS[2:]}
    for part in values.keys() & files.keys():
        unit, file = part.partition("_")[0], files[part]
        if len(file.lines) != rows[unit]:
            counts = f"{len(file.lines)} lines for {rows[unit]} {unit}s"
            raise InputError(f"{file.name} has {counts}; write one line for each.")
        values[part] = torch.from_numpy(file.numbers()).float() if "attr" in part else _labels(file)
    x, edge_attr = (torch.cat([values[f"{unit}_attributes"], values[f"{unit}_labels"]], 1) for unit in ("node", "edge"))
    y = values["graph_labels" if "graph_labels" in files else "graph_attributes"]
    edges, edge_attr = coalesce(*remove_self_loops(torch.from_numpy(ends.T - 1), edge_attr), len(graph))
    data = Data(edge_index=edges)
    for key, columns in (("x", x), ("edge_attr", edge_attr), ("y", y)):
        if columns.size(1):
            data[key] = columns.squeeze(1) if key == "y" and columns.size(1) == 1 else columns
    sizes = {f"num_{part}": columns.size(1) for part, columns in values.items()}
    return *split(data, torch.from_numpy(graph - 1)), sizes


def _labels(file: _TextFile) -> Tensor:
    """Return class indices `[n, columns]` of graphs, or one-hot labels of nodes or edges."""
    labels = torch.from_numpy(file.labels())
    if file.part == "graph_labels":
        return labels.unique(return_inverse=True)[1]
    if not len(labels):
        return torch.empty(0, 0)
    low = labels.min(dim=0).values
    large = (labels.double() - low.double() > _MAX_LABEL).any(dim=1)  # a difference of int64 could overflow
    file.refuse_first(large.numpy(), f"a label is more than {_MAX_LABEL} above the smallest; number them from 0")
    return torch.cat([one_hot(column) for column in (labels - low).unbind(dim=1)], dim=1)


class _TextFile:
    """Text file of a TU set: one line for each node, edge or graph, with values separated by commas.

    Args:
        folder: folder of the file.
        prefix: name of the file before `_PART.txt`.
        name: name of the data set, for messages.
        part: what the file holds, such as `node_labels`.

    Raises:
        InputError: the file is missing, or is not UTF-8 text.
    """

    def __init__(self, folder: Path, prefix: str, name: str, part: str) -> None:
        path, self.part, self.name = folder / f"{prefix}_{part}.txt", part, f"{name}_{part}.txt"
        if not path.is_file():
            raise InputError(f"file {self.name} not found.")
        content = path.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n").rstrip()
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.refuse(content[: error.start].count(b"\n"), "not UTF-8 text; save the file as UTF-8")
        self.lines = text.split("\n") if text else []
        self.columns = self.lines[0].count(",") + 1 if self.lines else 1

    def refuse(self, row: int, rule: str) -> NoReturn:
        """Raise InputError about line `row`, counted from 0."""
        raise InputError(f"{self.name} line {row + 1}: {rule}.")

    def refuse_first(self, wrong: NDArray[np.bool_], rule: str) -> None:
        """Raise InputError about the first line that is `wrong [lines]`, if there is one."""
        if wrong.any():
            self.refuse(int(wrong.argmax()), rule)

    def numbers(self) -> NDArray[np.float64]:
        """Return numbers `[lines, columns]`; some may be NaN."""
        return self._checked(self._load(np.float64), self.columns, "a number")

    def integers(self, columns: int) -> NDArray[np.int64]:
        """Return whole numbers `[lines, columns]`."""
        return self._checked(self._whole(), columns, "a whole number")

    def labels(self) -> NDArray[np.int64]:
        """Return labels `[lines, columns]`; strings are numbered from 0, in each column in alphabetical order."""
        whole = self._whole()
        if whole is not None:
            return whole
        self._check(self.columns, "a label")
        columns = []
        for cells in zip(*(line.split(",") for line in self.lines), strict=True):
            texts = [cell.strip() for cell in cells]
            numbers = [_number(text) for text in texts]
            if all(number is None for number in numbers):
                columns.append(np.unique(np.array(texts, object), return_inverse=True)[1].astype(np.int64))
                continue
            for row, (text, number) in enumerate(zip(texts, numbers, strict=True)):
                if number is None:
                    self.refuse(row, f"{_quoted(text)} is a string, but other labels are numbers; use one kind")
                if not _is_whole(number):
                    other = self.name.replace(self.part, self.part.replace("labels", "attributes"))
                    rule = "a label must be a whole number or a string"
                    self.refuse(row, f"{rule}, got {_quoted(text)}; other numbers belong in {other}")
            columns.append(np.array(numbers, np.int64))
        return np.stack(columns, axis=1)

    def _load(self, kind: type[Any]) -> NDArray[Any] | None:
        """Return the values as numbers of type `kind`, `[lines, columns]`; None if there are other values."""
        if not self.lines:
            return np.empty((0, 1), kind)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # else NumPy 1 reads 1.5 as 1
                values: NDArray[Any] = np.loadtxt(self.lines, kind, delimiter=",", comments=None, ndmin=2)
        except (ValueError, Warning):
            return None
        return values if len(values) == len(self.lines) else None  # NumPy skips blank lines

    def _whole(self) -> NDArray[np.int64] | None:
        """Return all values as whole numbers, which may be written as 1.0; None if one is not."""
        values = self._load(np.int64)
        if values is not None:
            return values
        numbers = self._load(np.float64)
        whole = numbers is not None and ((abs(numbers) < 2**53) & (numbers == np.trunc(numbers))).all()
        return numbers.astype(np.int64) if numbers is not None and whole else None

    def _checked(self, values: NDArray[Any] | None, columns: int, what: str) -> NDArray[Any]:
        """Return the values `[lines, columns]`; raise InputError about the first line with other ones."""
        if values is None or (self.lines and values.shape[1] != columns):
            self._check(columns, what)
            raise InputError(f"{self.name} cannot be read as numbers separated by commas.")
        return values.reshape(-1, columns)

    def _check(self, columns: int, what: str) -> None:
        """Raise InputError about the first line that is blank, has not `columns` values, or one that is not `what`."""
        for row, line in enumerate(self.lines):
            cells = line.split(",")
            if not line.strip():
                self.refuse(row, "the line is blank; remove it, or write its values")
            if len(cells) != columns:
                values = f"{columns} value{'s' * (columns > 1)}"
                self.refuse(row, f"expected {values} separated by commas, got {_quoted(line)}")
            for cell in cells:
                number = _number(cell)
                valid = {"a label": bool(cell.strip()), "a number": number is not None}
                if not valid.get(what, _is_whole(number)):
                    self.refuse(row, f"{_quoted(cell)} is not {what}")


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _is_whole(number: float | None) -> bool:
    return number is not None and abs(number) < 2**53 and number == int(number)


def _quoted(text: str) -> str:
    return one_line(repr(text.strip()), 60)
