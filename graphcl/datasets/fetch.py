"""Find a data set's archive NAME.zip in a local mirror, or download it from a server."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import sys
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    UnknownHandler,
    url2pathname,
)

from torch_geometric.datasets import TUDataset

from graphcl.datasets.archive import Chosen, DamagedArchiveError, unpack
from graphcl.datasets.names import SYNTHETIC, TU_NAMES, dataset_names, listing, suggestion
from graphcl.errors import InputError, InputTypeError, one_line, reason

TIMEOUT = 30.0
"""Timeout of a download attempt, in seconds without a received byte."""
ATTEMPTS, PAUSE = 4, 1.0
"""Number of attempts if the connection breaks, and the seconds between two attempts."""
MAX_SECONDS = 6 * 3600.0
"""Longest time for a download, in seconds."""
MAX_BYTES = 4 * 2**30
"""Largest download, in bytes."""


def fetch(name: str, mirror: str | os.PathLike[str] | None, staging: Path) -> tuple[Path, str]:
    """Return the local path of the TU archive NAME.zip, and the path or URL that it came from.

    Raises:
        InputError: `mirror` is None and `name` is not a known TU set; see also `fetch_archive`.
    """
    if mirror is None and name not in TU_NAMES:
        here = f"; for the folder {name} here, write './{name}'" if Path(name).is_dir() else ""
        raise InputError(
            f"unknown data set {name!r}; {suggestion(name, dataset_names())}Known: {listing(TU_NAMES)} "
            f"(all: dataset_names()). Another TU set loads from a folder that holds {name}.zip, given as `mirror` "
            f"(--mirror FOLDER){here}."
        )
    return fetch_archive(name, TUDataset.url, mirror, staging)


def fetch_archive(name: str, server: str, mirror: str | os.PathLike[str] | None, staging: Path) -> tuple[Path, str]:
    """Return the local path of the archive NAME.zip, and the path or URL that it came from.

    Args:
        name: name of the archive, without `.zip`.
        server: URL of the public folder that holds the archive.
        mirror: folder, `file://` URL or `http(s)://` URL that holds `NAME.zip`; `None`: the public server. A local
            mirror is only read.
        staging: folder for the download; the caller removes the folder.

    Raises:
        InputError: the mirror is invalid, or the archive cannot be found or downloaded; the message says how to get
            the archive.
    """
    if mirror is None:
        return _download(name, server, staging, server)
    place = mirror_place(mirror)
    if isinstance(place, Path):
        return _local(name, place, server)
    return _download(name, place, staging, server)


def mirror_place(mirror: str | os.PathLike[str]) -> Path | str:
    """Return `mirror` as a folder, or as a URL if it is on a server; raise InputError if it is neither."""
    if not isinstance(mirror, str | os.PathLike):
        raise InputTypeError(f"`mirror` must be a folder or a URL, got {type(mirror).__name__}.")
    mirror = os.fspath(mirror)
    scheme = mirror.partition("://")[0].lower() if "://" in mirror else ""
    if scheme in ("http", "https"):
        return mirror
    if scheme == "file":
        parts = urlsplit(mirror)
        if parts.netloc not in ("", "localhost"):
            raise InputError(f"`mirror` {mirror!r} names another machine; a local folder is file:///folder.")
        return Path(url2pathname(parts.path))
    if scheme:
        raise InputError(f"`mirror` must be a folder, a file:// or an http(s):// URL, got {mirror!r}.")
    return Path(os.path.expanduser(mirror))


def fetch_unpacked(
    get: Callable[[], tuple[Path, str]], choose: Callable[..., Chosen], staging: Path, target: Path
) -> str:
    """Fetch an archive and unpack it; if the downloaded archive is damaged, download it again.

    Args:
        get: function that returns the path of the archive and its origin, as `fetch_archive` does.
        choose: function that selects the archive's entries to unpack; see `unpack`.
        staging: folder of downloads; an archive in another folder belongs to the user and is not deleted.
        target: the new folder for the unpacked files.

    Returns:
        The origin of the archive, from `get`.

    Raises:
        InputError: the download fails or the archive is invalid.
    """
    archive, origin = get()
    try:
        unpack(archive, target, origin, choose)
    except DamagedArchiveError as error:
        if archive.parent != staging:
            raise
        print(f"graphcl: {error} Downloading it again", file=sys.stderr)
        archive.unlink()
        shutil.rmtree(target, ignore_errors=True)
        archive, origin = get()
        unpack(archive, target, origin, choose)
    return origin


def _local(name: str, folder: Path, public: str) -> tuple[Path, str]:
    if not folder.is_dir():
        what = "is a file, not the folder that holds the archives" if folder.exists() else "does not exist"
        raise InputError(f"`mirror` {str(folder)!r} {what}; give the folder that holds {name}.zip.")
    archive = folder / f"{name}.zip"
    if archive.is_file():
        return archive, str(archive)
    there = [path.stem for path in folder.glob("*.zip")]
    raise InputError(
        f"`mirror` {str(folder)!r} has no {name}.zip; {suggestion(name, there)}"
        f"Archives there: {listing(there)}. Put {name}.zip there (public source: {public}/{name}.zip)."
    )


class _BrokenOffError(Exception):
    """The connection broke before the file was complete; another attempt may succeed."""


def _download(name: str, server: str, staging: Path, public: str) -> tuple[Path, str]:
    url, target = f"{server.rstrip('/')}/{name}.zip", staging / f"{name}.zip"
    elsewhere = (
        f"Get {name}.zip elsewhere (public source: {public}/{name}.zip), put it into a folder and pass that "
        f"folder as `mirror` (--mirror FOLDER), or use the embedded data set '{SYNTHETIC}'."
    )
    return fetch_file(url, target, elsewhere, lambda: suggestion(name, TU_NAMES)), url


def fetch_file(url: str, target: Path, elsewhere: str, hint: Callable[[], str] = lambda: "") -> Path:
    """Download the file at `url` to the path `target`, and return the path.

    Args:
        url: http or https address of the file.
        target: path of the new file.
        elsewhere: advice at the end of every message on other ways to get the file.
        hint: function that returns further advice for a file that the server does not have.

    Raises:
        InputError: the file cannot be downloaded.
    """
    deadline = time.monotonic() + MAX_SECONDS
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _receive(url, target, deadline)
            return target
        except _BrokenOffError as error:
            if attempt == ATTEMPTS:
                raise InputError(f"cannot download {url}: {error}, {ATTEMPTS} times. {elsewhere}") from None
            print(f"graphcl: {url}: {error}; trying again", file=sys.stderr)
            time.sleep(PAUSE)
        except HTTPError as error:
            error.close()
            advice = hint() if error.code == 404 else ""
            why = one_line(error.reason)
            raise InputError(f"cannot download {url}: HTTP {error.code} {why}. {advice}{elsewhere}") from None
        except InputError as error:
            raise InputError(f"{error} {elsewhere}") from None
        except (URLError, HTTPException, TimeoutError, ConnectionError, ValueError) as error:
            cause = error.reason if isinstance(error, URLError) and isinstance(error.reason, OSError) else error
            raise InputError(f"cannot download {url}: {reason(cause)}. {elsewhere}") from None
    raise AssertionError("one of the attempts returns or raises")


def _receive(url: str, target: Path, deadline: float) -> None:
    """Download a file in one attempt.

    Raises:
        _BrokenOffError: the connection broke off.
        InputError: the file is too large, takes too long, or has an encoding that was not requested.
    """
    request = Request(url, headers={"User-Agent": "graphcl", "Accept-Encoding": "identity"})
    with _opener().open(request, timeout=TIMEOUT) as answer:
        encoding = answer.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            raise InputError(f"{url} has the encoding {one_line(encoding, 40)}, which was not requested.")
        length = answer.headers.get("Content-Length", "")
        total = int(length) if re.fullmatch(r"\d{1,18}", length, re.ASCII) else None
        if total is not None:
            if total > MAX_BYTES:
                raise InputError(f"{url} is larger than {MAX_BYTES} bytes ({total}).")
            print(f"graphcl: downloading {url} ({total / 1e6:.1f} MB)", file=sys.stderr)
        size = 0
        with target.open("wb") as file:
            try:
                while block := answer.read1(2**16):
                    size += len(block)
                    if size > MAX_BYTES:
                        raise InputError(f"{url} is larger than {MAX_BYTES} bytes.")
                    if time.monotonic() > deadline:
                        raise InputError(f"{url} takes longer than {MAX_SECONDS / 3600:.0f} hours.")
                    file.write(block)
            except (HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
                raise _BrokenOffError(f"it broke off after {size} bytes ({reason(error)})") from None
    if total is not None and size != total:
        raise _BrokenOffError(f"it broke off after {size} of {total} bytes")


class _Redirects(HTTPRedirectHandler):
    """Redirect handler that follows redirects to http and https only, and never from https to http."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        allowed = ("https",) if req.type == "https" else ("http", "https")
        if urlsplit(newurl).scheme not in allowed:
            raise HTTPError(req.full_url, code, f"leads to {newurl[:200]}, which is not followed", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> OpenerDirector:
    """Return a URL opener for http and https only; urllib's default would also open FTP and file URLs."""
    opener = OpenerDirector()
    kinds = (ProxyHandler, HTTPHandler, HTTPSHandler, HTTPDefaultErrorHandler, HTTPErrorProcessor, _Redirects)
    for kind in (*kinds, UnknownHandler):
        opener.add_handler(kind())
    return opener
