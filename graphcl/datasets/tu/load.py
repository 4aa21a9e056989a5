"""Load TU data sets by PyG's `TUDataset`, whose layout of the cache is kept: root/NAME/raw and root/NAME/processed.

PyG's class drops the last line of a file that does not end with a line end. It assigns nodes and edges to wrong graphs
if `NAME_graph_indicator.txt` is not in ascending order, if an edge joins two graphs or ends at a missing node, or if a
file has fewer lines than there are nodes or graphs.
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

from graphcl.datasets.dataset import Collated
from graphcl.datasets.fetch import Mirror, fetch, unpack
from graphcl.datasets.names import TU_NAMES, check_name, dataset_names, listing, suggestion
from graphcl.datasets.staging import Reader, load_cached, no_pickles
from graphcl.datasets.store import check_store
from graphcl.errors import InputError, reason


class _Reader(Reader, TUDataset):
    def __init__(self, root: Path, name: str, get: Callable[[Path], object], prepare: bool) -> None:
        self._get, self._prepare = get, prepare
        super().__init__(str(root), name)

    def download(self) -> None:
        self._get(Path(self.raw_dir))

    def process(self) -> None:
        for path in Path(self.raw_dir).glob(f"{self.name}_*.txt"):
            path.write_bytes(path.read_bytes().rstrip() + b"\n")
        graph = self._numbers("graph_indicator")[:, 0]
        step = np.diff(graph, prepend=0)
        wrong = (step < 0) | (step > 1) | (graph < 1)
        self._refuse("graph_indicator", wrong, "graphs must be numbered from 1 in ascending order, without gaps")
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


def load_tu(name: str, root: Path, mirror: Mirror) -> Collated:
    """Return the graphs of the TU set `name`: from the cache under `root`, else from `mirror` or the public server."""
    check_name(name)
    if mirror is None and name not in TU_NAMES and not (root / name).is_dir():
        here = f"; for the folder {name} here, write './{name}'" if Path(name).is_dir() else ""
        advice = f"see dataset_names(); another TU set needs `mirror` (--mirror FOLDER) with {name}.zip{here}"
        raise InputError(f"unknown data set {name!r}; {suggestion(name, dataset_names())}{advice}.")

    def get(raw: Path) -> None:
        unpack(fetch(f"{name}.zip", TUDataset.url, mirror, raw.parents[1]), name, raw)

    return _load(root / name, get)


def load_folder(folder: Path, root: Path) -> tuple[str, Collated]:
    """Return the name and the graphs of a folder in TU text layout.

    The cache is `root/NAME-<digest of the text files>`, so nothing is written into `folder`, and edited files are read
    again.
    """
    names = [file.removesuffix("_A.txt") for file in os.listdir(folder) if file.endswith("_A.txt")]
    if len(names) != 1:
        found = f"found {len(names)} files *_A.txt. The folder holds: {listing(os.listdir(folder))}"
        raise InputError(
            f"folder {str(folder)!r} must hold .pt files or a data set in TU text layout (NAME_A.txt, ...), {found}."
        )
    check_name(name := names[0])
    files = sorted(folder.glob(f"{name}_*.txt"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}:{file.stat().st_size}\n".encode() + file.read_bytes())

    home = root / f"{name}-{digest.hexdigest()[:12]}" / name
    return name, _load(home, lambda raw: [shutil.copyfile(file, raw / file.name) for file in files])


def _load(home: Path, get: Callable[[Path], object]) -> Collated:
    """Return the graphs of the set whose cache is `home`; `get` writes its text files into a new folder."""
    if set("*?[") & set(str(home)) or "::" in str(home):
        raise InputError(f"`data_root` of {home} must not hold '*', '?', '[' or '::': PyG's reader expands them.")

    def read(home: Path, prepare: bool) -> Collated:
        with no_pickles():
            reader: Any = _Reader(home.parent, home.name, get, prepare)
        if prepare:
            check_store(reader._data, reader.slices, home.name)
        return reader._data, reader.slices

    return load_cached(home, read)
