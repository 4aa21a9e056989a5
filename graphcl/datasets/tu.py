"""TU sets on disk: fetch, check, extract and process beside the cache, then move the whole into place.

    root/NAME/raw/NAME_*.txt       the checked text files
    root/NAME/processed/data.pt    PyG's collated form of them: what a second load reads

The layout is PyG's own, so `TUDataset(root, NAME)` reads the same cache. Until everything is right all files live in
a hidden folder `root/.NAME-*`, which is removed whatever happens; of processes that load the same set at the same time
one prepares it, and the others wait.
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
from graphcl.system.torch_file import check_torch_file

Collated = tuple[Data, dict[str, Tensor] | None]
"""A data set the way PyG's `InMemoryDataset` holds it: all graphs in one, and where each attribute is cut."""
Filled = tuple[str, Path | None]
"""Where text files came from, for messages, and the archive where they came from one."""


class _Reader(TUDataset):
    """PyG's reader without its download, its console lines and its pickled notes beside the cache."""

    def _download(self) -> None:
        pass

    def _process(self) -> None:
        if not os.path.exists(self.processed_paths[0]):
            os.makedirs(self.processed_dir, exist_ok=True)
            self.process()


def load_tu(name: str, root: Path, mirror: str | os.PathLike[str] | None = None) -> Collated:
    """The TU set `name`: from the cache under `root`, else from `mirror` or the public server.

    Args:
        name: name of the set.
        root: absolute folder of all data sets; only this set's files are touched.
        mirror: folder or URL that holds `NAME.zip`; never written to.

    Raises:
        InputError: see `fetch`, `unpack` and `check_text`; or the cache is damaged.
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
    """The user's own graphs in TU text layout, as `(name, collated)`.

    The cache lies in `root/NAME-<digest of the text files>`: nothing is written into the user's folder, and edited
    files are read anew.

    Args:
        folder: holds `NAME_A.txt`, `NAME_graph_indicator.txt` and so on, for one NAME.
        root: absolute folder of all data sets.

    Raises:
        InputError: no such files, those of several sets, or see `check_text`.
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
    """Read `root/name`, made first if it is not there: `fill` puts text files into a folder."""
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
        check_torch_file(processed / "data.pt")
        return _read(root, name)
    except Exception as error:
        raise InputError(
            f"the cached copy of {name} cannot be read ({reason(error)}): delete the folder {processed} and load again."
        ) from None


def _build(name: str, root: Path, fill: Callable[[Path], Filled]) -> Collated:
    with staged(name, root) as staging:
        if _is_made(name, root):  # by the process that was waited for
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
        # PyG falls back to unpickling code, after this warning; as an error it stops there.
        warnings.filterwarnings("error", message="Weights only load failed")
        reader: Any = _Reader(str(root), name)
    return reader._data, reader.slices


def allow_pyg_containers() -> None:
    """Let `torch.load(weights_only=True)` make PyG's plain containers, for good, as PyG itself does at its import.

    The context manager `torch.serialization.safe_globals` is no choice: at its end it also forgets those that were
    allowed before, and from then on nothing that PyG saved can be read.
    """
    torch.serialization.add_safe_globals([Data, HeteroData, GlobalStorage, DataEdgeAttr, DataTensorAttr])


def _copy_text(source: Path, name: str, target: Path) -> None:
    target.mkdir(parents=True)
    for part in PARTS:
        path = source / f"{name}_{part}.txt"
        if path.is_file():
            shutil.copyfile(path, target / path.name)


def _move(made: Path, home: Path) -> None:
    """Put a finished set into the cache in one step, or its two folders one by one where something is there."""
    if not home.exists():
        with contextlib.suppress(OSError):  # another process was faster
            os.replace(made, home)
            return
    for part in ("raw", "processed"):
        target = home / part
        if not target.exists() or not any(target.iterdir()):
            with contextlib.suppress(OSError):
                os.replace(made / part, target)
    if not (home / "processed" / "data.pt").is_file():
        raise InputError(f"the folder {home / 'processed'} holds no data.pt: delete it and load again.")
