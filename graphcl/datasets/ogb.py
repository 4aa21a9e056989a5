"""Load data sets of the Open Graph Benchmark (OGB) for graph property prediction, with their splits.

    root/ogbg_molhiv/raw/*.csv.gz, split/scaffold/*.csv.gz, mapping/*, RELEASE_v1.txt      files of OGB's archive
    root/ogbg_molhiv/processed/geometric_data_processed.pt      PyG's collated form, read by later loads

The layout is OGB's own, so `PygGraphPropPredDataset(name, root)` reads the same cache. Differences from that class:

- The archive may come from a `mirror`.
- The files are prepared in a hidden folder, which is moved into the cache when it is complete.
- There is no prompt on standard input.
- Torch files are read with `weights_only=True`, so code in them is never run.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor

from graphcl.datasets.archive import FREE_BYTES, MAX_RATIO, folder_files
from graphcl.datasets.dataset import Benchmark
from graphcl.datasets.fetch import fetch_archive, fetch_unpacked
from graphcl.datasets.names import OGB_NAMES, listing, suggestion
from graphcl.datasets.staging import load_cached
from graphcl.datasets.tu import Collated, QuietReader, allow_pyg_containers
from graphcl.errors import InputError
from graphcl.system.optional import import_ogb

T = TypeVar("T")
_PARTS = ("raw/*", "split/*", "mapping/*", "RELEASE_v*.txt")


def is_ogb(source: object) -> bool:
    """Return True if `source` looks like the name of an OGB set; the name need not be known."""
    return isinstance(source, str) and source.lower().startswith(("ogbg-", "ogbn-", "ogbl-")) and "/" not in source


def load_ogb(name: str, root: Path, mirror: str | os.PathLike[str] | None = None) -> tuple[Collated, Benchmark]:
    """Return the graphs, split and metric of the OGB set `name`, from the cache under `root` or from its archive.

    Args:
        name: name of the set, such as "ogbg-molhiv".
        root: absolute path of the folder of all data sets.
        mirror: folder or URL that holds the archive under OGB's file name (such as `hiv.zip`); it is only read.

    Raises:
        InputError: the name is unknown or not supported, ogb is not installed, or the files cannot be fetched or read.
    """
    _check_name(name)
    facts = facts_of(name, import_ogb())
    return load_archive(name, facts, root, mirror, lambda folder: _read(name, folder, facts))


def load_archive(
    name: str, facts: Mapping[str, str], root: Path, mirror: str | os.PathLike[str] | None, parse: Callable[[Path], T]
) -> T:
    """Return what `parse(folder)` reads from the files of the OGB set `name` in `folder/ogbX_NAME`; see `load_ogb`.

    Args:
        name: name of the set.
        facts: metadata of the set, see `facts_of`.
        root: absolute path of the folder of all data sets.
        mirror: folder or URL that holds the archive under OGB's file name; it is only read.
        parse: function that processes the text files if necessary, and returns the set.
    """
    home = root / name.replace("-", "_")
    release = f"RELEASE_v{facts['version']}.txt"
    if home.is_dir() and any(home.iterdir()) and not (home / release).is_file():
        # raise an error, because OGB's reader would ask on standard input whether to delete the folder
        raise InputError(f"the folder {home} has no {release}, so it is another release of {name}; delete it.")

    def fill(staging: Path) -> str:
        made = staging / home.name
        if (home / "raw").is_dir():
            origin = f"{home} (delete this folder to fetch {name} again)"
            shutil.copytree(home, made, ignore=shutil.ignore_patterns("processed"))
        else:
            server, _, file = facts["url"].rpartition("/")
            origin = fetch_unpacked(
                lambda: fetch_archive(file.removesuffix(".zip"), server, mirror, staging),
                partial(folder_files, folder=facts["download_name"], keep=_PARTS),
                staging,
                made,
            )
            if not (made / release).is_file():
                raise InputError(f"{origin} has no {release} in it: it is another release of {name}.")
        print(f"graphcl: preparing {name}, once", file=sys.stderr)
        return origin

    def read(root: Path) -> T:
        if root != home.parent:
            _check_packed(root / home.name)
        return parse(root)

    return load_cached(name, root, home, "geometric_data_processed.pt", "OGB's", fill, read)


def _check_packed(folder: Path) -> None:
    """Raise InputError if a gzip file unpacks to far more than its size; OGB's reader unpacks files in memory."""
    for file in sorted(folder.rglob("*.gz")):
        size, limit = 0, max(FREE_BYTES, MAX_RATIO * file.stat().st_size)
        with gzip.open(file) as table:
            while block := table.read(2**20):
                size += len(block)
                if size > limit:
                    raise InputError(f"{file.name} unpacks to more than {limit} bytes")


def _check_name(name: str) -> None:
    if not name.startswith("ogbg-"):
        raise InputError(
            f"{name!r} is not supported, only OGB's sets of many graphs, whose names start with 'ogbg-'; "
            f"{suggestion(name, OGB_NAMES)}Known: {listing(OGB_NAMES, 20)}."
        )
    if name == "ogbg-code2":
        raise InputError(
            "'ogbg-code2' is not supported: its targets are sequences of words, which a linear probe cannot predict."
        )
    if name not in OGB_NAMES:
        raise InputError(f"unknown data set {name!r}; {suggestion(name, OGB_NAMES)}Known: {listing(OGB_NAMES, 20)}.")


def facts_of(name: str, package: ModuleType) -> dict[str, str]:
    """Return the metadata of the set `name` (version, URL, ...) from the table in the module `package` of ogb."""
    table = Path(str(package.__file__)).parent / "master.csv"
    with table.open(newline="") as file:
        rows = list(csv.reader(file))
    column = rows[0].index(name)
    return {row[0]: row[column] for row in rows[1:]}


def open_reader(kind: Any, name: str, root: Path) -> tuple[Any, Any]:
    """Return a data set of OGB's class `kind` and its split; process its text files under `root` if necessary."""

    class Reader(QuietReader, kind):
        pass

    with _safely():
        reader: Any = Reader(name, str(root))
        return reader, reader.get_idx_split()


def _read(name: str, root: Path, facts: Mapping[str, str]) -> tuple[Collated, Benchmark]:
    """Return the graphs, split and metric of a set under `root`; process its text files first if necessary."""
    reader, split = open_reader(import_ogb().PygGraphPropPredDataset, name, root)
    data, slices = reader._data, reader.slices
    num_graphs = slices["y"].numel() - 1
    benchmark = Benchmark(checked_split(split, num_graphs), reader.task_type, reader.eval_metric, reader.num_tasks)
    if data.y.shape != (num_graphs, benchmark.num_tasks):
        raise InputError(f"y must be [{num_graphs}, {benchmark.num_tasks}], got {list(data.y.shape)}")
    if facts["data type"] == "mol":
        _check_categories(data)
    return (data, slices), benchmark


def checked_split(split: Mapping[str, Any], size: int) -> dict[str, Tensor]:
    """Return the parts of `split` as index tensors; raise InputError if parts overlap, are empty or out of range."""
    parts = {part: torch.as_tensor(split[part], dtype=torch.long).flatten() for part in ("train", "valid", "test")}
    every = torch.cat(list(parts.values()))
    if every.unique().numel() != every.numel() or bool(((every < 0) | (every >= size)).any()):
        raise InputError(f"the parts of its split must be different indices in 0 .. {size - 1}")
    for part, indices in parts.items():
        if indices.numel() == 0:
            raise InputError(f"the part {part} of its split is empty")
    return parts


def _check_categories(data: Any) -> None:
    """Raise InputError if atom or bond features have a wrong number of columns or an unknown category."""
    from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

    for key, sizes in (("x", get_atom_feature_dims()), ("edge_attr", get_bond_feature_dims())):
        values = data[key]
        if values.dim() != 2 or values.size(1) != len(sizes) or values.is_floating_point():
            raise InputError(f"`{key}` must be [*, {len(sizes)}] of integers, got {list(values.shape)}")
        wrong = ((values < 0) | (values >= torch.tensor(sizes))).any(dim=1).nonzero()
        if wrong.numel():
            raise InputError(f"row {int(wrong[0])} of `{key}`, {values[wrong[0, 0]].tolist()}, is beyond {sizes}")


@contextlib.contextmanager
def _safely() -> Iterator[None]:
    """Within the block, prevent `torch.load` from running code, also with torch < 2.6, and discard console output."""
    allow_pyg_containers()
    variable = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(variable)
    os.environ[variable] = "1"
    try:
        silent = io.StringIO()
        with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that pandas' arrays are read-only
            yield
    finally:
        del os.environ[variable]
        if before is not None:
            os.environ[variable] = before
