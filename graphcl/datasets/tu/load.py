"""Load TU data sets by PyG's `TUDataset`, whose layout of the cache is kept: root/NAME/raw and root/NAME/processed.

What PyG's class lacks:

- a `mirror`, an atomic download and one process at a time (`graphcl.datasets.staging`);
- it drops the last line of a file that does not end with a line end, which loses a node or an edge;
- it assigns nodes and edges to wrong graphs if `NAME_graph_indicator.txt` is not in ascending order, if an edge joins
  two graphs or ends at a missing node, or if a file has fewer lines than there are nodes or graphs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_geometric.datasets import TUDataset

from graphcl.datasets.fetch import fetch, unpack
from graphcl.datasets.names import TU_NAMES, check_name, dataset_names, listing, suggestion
from graphcl.datasets.pyg import Collated, Reader, no_pickles
from graphcl.datasets.staging import load_cached
from graphcl.datasets.store import check_store
from graphcl.errors import InputError, reason

Get = Callable[[Path], object]
"""Function that writes the text files of a set into a new folder."""


class _Reader(Reader, TUDataset):
    def __init__(self, root: Path, name: str, get: Get | None) -> None:
        self._get, self._prepare = get, get is not None
        super().__init__(str(root), name)

    def download(self) -> None:
        assert self._get is not None
        self._get(Path(self.raw_dir))

    def process(self) -> None:
        for path in Path(self.raw_dir).glob(f"{self.name}_*.txt"):
            path.write_bytes(path.read_bytes().rstrip() + b"\n")
        graph = self._numbers("graph_indicator")[:, 0]
        step = np.diff(graph, prepend=0)
        rule = "graphs must be numbered from 1 in ascending order, without gaps"
        self._refuse("graph_indicator", (step < 0) | (step > 1) | (graph < 1), rule)
        edges = self._numbers("A")
        missing = (edges < 1) | (edges > graph.size)
        crossing = np.ptp(graph[np.where(missing, 1, edges) - 1], axis=1) > 0
        rule = f"an edge must join two of the nodes 1 to {graph.size}, in one graph"
        self._refuse("A", missing.any(1) | crossing, rule)
        super().process()

    def _numbers(self, part: str) -> NDArray[np.int64]:
        path = Path(self.raw_dir) / f"{self.name}_{part}.txt"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # else numpy 1 reads 1.5 as 1
                return np.loadtxt(path, np.int64, delimiter=",", comments=None, ndmin=2)
        except (ValueError, Warning) as error:
            raise InputError(f"{path.name}: {reason(error).rstrip('.')}.") from None

    def _refuse(self, part: str, wrong: NDArray[np.bool_], rule: str) -> None:
        if wrong.any():
            raise InputError(f"{self.name}_{part}.txt line {int(wrong.argmax()) + 1}: {rule}.")


def load_tu(name: str, root: Path, mirror: str | os.PathLike[str] | None = None) -> Collated:
    """Return the graphs of the TU set `name`: from the cache under `root`, else from `mirror` or the public server.

    Raises:
        InputError: the name is unknown, the archive cannot be fetched, or its files are invalid.
    """
    check_name(name)
    if mirror is None and name not in TU_NAMES and not (root / name).is_dir():
        here = f"; for the folder {name} here, write './{name}'" if Path(name).is_dir() else ""
        raise InputError(
            f"unknown data set {name!r}; {suggestion(name, dataset_names())}Known: {listing(TU_NAMES)} "
            f"(all: dataset_names()). Another TU set loads from a folder that holds {name}.zip, given as `mirror` "
            f"(--mirror FOLDER){here}."
        )

    def get(raw: Path) -> None:
        unpack(fetch(f"{name}.zip", TUDataset.url, mirror, raw.parents[1]), name, raw)

    return _load(root / name, get)


def load_folder(folder: Path, root: Path) -> tuple[str, Collated]:
    """Return the name and the graphs of a folder in TU text layout.

    The cache is `root/NAME-<digest of the text files>`, so nothing is written into `folder`, and edited files are read
    again.

    Raises:
        InputError: the files are not found, belong to several sets, or are invalid.
    """
    names = [file.removesuffix("_A.txt") for file in os.listdir(folder) if file.endswith("_A.txt")]
    if len(names) != 1:
        there = listing(os.listdir(folder))
        raise InputError(
            f"folder {str(folder)!r} must hold one data set in TU text layout (NAME_A.txt, NAME_graph_indicator.txt, "
            f"...), found {len(names)} files *_A.txt. The folder holds: {there}."
        )
    name = names[0]
    check_name(name)
    files = sorted(folder.glob(f"{name}_*.txt"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}:{file.stat().st_size}\n".encode() + file.read_bytes())

    def get(raw: Path) -> None:
        for file in files:
            shutil.copyfile(file, raw / file.name)

    return name, _load(root / f"{name}-{digest.hexdigest()[:12]}" / name, get)


def _load(home: Path, get: Get) -> Collated:
    """Return the graphs of the set `home.name`, whose cache is the folder `home`."""
    if set("*?[") & set(str(home)) or "::" in str(home):
        raise InputError(f"`data_root` of {home} must not hold '*', '?', '[' or '::': PyG's reader expands them.")

    def read(home: Path, prepare: bool) -> Collated:
        with no_pickles():
            reader: Any = _Reader(home.parent, home.name, get if prepare else None)
        if prepare:
            check_store(reader._data, reader.slices, home.name)
        return reader._data, reader.slices

    return load_cached(home, read)
