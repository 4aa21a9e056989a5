"""Prepare a data set in a hidden folder, in one process at a time, then move it into the cache.

PyG and OGB write into the final folder, where another process reads half a file, and where an interruption leaves one.
They also unpickle files, which can run code.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
from filelock import FileLock
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from graphcl.errors import InputError, reason

T = TypeVar("T")


def load_cached(home: Path, read: Callable[[Path, bool], T]) -> T:
    """Return the data set whose cache is the folder `home`; prepare it if the cache is missing or cannot be read.

    `read(folder, prepare)` reads the processed files in a folder; with `prepare`, it first fetches the source files
    that the folder lacks, such as `raw`, and writes the processed files.
    """
    cached = _read_cached(home, read)
    if cached is not None:
        return cached
    try:
        with _staged(home) as staging:
            cached = _read_cached(home, read)
            if cached is not None:  # another process prepared it while this one waited
                return cached
            made, kept = staging / home.name, home.is_dir() and any(home.iterdir())
            if kept:
                shutil.copytree(home, made, ignore=shutil.ignore_patterns("processed"))
            try:
                prepared = read(made, True)
            except Exception as error:  # a damaged file can raise any exception
                if isinstance(error, InputError) and not kept:
                    raise
                advice = f"delete the folder {home} and load again" if kept else "get its files again"
                why = error if isinstance(error, InputError) else reason(error)
                raise InputError(f"cannot prepare {home.name}: {why} (if its files are damaged, {advice}).") from None
            if not kept:
                os.replace(made, home)
                return prepared
            for processed in made.rglob("processed"):
                target = home / processed.relative_to(made)
                shutil.rmtree(target, ignore_errors=True)
                os.replace(processed, target)
            return prepared
    except OSError as error:
        raise InputError(f"cannot prepare {home.name} in {str(home.parent)!r}: {reason(error)}.") from None


def _read_cached(home: Path, read: Callable[[Path, bool], T]) -> T | None:
    try:
        return read(home, False) if home.is_dir() else None
    except FileNotFoundError:
        return None
    except Exception as error:  # a damaged file, or one of another version of PyG, can raise any exception
        problem = f"cannot be read ({reason(error)}); its source files are processed again"
        print(f"graphcl: the cache {home} {problem}", file=sys.stderr)
        return None


@contextmanager
def _staged(home: Path) -> Iterator[Path]:
    """Yield a new hidden folder next to `home`, and remove it at the end; one process at a time enters the block."""
    home.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(home.with_name(f".{home.name}.lock"))
    try:
        with suppress(NotImplementedError):  # a file system without locks: two processes may both prepare the set
            lock.acquire()
            for folder in home.parent.glob(f".{home.name}.partial-*"):  # of a process that was killed
                shutil.rmtree(folder, ignore_errors=True)
        with TemporaryDirectory(prefix=f".{home.name}.partial-", dir=home.parent) as staging:
            yield Path(staging)
    finally:
        lock.release()


class Reader:
    """Mixin for data-set classes of PyG: `_prepare` decides whether raw files are fetched and processed, or only read.

    PyG itself decides by the files that exist, so it cannot repair a damaged one; and it unpickles `pre_transform.pt`.
    """

    _prepare = False

    def _download(self: Any) -> None:
        if self._prepare and not all(map(os.path.exists, self.raw_paths)):
            os.makedirs(self.raw_dir, exist_ok=True)
            self.download()

    def _process(self: Any) -> None:
        if self._prepare:
            os.makedirs(self.processed_dir, exist_ok=True)
            self.process()


@contextmanager
def no_pickles() -> Iterator[None]:
    """Within the block, prevent `torch.load` from running code; PyG and OGB ask it to unpickle a damaged file."""
    allow_pyg_containers()
    variable = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(variable)
    os.environ[variable] = "1"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Weights only load failed")
            yield
    finally:
        del os.environ[variable]
        if before is not None:
            os.environ[variable] = before


def allow_pyg_containers() -> None:
    """Allow `torch.load(weights_only=True)` to create PyG's containers; `safe_globals` would revoke PyG's own."""
    torch.serialization.add_safe_globals([Data, HeteroData, GlobalStorage, DataEdgeAttr, DataTensorAttr])
