"""Load data sets of the Open Graph Benchmark (OGB) for graph property prediction, with their splits.

    root/ogbg_molhiv/raw/*.csv.gz, split/scaffold/*.csv.gz, mapping/*, RELEASE_v1.txt      files of OGB's archive
    root/ogbg_molhiv/processed/geometric_data_processed.pt      PyG's collated form, read by later loads

The layout is OGB's own, so `PygGraphPropPredDataset(name, root)` reads the same cache. What OGB's class lacks: a
`mirror`, an atomic download and one process at a time (`graphcl.datasets.staging`). It asks questions on standard
input, and unpickles files, which can run code.
"""

from __future__ import annotations

import importlib
import io
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphcl.datasets.dataset import Benchmark, Collated
from graphcl.datasets.fetch import Mirror, fetch, unpack
from graphcl.datasets.names import OGB_NAMES, listing, suggestion
from graphcl.datasets.staging import Reader, T, load_cached, no_pickles
from graphcl.datasets.store import check_store
from graphcl.errors import InputError
from graphcl.system.optional import import_ogb

_READ = re.compile(r"RELEASE_v[\d.]+\.txt|(raw|mapping)/[^/]+\.csv\.gz|split/.+\.(csv\.gz|pt)").fullmatch
"""Function that tells whether a file of an archive is read, or maps the graphs to molecules."""


def load_ogb(name: str, root: Path, mirror: Mirror) -> tuple[Collated, Benchmark]:
    """Return the graphs, split and metric of the OGB set `name`, from the cache under `root` or from its archive."""
    if name not in OGB_NAMES:
        known = f"{suggestion(name, OGB_NAMES)}known: {listing(OGB_NAMES, 20)}"
        raise InputError(f"{name!r} is not one of OGB's sets of many graphs with classes or numbers; {known}.")
    return load_archive(name, import_ogb(), root, mirror, lambda root, prepare: _read(name, root, prepare))


def load_archive(name: str, package: Any, root: Path, mirror: Mirror, parse: Callable[[Path, bool], T]) -> T:
    """Return what `parse(folder, prepare)` reads of the OGB set `name` in `folder/ogbX_NAME`; see `load_ogb`.

    `package` is the module of ogb that lists the set; with `prepare`, `parse` first processes the text files.
    """
    read_csv = importlib.import_module("pandas").read_csv  # pandas is a dependency of ogb
    facts = read_csv(Path(package.__file__).parent / "master.csv", index_col=0, dtype=str)[name]
    release = f"RELEASE_v{facts['version']}.txt"
    server, _, file = facts["url"].rpartition("/")

    def read(home: Path, prepare: bool) -> T:
        if prepare:
            if not (home / "raw").is_dir():
                unpack(fetch(file, server, mirror, home.parent), facts["download_name"], home, _READ)
                shutil.rmtree(home / "processed", ignore_errors=True)
            print(f"graphcl: preparing {name}, once", file=sys.stderr)
        if not (home / release).is_file():  # OGB's reader would ask on standard input whether to delete the folder
            raise InputError(f"the files have no {release}, so they are another release of {name}.")
        return parse(home.parent, prepare)

    return load_cached(root / name.replace("-", "_"), read)


def open_reader(kind: Any, name: str, root: Path, prepare: bool) -> tuple[Any, Any]:
    """Return a data set of OGB's class `kind` and its split; if `prepare`, process its text files under `root`."""

    class Loaded(Reader, kind):
        _prepare = prepare

        def download(self) -> None:  # OGB's own asks on standard input
            raise FileNotFoundError(f"one of {', '.join(self.raw_file_names)} is missing")

    with no_pickles(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")  # torch warns that pandas' arrays are read-only
        reader: Any = Loaded(name, str(root))
        return reader, reader.get_idx_split()


def _read(name: str, root: Path, prepare: bool) -> tuple[Collated, Benchmark]:
    reader, split = open_reader(import_ogb().PygGraphPropPredDataset, name, root, prepare)
    data, slices = reader._data, reader.slices
    num_graphs = slices["y"].numel() - 1
    benchmark = Benchmark(checked_split(split, num_graphs), reader.task_type, reader.eval_metric, reader.num_tasks)
    if data.y.shape != (num_graphs, benchmark.num_tasks):
        raise InputError(f"y must be [{num_graphs}, {benchmark.num_tasks}], got {list(data.y.shape)}")
    if prepare:
        check_store(data, slices, name)
    from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

    sizes = {"x": get_atom_feature_dims(), "edge_attr": get_bond_feature_dims()} if "mol" in name else {}
    for key, most in sizes.items():  # the encoder's embedding tables lack other categories
        values = data[key]
        wrong = ((values < 0) | (values >= torch.tensor(most))).any(dim=1).nonzero()
        if wrong.numel():
            raise InputError(f"row {int(wrong[0])} of `{key}`, {values[wrong[0, 0]].tolist()}, is beyond {most}")
    return (data, slices), benchmark


def checked_split(split: Mapping[str, Any], size: int) -> dict[str, Tensor]:
    """Return the parts of `split` as index tensors; raise InputError if parts overlap, are empty or out of range."""
    parts = {part: torch.as_tensor(split[part], dtype=torch.long).flatten() for part in ("train", "valid", "test")}
    every = torch.cat(list(parts.values()))
    in_range = bool(((every >= 0) & (every < size)).all())
    if every.unique().numel() != every.numel() or not in_range or not all(map(len, parts.values())):
        raise InputError(f"the parts of its split must be different indices in 0 .. {size - 1}, and none empty")
    return parts
