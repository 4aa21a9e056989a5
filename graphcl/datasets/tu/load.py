"""Load TU data sets into the cache of PyG's `TUDataset`: root/NAME/raw and root/NAME/processed."""

from __future__ import annotations

import copy
import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import TUDataset

from graphcl.datasets.dataset import Collated
from graphcl.datasets.fetch import Mirror, fetch, unpack
from graphcl.datasets.names import TU_NAMES, check_name, dataset_names, listing, suggestion
from graphcl.datasets.settings import TUFeatures
from graphcl.datasets.staging import allow_pyg_containers, load_cached
from graphcl.datasets.store import check_store
from graphcl.datasets.tu.read import PARTS, Texts, read_texts
from graphcl.errors import InputError, warn
from graphcl.system.arrays import write_torch_file


def load_tu(name: str, root: Path, mirror: Mirror, features: TUFeatures = "labels") -> Collated:
    """Return the graphs of the TU set `name`: from the cache under `root`, else from `mirror` or the public server.

    `features` is the setting `tu_features`, see `load_dataset`.
    """
    check_name(name)
    if mirror is None and name not in TU_NAMES and not (root / name).is_dir():
        here = f"; for the folder {name} here, write './{name}'" if Path(name).is_dir() else ""
        advice = f"see dataset_names(); another TU set needs `mirror` (--mirror FOLDER) with {name}.zip{here}"
        raise InputError(f"unknown data set {name!r}; {suggestion(name, dataset_names())}{advice}.")

    def get(raw: Path) -> None:
        parts = {f"{name}_{part}.txt" for part in PARTS}
        unpack(fetch(f"{name}.zip", TUDataset.url, mirror, raw.parents[1]), name, raw, parts.__contains__)

    return _load(root / name, name, get, features)


def load_folder(folder: Path, root: Path, features: TUFeatures = "labels") -> tuple[str, Collated]:
    """Return the name and the graphs of a folder in TU text layout.

    The cache is `root/NAME-<digest of the text files>`, so nothing is written into `folder`, and edited files are read
    again. Hidden files, such as `._NAME_A.txt` of macOS, are ignored.
    """
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

    return name, _load(root / f"{prefix}-{digest.hexdigest()[:12]}" / prefix, name, get, features)


def _load(home: Path, name: str, get: Callable[[Path], object], features: TUFeatures) -> Collated:
    """Return the graphs of the set whose cache is `home`; `get` writes its text files into a new folder."""

    def read(home: Path, prepare: bool) -> Texts:
        file = home / "processed" / "data.pt"
        if not prepare:
            allow_pyg_containers()
            data, slices, sizes = torch.load(file, weights_only=True)[:3]
            y, labels = data.get("y"), home / "raw" / f"{home.name}_graph_labels.txt"
            if y is not None and y.is_floating_point() and labels.is_file():
                raise FileNotFoundError  # of PyG, or an earlier version, where attributes replaced labels
            return (Data.from_dict(data) if isinstance(data, dict) else data), slices, {**sizes}
        raw = home / "raw"
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
    found = [f"{file} ({columns} column{'s' * (columns != 1)})" for file, columns in files.items() if columns]
    if features != "labels" and not found:
        raise InputError(f"`tu_features` is {features!r}, but {name} has no {' and no '.join(files)}; choose 'labels'.")
    if features == "labels" and found:
        warn(f"{name}: left out {' and '.join(found)}; `tu_features` 'both' keeps attributes and labels")
    return _chosen(data, sizes, features), slices


def _chosen(data: Data, sizes: dict[str, int], features: TUFeatures) -> Data:
    """Return a copy with the columns of attributes, which come first, with those of labels, or with both."""
    chosen = copy.copy(data)
    for key, unit in (("x", "node"), ("edge_attr", "edge")):
        if (values := data.get(key)) is not None:
            k = sizes[f"num_{unit}_attributes"]
            parts = {"labels": slice(k, None), "attributes": slice(k), "both": slice(None)}
            chosen[key] = values[:, parts[features]]
    return chosen


def has_targets(data: Data) -> bool:
    """Return whether `y` is of NAME_graph_attributes.txt, numbers to predict, and not of NAME_graph_labels.txt."""
    return isinstance(data.y, Tensor) and data.y.is_floating_point()
