"""Where the archive NAME.zip comes from: the public TU server, or a mirror of it."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
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

from graphcl.datasets.archive import DamagedArchiveError
from graphcl.datasets.names import SYNTHETIC, TU_NAMES, dataset_names, listing, nearest
from graphcl.errors import InputError, InputTypeError, one_line, reason

TIMEOUT = 30.0
"""Seconds without an answer after which a download is given up; or without a byte, after which it is tried again."""
ATTEMPTS, PAUSE = 4, 1.0
"""How often a download that breaks off is begun, and the seconds between two attempts."""
MOST_SECONDS = 6 * 3600.0
"""Of one download."""
MOST_BYTES = 4 * 2**30
"""The largest archive that is downloaded."""


def fetch(name: str, mirror: str | os.PathLike[str] | None, staging: Path) -> tuple[Path, str]:
    """The archive of the TU set `name` on the local disk, see `fetch_archive`.

    Raises:
        InputError: a name that is not known, without a mirror; or see `fetch_archive`.
    """
    if mirror is None and name not in TU_NAMES:
        raise InputError(
            f"unknown data set {name!r}; {nearest(name, dataset_names())}Known: {listing(TU_NAMES)} "
            f"(all: dataset_names()). Another TU set loads from a folder that holds {name}.zip, given as `mirror` "
            f"(--mirror FOLDER){_folder_here(name)}."
        )
    return fetch_archive(name, TUDataset.url, mirror, staging)


def fetch_archive(
    name: str, server: str, mirror: str | os.PathLike[str] | None, staging: Path, most: int | None = None
) -> tuple[Path, str]:
    """The archive NAME.zip on the local disk, and where it came from (for messages).

    Args:
        name: of the archive.
        server: URL of the public folder that holds it.
        mirror: folder, `file://` URL or `http(s)://` URL that holds `NAME.zip`; `None`: the public server. A local
            mirror is only read.
        staging: folder for the download; the caller removes it.
        most: bytes beyond which nothing is downloaded; default: `MOST_BYTES`.

    Raises:
        InputError: there is no such mirror, file or connection; the message says how to get the file.
    """
    most = MOST_BYTES if most is None else most
    if mirror is None:
        return _download(name, server, staging, server, most)
    if not isinstance(mirror, str | os.PathLike):
        raise InputTypeError(f"`mirror` must be a folder or a URL, got {type(mirror).__name__}.")
    mirror = os.fspath(mirror)
    scheme = mirror.partition("://")[0].lower() if "://" in mirror else ""
    if scheme in ("http", "https"):
        return _download(name, mirror, staging, server, most)
    if scheme == "file":
        parts = urlsplit(mirror)
        if parts.netloc not in ("", "localhost"):
            raise InputError(f"`mirror` {mirror!r} names another machine; a local folder is file:///folder.")
        return _local(name, Path(url2pathname(parts.path)), server)
    if scheme:
        raise InputError(f"`mirror` must be a folder, a file:// or an http(s):// URL, got {mirror!r}.")
    return _local(name, Path(os.path.expanduser(mirror)), server)


def _folder_here(name: str) -> str:
    return f"; for the folder {name} here, write './{name}'" if Path(name).is_dir() else ""


def _local(name: str, folder: Path, public: str) -> tuple[Path, str]:
    if not folder.is_dir():
        what = "is a file, not the folder that holds the archives" if folder.exists() else "does not exist"
        raise InputError(f"`mirror` {str(folder)!r} {what}; give the folder that holds {name}.zip.")
    archive = folder / f"{name}.zip"
    if archive.is_file():
        return archive, str(archive)
    there = [path.stem for path in folder.glob("*.zip")]
    raise InputError(
        f"`mirror` {str(folder)!r} has no {name}.zip; {nearest(name, there)}"
        f"Archives there: {listing(there)}. Put {name}.zip there (public source: {public}/{name}.zip)."
    )


@dataclass
class _Download:
    """What is known of a file while it arrives."""

    url: str
    target: Path
    most: int
    deadline: float
    size: int = 0
    """Bytes that are there."""
    total: int | None = None
    """Bytes of the whole, where the server says so."""
    version: str | None = None
    """What the server names this version of the file by: only of the same one can the rest be asked for."""


class _BrokenOffError(Exception):
    """The connection ended, or nothing came, before the file was whole; another attempt may do."""


def _download(name: str, server: str, staging: Path, public: str, most: int) -> tuple[Path, str]:
    url, target = f"{server.rstrip('/')}/{name}.zip", staging / f"{name}.zip"
    elsewhere = (
        f"Get {name}.zip elsewhere (public source: {public}/{name}.zip), put it into a folder and pass that "
        f"folder as `mirror` (--mirror FOLDER), or use the embedded data set '{SYNTHETIC}'."
    )
    download = _Download(url, target, most, time.monotonic() + MOST_SECONDS)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _receive(download)
            return target, url
        except _BrokenOffError as error:
            if attempt == ATTEMPTS:
                raise InputError(f"cannot download {url}: {error}, {ATTEMPTS} times. {elsewhere}") from None
            print(f"graphcl: {url}: {error}; trying again", file=sys.stderr)
            time.sleep(PAUSE)
        except HTTPError as error:
            error.close()
            hint = nearest(name, TU_NAMES) if error.code == 404 else ""
            why = one_line(error.reason)
            raise InputError(f"cannot download {url}: HTTP {error.code} {why}. {hint}{elsewhere}") from None
        except InputError as error:
            raise InputError(f"{error} {elsewhere}") from None
        except (URLError, HTTPException, TimeoutError, ConnectionError, ValueError) as error:
            cause = error.reason if isinstance(error, URLError) and isinstance(error.reason, OSError) else error
            raise InputError(f"cannot download {url}: {reason(cause)}. {elsewhere}") from None
    raise AssertionError("one of the attempts returns or raises")


def _receive(download: _Download) -> None:
    """One attempt: the whole file, or its rest where the server can give the rest of the same version.

    Raises:
        _BrokenOffError: it broke off; what is there may be gone on with.
        InputError: it is too large, or packed in a way that nobody asked for.
    """
    headers = {"User-Agent": "graphcl", "Accept-Encoding": "identity"}
    if download.size and download.version is not None:
        headers |= {"Range": f"bytes={download.size}-", "If-Range": download.version}
    else:
        download.size = 0
    try:
        answer = _opener().open(Request(download.url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        if error.code != 416 or not download.size:
            raise
        error.close()
        download.size, download.version = 0, None  # there is no such rest: it is another file by now
        raise _BrokenOffError("the server has no rest of it") from None
    with answer:
        _begin(download, answer)
        with download.target.open("ab" if download.size else "wb") as file:
            try:
                while block := answer.read1(2**16):
                    download.size += len(block)
                    if download.size > download.most:
                        raise InputError(f"{download.url} is larger than {download.most} bytes.")
                    if time.monotonic() > download.deadline:
                        raise InputError(f"{download.url} takes longer than {MOST_SECONDS / 3600:.0f} hours.")
                    file.write(block)
            except (HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
                raise _BrokenOffError(f"it broke off after {download.size} bytes ({reason(error)})") from None
    if download.total is not None and download.size != download.total:
        raise _BrokenOffError(f"it broke off after {download.size} of {download.total} bytes")


def _begin(download: _Download, answer: Any) -> None:
    """Look at an answer's head: whether it is the rest that was asked for, and how much is to come."""
    packed = answer.headers.get("Content-Encoding", "identity")
    if packed.lower() != "identity":
        raise InputError(f"{download.url} comes packed ({one_line(packed, 40)}), which was not asked for.")
    length = answer.headers.get("Content-Length", "")
    announced = int(length) if re.fullmatch(r"\d{1,18}", length, re.ASCII) else None
    version = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
    version = version if version and version.isprintable() and not version.startswith("W/") else None
    if answer.status == 206:
        told = re.fullmatch(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})", answer.headers.get("Content-Range", ""), re.ASCII)
        rest = told is not None and (int(told[1]), int(told[2])) == (download.size, download.total)
        if not rest or version not in (None, download.version):
            download.size, download.version = 0, None
            raise _BrokenOffError("the server gave another part of it than the rest")
        return
    download.size, download.total, download.version = 0, announced, version
    if announced is not None:
        if announced > download.most:
            raise InputError(f"{download.url} is larger than {download.most} bytes ({announced}).")
        print(f"graphcl: downloading {download.url} ({announced / 1e6:.1f} MB)", file=sys.stderr)


class _Redirects(HTTPRedirectHandler):
    """To http and https only, and never from https to http."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        allowed = ("https",) if req.type == "https" else ("http", "https")
        if urlsplit(newurl).scheme not in allowed:
            raise HTTPError(req.full_url, code, f"leads to {newurl[:200]}, which is not followed", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> OpenerDirector:
    """Opens http and https; urllib's own would read a file, or ask an FTP server, where an answer says so."""
    opener = OpenerDirector()
    kinds = (ProxyHandler, HTTPHandler, HTTPSHandler, HTTPDefaultErrorHandler, HTTPErrorProcessor, _Redirects)
    for kind in (*kinds, UnknownHandler):
        opener.add_handler(kind())
    return opener


def fetch_unpacked(
    get: Callable[[], tuple[Path, str]], unpack: Callable[[Path, str], None], staging: Path, target: Path
) -> tuple[Path, str]:
    """An archive that `get` gives, unpacked; one that arrived damaged is downloaded once more.

    Args:
        get: gives the archive and its origin.
        unpack: makes the folder `target` of these.
        staging: where downloads lie; an archive elsewhere is the user's own.
        target: the new folder.

    Returns:
        What `get` gave.

    Raises:
        InputError: see both.
    """
    archive, origin = get()
    try:
        unpack(archive, origin)
    except DamagedArchiveError as error:
        if archive.parent != staging:
            raise
        print(f"graphcl: {error} Downloading it once more", file=sys.stderr)
        archive.unlink()
        shutil.rmtree(target, ignore_errors=True)
        archive, origin = get()
        unpack(archive, origin)
    return archive, origin
