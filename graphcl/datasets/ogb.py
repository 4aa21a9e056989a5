"""Load data sets of the Open Graph Benchmark (OGB) for graph property prediction, with their splits.

    root/ogbg_molhiv/raw/*.csv.gz, split/scaffold/*.csv.gz, mapping/*, RELEASE_v1.txt      files of OGB's archive
    root/ogbg_molhiv/processed/geometric_data_processed.pt      PyG's collated form, read by later loads

The layout is OGB's own, so `PygGraphPropPredDataset(name, root)` reads the same cache. What OGB's class lacks: a
`mirror`, an atomic download and one process at a time (`graphcl.datasets.staging`). It asks questions on standard
input, and unpickles files, which can run code.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor

from graphcl.datasets.dataset import Benchmark
from graphcl.datasets.fetch import fetch, unpack
from graphcl.datasets.names import OGB_NAMES, listing, suggestion
from graphcl.datasets.pyg import Collated, Reader, allow_pyg_containers
from graphcl.datasets.staging import load_cached
from graphcl.datasets.store import check_store
from graphcl.errors import InputError
from graphcl.system.optional import import_ogb

T = TypeVar("T")


def is_ogb(source: object) -> bool:
    """Return True if `source` looks like the name of an OGB set; the name need not be known."""
    return isinstance(source, str) and source.lower().startswith(("ogbg-", "ogbn-", "ogbl-")) and "/" not in source


def load_ogb(name: str, root: Path, mirror: str | os.PathLike[str] | None = None) -> tuple[Collated, Benchmark]:
    """Return the graphs, split and metric of the OGB set `name`, from the cache under `root` or from its archive.

    Raises:
        InputError: the name is unknown or not supported, ogb is not installed, or the files cannot be fetched or read.
    """
    if name not in OGB_NAMES:
        raise InputError(
            f"{name!r} is not one of OGB's sets of many graphs with classes or numbers as targets; "
            f"{suggestion(name, OGB_NAMES)}known: {listing(OGB_NAMES, 20)}."
        )
    facts = facts_of(name, import_ogb())
    return load_archive(name, facts, root, mirror, lambda root, prepare: _read(name, root, facts, prepare))


def load_archive(
    name: str,
    facts: Mapping[str, str],
    root: Path,
    mirror: str | os.PathLike[str] | None,
    parse: Callable[[Path, bool], T],
) -> T:
    """Return what `parse(folder, prepare)` reads of the OGB set `name` in `folder/ogbX_NAME`; see `load_ogb`.

    `facts` is the set's metadata, see `facts_of`; with `prepare`, `parse` first processes the text files.
    """
    home = root / name.replace("-", "_")
    release = f"RELEASE_v{facts['version']}.txt"
    server, _, file = facts["url"].rpartition("/")

    def read(home: Path, prepare: bool) -> T:
        if prepare:
            if not (home / "raw").is_dir():
                unpack(fetch(file, server, mirror, home.parent), facts["download_name"], home)
                shutil.rmtree(home / "processed", ignore_errors=True)
            print(f"graphcl: preparing {name}, once", file=sys.stderr)
        if home.is_dir() and not (home / release).is_file():
            # OGB's reader would ask on standard input whether to delete the folder
            raise InputError(f"the files have no {release}, so they are another release of {name}.")
        return parse(home.parent, prepare)

    return load_cached(home, read)


def facts_of(name: str, package: ModuleType) -> dict[str, str]:
    """Return the metadata of the set `name` (version, URL, ...) from the table in the module `package` of ogb."""
    table = Path(str(package.__file__)).parent / "master.csv"
    with table.open(newline="") as file:
        rows = list(csv.reader(file))
    column = rows[0].index(name)
    return {row[0]: row[column] for row in rows[1:]}


def open_reader(kind: Any, name: str, root: Path, prepare: bool) -> tuple[Any, Any]:
    """Return a data set of OGB's class `kind` and its split; if `prepare`, process its text files under `root`."""

    class Loaded(Reader, kind):
        _prepare = prepare

        def download(self) -> None:  # OGB's own asks on standard input
            raise FileNotFoundError(f"one of {', '.join(self.raw_file_names)} is missing")

    with _safely():
        reader: Any = Loaded(name, str(root))
        return reader, reader.get_idx_split()


def _read(name: str, root: Path, facts: Mapping[str, str], prepare: bool) -> tuple[Collated, Benchmark]:
    """Return the graphs, split and metric of a set under `root`; if `prepare`, process its text files first."""
    reader, split = open_reader(import_ogb().PygGraphPropPredDataset, name, root, prepare)
    data, slices = reader._data, reader.slices
    num_graphs = slices["y"].numel() - 1
    benchmark = Benchmark(checked_split(split, num_graphs), reader.task_type, reader.eval_metric, reader.num_tasks)
    if data.y.shape != (num_graphs, benchmark.num_tasks):
        raise InputError(f"y must be [{num_graphs}, {benchmark.num_tasks}], got {list(data.y.shape)}")
    if prepare:
        check_store(data, slices, name)
    if facts["data type"] == "mol":
        _check_categories(data)
    return (data, slices), benchmark


def checked_split(split: Mapping[str, Any], size: int) -> dict[str, Tensor]:
    """Return the parts of `split` as index tensors; raise InputError if parts overlap, are empty or out of range."""
    parts = {part: torch.as_tensor(split[part], dtype=torch.long).flatten() for part in ("train", "valid", "test")}
    every = torch.cat(list(parts.values()))
    in_range = bool(((every >= 0) & (every < size)).all())
    if every.unique().numel() != every.numel() or not in_range or any(not part.numel() for part in parts.values()):
        raise InputError(f"the parts of its split must be different indices in 0 .. {size - 1}, and none empty")
    return parts


def _check_categories(data: Any) -> None:
    """Raise InputError if an atom or bond has a category that the encoder's embedding tables lack."""
    from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

    for key, sizes in (("x", get_atom_feature_dims()), ("edge_attr", get_bond_feature_dims())):
        values = data[key]
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
