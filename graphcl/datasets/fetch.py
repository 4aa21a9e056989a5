"""Where the archive NAME.zip comes from: the public TU server, or a mirror of it."""

from __future__ import annotations

import os
import sys
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, url2pathname, urlopen

from torch_geometric.datasets import TUDataset

from graphcl.datasets.names import SYNTHETIC, TU_NAMES, dataset_names, listing, nearest, reason
from graphcl.errors import InputError, InputTypeError

TIMEOUT = 30.0
"""Seconds without an answer or without a byte after which a download is given up."""
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


def _download(name: str, server: str, staging: Path, public: str, most: int) -> tuple[Path, str]:
    url, target = f"{server.rstrip('/')}/{name}.zip", staging / f"{name}.zip"
    elsewhere = (
        f"Get {name}.zip elsewhere (public source: {public}/{name}.zip), put it into a folder and pass that "
        f"folder as `mirror` (--mirror FOLDER), or use the embedded data set '{SYNTHETIC}'."
    )
    try:
        with urlopen(Request(url, headers={"User-Agent": "graphcl"}), timeout=TIMEOUT) as answer:
            announced, size = answer.headers.get("Content-Length"), 0
            if announced is not None and announced.isdigit():
                if int(announced) > most:
                    raise InputError(f"{url} is larger than {most} bytes ({announced}). {elsewhere}")
                print(f"graphcl: downloading {url} ({int(announced) / 1e6:.1f} MB)", file=sys.stderr)
            with target.open("wb") as file:
                while block := answer.read(2**20):
                    size += len(block)
                    if size > most:
                        raise InputError(f"{url} is larger than {most} bytes. {elsewhere}")
                    file.write(block)
    except HTTPError as error:
        error.close()
        hint = nearest(name, TU_NAMES) if error.code == 404 else ""
        raise InputError(f"cannot download {url}: HTTP {error.code} {error.reason}. {hint}{elsewhere}") from None
    except (URLError, HTTPException, TimeoutError, ConnectionError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        why = reason(error.reason if isinstance(error, URLError) and isinstance(error.reason, OSError) else error)
        raise InputError(f"cannot download {url}: {why}. {elsewhere}") from None
    if announced is not None and announced.isdigit() and size != int(announced):
        raise InputError(f"cannot download {url}: it broke off after {size} of {announced} bytes. {elsewhere}")
    return target, url
