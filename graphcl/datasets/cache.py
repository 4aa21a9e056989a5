"""Find the files of a data set in a mirror or download them, and prepare them in a folder that becomes the cache.

Files are prepared in a hidden folder, in one process at a time. PyG and OGB write into the final folder, where another
process reads half a file, and where an interruption leaves one. They also unpickle files, which can run code. OGB asks
questions on standard input. The layouts are those of PyG and OGB, so that their classes read the same cache.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import shutil
import socket
import sys
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import BaseHandler, Request, build_opener, url2pathname

import torch
from filelock import FileLock
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from graphcl.datasets.names import SYNTHETIC, listing, suggestion
from graphcl.errors import InputError, reason

Mirror = str | os.PathLike[str] | None
"""Folder, `file://` URL or `http(s)://` URL with the files of data sets; None: the public servers."""
TIMEOUT = 30.0
"""Timeout of a download, in seconds without a received byte."""
CONNECT = 2.0
"""Timeout of a connection to the server, in seconds, with the look-up of its name."""


def fetch(file: str, server: str, mirror: Mirror, folder: Path) -> Path:
    """Return the local path of `file`, in a local mirror or downloaded into `folder`; `server` is its public URL."""
    place = os.fspath(server if mirror is None else mirror)
    scheme, _, rest = place.partition("://")
    if scheme in ("http", "https"):
        url = f"{place.rstrip('/')}/{file}"
        try:
            return _download(url, folder / file)
        except (OSError, HTTPException, ValueError) as error:
            advice = f"Get {server.rstrip('/')}/{file} elsewhere and pass its folder as `mirror` (--mirror FOLDER)"
            embedded = f"`dataset` {SYNTHETIC!r} (--dataset {SYNTHETIC}) needs no network"
            raise InputError(f"cannot download {url}: {reason(error)}. {advice}; {embedded}.") from None
    source = Path(url2pathname(rest) if scheme == "file" else os.path.expanduser(place))
    if (source / file).is_file():
        return source / file
    there = os.listdir(source) if source.is_dir() else []
    advice = f"{suggestion(file, there)}it holds: {listing(there)}. Public source: {server.rstrip('/')}/{file}"
    raise InputError(f"`mirror` {place!r} is not a folder with {file}; {advice}.")


def _download(url: str, target: Path) -> Path:
    # PyG's `download_url` verifies no certificate and has no timeout
    with build_opener(_Connects).open(url, timeout=TIMEOUT) as answer, target.open("wb") as file:
        size = answer.headers.get("Content-Length")
        print(f"graphcl: downloading {url} ({size or 'unknown number of'} bytes)", file=sys.stderr)
        shutil.copyfileobj(answer, file)
        if size is not None and file.tell() != int(size):
            raise ConnectionError(f"it broke off after {file.tell()} of {size} bytes")
    return target


class _Connects(BaseHandler):
    """Raise TimeoutError if the server or proxy does not take a connection: offline, a look-up can last minutes."""

    handler_order = 200  # after urllib has chosen the proxy, before it connects

    def http_open(self, request: Request) -> None:
        server, done = urlsplit(f"//{request.host}"), threading.Event()
        place = (server.hostname or "", server.port or (443 if request.type == "https" else 80))

        def connect() -> None:
            with suppress(OSError, ValueError):  # urllib meets the same error, and reports it
                socket.create_connection(place, CONNECT).close()
            done.set()

        threading.Thread(target=connect, daemon=True).start()  # a look-up cannot be interrupted
        if not done.wait(CONNECT):
            raise TimeoutError(f"no connection to {place[0]} within {CONNECT:g} s")

    https_open = http_open


def unpack(archive: Path, top: str, folder: Path, wanted: Callable[[str], object]) -> None:
    """Unpack the `wanted` files of the folder `top` of a zip archive into `folder`.

    `wanted` tells by the path within `top` whether a file is read later. zipfile itself never writes outside `folder`.
    """
    try:
        with zipfile.ZipFile(archive) as zipped:
            entries = zipped.infolist()
            inside = [entry for entry in entries if entry.filename.startswith(f"{top}/") and not entry.is_dir()]
            for entry in inside:
                entry.filename = entry.filename.removeprefix(f"{top}/")
                if wanted(entry.filename):
                    zipped.extract(entry, folder)
    except Exception as error:  # zipfile raises many kinds of exceptions for a damaged archive
        raise InputError(f"cannot unpack {archive.name}: {reason(error)}.") from None
    if not inside:
        there = listing(entry.filename for entry in entries)
        raise InputError(f"{archive} is not an archive of {top}: it holds no folder {top}, but {there}.")


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
