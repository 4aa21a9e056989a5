"""TU data sets: fetched, checked and processed in a hidden folder, then moved into the cache.

    root/NAME/raw/NAME_*.txt       the checked text files
    root/NAME/processed/data.pt    PyG's collated form of the text files, read by later loads

The layout is PyG's own, so `TUDataset(root, NAME)` reads the same cache. `staged` makes processes that load the same
set at the same time wait for each other.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.datasets import TUDataset

from graphcl.datasets.archive import note_checksum, unpack
from graphcl.datasets.fetch import fetch, fetch_unpacked
from graphcl.datasets.names import check_name, listing
from graphcl.datasets.staging import check_room, staged
from graphcl.datasets.text import PARTS, check_text
from graphcl.errors import InputError, reason

Collated = tuple[Data, dict[str, Tensor] | None]
"""A data set as in PyG's `InMemoryDataset`: all graphs in one `Data`, and the slices for each attribute."""
Filled = tuple[str, Path | None]
"""The source of text files, for messages, and the archive that they were unpacked from, if any."""


class _Reader(TUDataset):
    """PyG's TU reader, without download, console output and the files `pre_transform.pt` and `pre_filter.pt`."""

    def _download(self) -> None:
        pass

    def _process(self) -> None:
        if not os.path.exists(self.processed_paths[0]):
            os.makedirs(self.processed_dir, exist_ok=True)
            self.process()


def load_tu(name: str, root: Path, mirror: str | os.PathLike[str] | None = None) -> Collated:
    """Return the graphs of the TU set `name`: from the cache under `root`, else from `mirror` or the public server.

    Args:
        name: name of the set.
        root: absolute path of the folder of all data sets.
        mirror: folder or URL that holds `NAME.zip`; it is only read.

    Raises:
        InputError: the cache is damaged; or see `fetch`, `unpack` and `check_text`.
    """
    check_name(name)
    home = root / name
    raw = home / "raw"

    def fill(staging: Path) -> Filled:
        target = staging / name / "raw"
        if raw.is_dir() and any(raw.iterdir()):
            _copy_text(raw, name, target)
            return f"{raw} (delete this folder to fetch {name} again)", None
        archive, origin = fetch_unpacked(
            lambda: fetch(name, mirror, staging),
            lambda archive, origin: unpack(archive, name, target, origin),
            staging,
            target,
        )
        return origin, archive

    return _load(name, root, fill)


def load_folder(folder: Path, root: Path) -> tuple[str, Collated]:
    """Return the name and the graphs of a folder in TU text layout.

    The cache is `root/NAME-<digest of the text files>`, so nothing is written into `folder`, and edited files are read
    again.

    Args:
        folder: folder that holds `NAME_A.txt`, `NAME_graph_indicator.txt` and so on, for a single NAME.
        root: absolute path of the folder of all data sets.

    Raises:
        InputError: the files are not found, or belong to several sets; or see `check_text`.
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

    def fill(staging: Path) -> Filled:
        _copy_text(folder, name, staging / name / "raw")
        return str(folder), None

    return name, _load(name, root / f"{name}-{digest.hexdigest()[:12]}", fill)


def _load(name: str, root: Path, fill: Callable[[Path], Filled]) -> Collated:
    """Return the graphs cached in `root/name`; if not cached, prepare them from the text files that `fill` provides."""
    if set("*?[") & set(str(root)) or "::" in str(root):
        raise InputError(f"`root` {str(root)!r} must not contain '*', '?', '[' or '::': PyG's reader expands them.")
    if not _is_made(name, root):
        return _build(name, root, fill)
    return _read_made(name, root)


def _is_made(name: str, root: Path) -> bool:
    return os.path.isfile(root / name / "processed" / "data.pt")


def _read_made(name: str, root: Path) -> Collated:
    processed = root / name / "processed"
    try:
        return _read(root, name)
    except Exception as error:
        raise InputError(
            f"the cached copy of {name} cannot be read ({reason(error)}): delete the folder {processed} and load again."
        ) from None


def _build(name: str, root: Path, fill: Callable[[Path], Filled]) -> Collated:
    with staged(name, root) as staging:
        if _is_made(name, root):  # another process prepared the set while this one waited
            return _read_made(name, root)
        origin, archive = fill(staging)
        check_text(staging / name / "raw", name, origin)
        collated = _process(name, staging, origin)
        if archive is not None:
            note_checksum(archive, name, origin)
        _move(staging / name, root / name)
        return collated


def _process(name: str, staging: Path, origin: str) -> Collated:
    try:
        return _read(staging, name)
    except Exception as error:
        check_room(staging)
        raise InputError(f"{origin}: PyG's reader cannot make graphs of {name}: {reason(error)}.") from None


def _read(root: Path, name: str) -> Collated:
    allow_pyg_containers()
    with warnings.catch_warnings():
        # an error, as after this warning PyG would unpickle the file and so run code in it
        warnings.filterwarnings("error", message="Weights only load failed")
        reader: Any = _Reader(str(root), name)
    return reader._data, reader.slices


def allow_pyg_containers() -> None:
    """Permanently let `torch.load(weights_only=True)` create PyG's plain containers, as importing PyG does.

    The context manager `torch.serialization.safe_globals` would, at its end, also forbid the classes that PyG allowed.
    """
    torch.serialization.add_safe_globals([Data, HeteroData, GlobalStorage, DataEdgeAttr, DataTensorAttr])


def _copy_text(source: Path, name: str, target: Path) -> None:
    target.mkdir(parents=True)
    for part in PARTS:
        path = source / f"{name}_{part}.txt"
        if path.is_file():
            shutil.copyfile(path, target / path.name)


def _move(made: Path, home: Path) -> None:
    """Move the prepared set `made` to the cache folder `home`; if `home` exists, move the two subfolders one by one."""
    if not home.exists():
        with contextlib.suppress(OSError):  # another process was first, so its set stays
            os.replace(made, home)
            return
    for part in ("raw", "processed"):
        target = home / part
        if not target.exists() or not any(target.iterdir()):
            with contextlib.suppress(OSError):
                os.replace(made / part, target)
    if not (home / "processed" / "data.pt").is_file():
        raise InputError(f"the folder {home / 'processed'} holds no data.pt: delete it and load again.")
