"""Load TU data sets: fetch, check and process them in a hidden folder, then move them into the cache.

    root/NAME/raw/NAME_*.txt       the checked text files
    root/NAME/processed/data.pt    PyG's collated form of the text files, read by later loads

The layout is PyG's own, so `TUDataset(root, NAME)` reads the same cache. If several processes load the same set at the
same time, one prepares it and the other processes wait.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.datasets import TUDataset

from graphcl.datasets.archive import tu_files
from graphcl.datasets.fetch import fetch, fetch_unpacked
from graphcl.datasets.names import check_name, listing
from graphcl.datasets.staging import load_cached
from graphcl.datasets.text import PARTS, check_text
from graphcl.errors import InputError

Collated = tuple[Data, dict[str, Tensor] | None]
"""A data set as in PyG's `InMemoryDataset`: all graphs in one `Data`, and the slices for each attribute."""


class QuietReader:
    """Mixin for PyG's readers: no download, console output or files `pre_transform.pt` and `pre_filter.pt`."""

    def _download(self: Any) -> None:
        pass

    def _process(self: Any) -> None:
        if not os.path.exists(self.processed_paths[0]):
            os.makedirs(self.processed_dir, exist_ok=True)
            self.process()


class _Reader(QuietReader, TUDataset):
    pass


def load_tu(name: str, root: Path, mirror: str | os.PathLike[str] | None = None) -> Collated:
    """Return the graphs of the TU set `name`: from the cache under `root`, else from `mirror` or the public server.

    Args:
        name: name of the set.
        root: absolute path of the folder of all data sets.
        mirror: folder or URL that holds `NAME.zip`; it is only read.

    Raises:
        InputError: the cache is damaged, or the archive cannot be fetched or has invalid files.
    """
    check_name(name)
    raw = root / name / "raw"

    def fill(staging: Path) -> str:
        target = staging / name / "raw"
        if raw.is_dir() and any(raw.iterdir()):
            return _copied_text(raw, name, target, f"{raw} (delete this folder to fetch {name} again)")
        origin = fetch_unpacked(lambda: fetch(name, mirror, staging), partial(tu_files, name=name), staging, target)
        check_text(target, name, origin)
        return origin

    return _load(name, root, fill)


def load_folder(folder: Path, root: Path) -> tuple[str, Collated]:
    """Return the name and the graphs of a folder in TU text layout.

    The cache is `root/NAME-<digest of the text files>`, so nothing is written into `folder`, and edited files are read
    again.

    Args:
        folder: folder that holds `NAME_A.txt`, `NAME_graph_indicator.txt` and so on, for a single NAME.
        root: absolute path of the folder of all data sets.

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
    digest = hashlib.sha256()
    for part in PARTS:
        path = folder / f"{name}_{part}.txt"
        digest.update(f"{part}:{path.stat().st_size}\n".encode() + path.read_bytes() if path.is_file() else b"")

    def fill(staging: Path) -> str:
        return _copied_text(folder, name, staging / name / "raw", str(folder))

    return name, _load(name, root / f"{name}-{digest.hexdigest()[:12]}", fill)


def _load(name: str, root: Path, fill: Callable[[Path], str]) -> Collated:
    """Return the graphs cached in `root/name`; if not cached, prepare them from the text files that `fill` provides."""
    if set("*?[") & set(str(root)) or "::" in str(root):
        raise InputError(f"`data_root` {str(root)!r} must not hold '*', '?', '[' or '::': PyG's reader expands them.")
    return load_cached(name, root, root / name, "data.pt", "PyG's", fill, lambda root: _read(root, name))


def _read(root: Path, name: str) -> Collated:
    with no_pickles():
        reader: Any = _Reader(str(root), name)
    return reader._data, reader.slices


@contextmanager
def no_pickles() -> Iterator[None]:
    """Within the block, raise an error where PyG would unpickle a file, which could run code."""
    allow_pyg_containers()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Weights only load failed")  # PyG unpickles after this warning
        yield


def allow_pyg_containers() -> None:
    """Allow `torch.load(weights_only=True)` to create PyG's plain containers, for the rest of the process.

    The context manager `torch.serialization.safe_globals` would also revoke classes that PyG itself has allowed.
    """
    torch.serialization.add_safe_globals([Data, HeteroData, GlobalStorage, DataEdgeAttr, DataTensorAttr])


def _copied_text(source: Path, name: str, target: Path, origin: str) -> str:
    """Copy the text files of a set from `source` to `target`, check the copies, and return `origin`."""
    target.mkdir(parents=True)
    for part in PARTS:
        path = source / f"{name}_{part}.txt"
        if path.is_file():
            shutil.copyfile(path, target / path.name)
    check_text(target, name, origin)
    return origin
