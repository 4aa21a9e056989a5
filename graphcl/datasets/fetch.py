"""Find a file of a data set in a mirror or download it, and unpack archives."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from http.client import HTTPException
from pathlib import Path
from urllib.request import build_opener, url2pathname

from graphcl.datasets.names import listing, suggestion
from graphcl.errors import InputError, reason

TIMEOUT = 30.0
"""Timeout of a download, in seconds without a received byte."""


def fetch(file: str, server: str, mirror: str | os.PathLike[str] | None, folder: Path) -> Path:
    """Return the local path of a file of a data set.

    Args:
        file: name of the file.
        server: URL of the public folder that holds the file.
        mirror: folder, `file://` URL or `http(s)://` URL that holds the file; None: the public server. A local mirror
            is only read.
        folder: folder for a download.

    Raises:
        InputError: the mirror does not hold the file, or the file cannot be downloaded.
    """
    place = os.fspath(server if mirror is None else mirror)
    scheme, _, rest = place.partition("://")
    if scheme in ("http", "https"):
        advice = f"Get {server.rstrip('/')}/{file} elsewhere and pass its folder as `mirror` (--mirror FOLDER)"
        return _download(f"{place.rstrip('/')}/{file}", folder / file, advice)
    if rest and scheme != "file":
        raise InputError(f"`mirror` must be a folder, a file:// or an http(s):// URL, got {place!r}.")
    source = Path(url2pathname(rest) if rest else os.path.expanduser(place))
    if (source / file).is_file():
        return source / file
    there = os.listdir(source) if source.is_dir() else []
    raise InputError(
        f"`mirror` {place!r} is not a folder with {file}; {suggestion(file, there)}it holds: {listing(there)}. Public "
        f"source: {server.rstrip('/')}/{file}."
    )


def _download(url: str, target: Path, advice: str) -> Path:
    try:
        # PyG's `download_url` verifies no certificate and has no timeout
        with build_opener().open(url, timeout=TIMEOUT) as answer, target.open("wb") as file:
            size = answer.headers.get("Content-Length")
            print(f"graphcl: downloading {url} ({size or 'unknown number of'} bytes)", file=sys.stderr)
            shutil.copyfileobj(answer, file)
            if size is not None and file.tell() != int(size):
                raise ConnectionError(f"it broke off after {file.tell()} of {size} bytes")
    except (OSError, HTTPException, ValueError) as error:
        raise InputError(f"cannot download {url}: {reason(error)}. {advice}.") from None
    return target


def unpack(archive: Path, top: str, folder: Path) -> None:
    """Unpack the folder `top` of a zip archive into `folder`; zipfile itself never writes outside `folder`.

    Raises:
        InputError: the archive is damaged, or has no folder `top`.
    """
    try:
        with zipfile.ZipFile(archive) as zipped:
            entries = zipped.infolist()
            inside = [entry for entry in entries if entry.filename.startswith(f"{top}/") and not entry.is_dir()]
            if not inside:
                there = listing(entry.filename for entry in entries)
                raise InputError(f"{archive} is not an archive of {top}: it holds no folder {top}, but {there}.")
            for entry in inside:
                entry.filename = entry.filename.removeprefix(f"{top}/")
                zipped.extract(entry, folder)
    except InputError:
        raise
    except Exception as error:  # zipfile raises many kinds of exceptions for a damaged archive
        raise InputError(f"cannot unpack {archive.name}: {reason(error)}.") from None
