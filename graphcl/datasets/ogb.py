"""Load archives of the Open Graph Benchmark (OGB).

The layout is OGB's own, so its classes read the same cache. What they lack: a `mirror`, an atomic download and one
process at a time (`graphcl.datasets.staging`). They ask questions on standard input, and unpickle files, which can run
code.
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

from graphcl.datasets.fetch import Mirror, fetch, unpack
from graphcl.datasets.staging import Reader, T, load_cached, no_pickles
from graphcl.errors import InputError

_READ = re.compile(r"RELEASE_v[\d.]+\.txt|(raw|mapping)/[^/]+\.csv\.gz|split/.+\.(csv\.gz|pt)").fullmatch
"""Function that tells whether a file of an archive is read, or maps the graphs to what they are."""


def load_archive(name: str, package: Any, root: Path, mirror: Mirror, parse: Callable[[Path, bool], T]) -> T:
    """Return what `parse(folder, prepare)` reads of the OGB set `name` in `folder/ogbX_NAME`, the cache or the archive.

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


def checked_split(split: Mapping[str, Any], size: int) -> dict[str, Tensor]:
    """Return the parts of `split` as index tensors; raise InputError if parts overlap, are empty or out of range."""
    parts = {part: torch.as_tensor(split[part], dtype=torch.long).flatten() for part in ("train", "valid", "test")}
    every = torch.cat(list(parts.values()))
    in_range = bool(((every >= 0) & (every < size)).all())
    if every.unique().numel() != every.numel() or not in_range or not all(map(len, parts.values())):
        raise InputError(f"the parts of its split must be different indices in 0 .. {size - 1}, and none empty")
    return parts
