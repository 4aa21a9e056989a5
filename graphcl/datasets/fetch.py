"""Find a file of a data set in a mirror or download it, and unpack archives."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.request import build_opener, url2pathname

from graphcl.datasets.names import listing, suggestion
from graphcl.errors import InputError, reason

Mirror = str | os.PathLike[str] | None
"""Folder, `file://` URL or `http(s)://` URL with the files of data sets; None: the public servers."""
TIMEOUT = 30.0
"""Timeout of a download, in seconds without a received byte."""


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
            raise InputError(f"cannot download {url}: {reason(error)}. {advice}.") from None
    if rest and scheme != "file":
        raise InputError(f"`mirror` must be a folder, a file:// or an http(s):// URL, got {place!r}.")
    source = Path(url2pathname(rest) if rest else os.path.expanduser(place))
    if (source / file).is_file():
        return source / file
    there = os.listdir(source) if source.is_dir() else []
    advice = f"{suggestion(file, there)}it holds: {listing(there)}. Public source: {server.rstrip('/')}/{file}"
    raise InputError(f"`mirror` {place!r} is not a folder with {file}; {advice}.")


def _download(url: str, target: Path) -> Path:
    # PyG's `download_url` verifies no certificate and has no timeout
    with build_opener().open(url, timeout=TIMEOUT) as answer, target.open("wb") as file:
        size = answer.headers.get("Content-Length")
        print(f"graphcl: downloading {url} ({size or 'unknown number of'} bytes)", file=sys.stderr)
        shutil.copyfileobj(answer, file)
        if size is not None and file.tell() != int(size):
            raise ConnectionError(f"it broke off after {file.tell()} of {size} bytes")
    return target


def unpack(archive: Path, top: str, folder: Path, wanted: Callable[[str], object]) -> None:
    """Unpack the `wanted` files of the folder `top` of a zip archive into `folder`.

    `wanted` tells by the path within `top` whether a file is read later; others could take any space. zipfile itself
    never writes outside `folder`.
    """
    try:
        with zipfile.ZipFile(archive) as zipped:
            entries = zipped.infolist()
            inside = [entry for entry in entries if entry.filename.startswith(f"{top}/") and not entry.is_dir()]
            chosen = [entry for entry in inside if wanted(entry.filename.removeprefix(f"{top}/"))]
            names = [entry.filename for entry in chosen]
            if repeated := [name for place, name in enumerate(names) if name in names[:place]]:
                raise ValueError(f"it holds two files {repeated[0]}")
            for entry in chosen:
                entry.filename = entry.filename.removeprefix(f"{top}/")
                zipped.extract(entry, folder)
    except Exception as error:  # zipfile raises many kinds of exceptions for a damaged archive
        raise InputError(f"cannot unpack {archive.name}: {reason(error)}.") from None
    if not inside:
        there = listing(entry.filename for entry in entries)
        raise InputError(f"{archive} is not an archive of {top}: it holds no folder {top}, but {there}.")
