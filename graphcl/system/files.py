"""Write files atomically; read text and JSON with a size limit and without running code."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from graphcl.errors import InputError, one_line

MAX_TEXT = 16 * 2**20
"""Size limit in bytes for reading text files; the results of a run of a thousand seeds are smaller."""
MAX_METRICS = 256 * 2**20
"""Size limit in bytes for reading metrics.jsonl; an epoch takes a few hundred bytes."""


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file atomically by `write`, replacing an earlier file; if `write` raises, that is unchanged."""
    # a random name, as the folder's owner could put a link at a predictable one
    partial = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    # flush the folder too, so that the new name survives a power failure
    with suppress(OSError):  # Windows cannot open folders, and some network disks cannot flush them
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically, replacing an earlier file."""
    write_whole(path, lambda file: file.write(text.encode()))


def digest(value: object) -> str:
    """Return a digest of a value's JSON text, in 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def remove_partial(folder: Path) -> None:
    """Remove the temporary files of `write_whole` that a killed process left in a folder."""
    for path in folder.glob(".*.partial"):
        path.unlink(missing_ok=True)


def refuse_links(folder: Path, *names: str) -> None:
    """Raise InputError if one of these names in `folder` is a link; writing through it could change any file."""
    if found := [name for name in names if (folder / name).is_symlink()]:
        raise InputError(f"{folder / found[0]} is a link, and nothing is written through it; remove it.")


def new_file(path: str | os.PathLike[str], force: bool | None = None) -> Path:
    """Return `path` if a file can be created there, else raise InputError; `force` is None without `--force`."""
    file = Path(path).expanduser()
    if os.path.lexists(file) and not (force and file.is_file()):
        if force is not None and file.is_file():
            raise InputError(f"{file} exists already; pass --force to replace it, or another file with --out.")
        raise InputError(f"{file} exists already and is never overwritten; give another file.")
    if not file.parent.is_dir():
        raise InputError(f"folder {str(file.parent)!r} not found; create it to write {file.name}.")
    return file


def check_regular(path: Path) -> None:
    """Raise InputError if `path` is neither a file nor a folder: reading a named pipe or a device might never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{str(path)!r} is a named pipe, a socket or a device; give a regular file.")


def read_text(path: Path, max_bytes: int = MAX_TEXT) -> str:
    """Return the text of a file, with line ends as `\\n`; at most `max_bytes + 1` bytes are read, even of a pipe.

    Raises:
        InputError: the file is larger than `max_bytes` bytes, or is not UTF-8.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise InputError(f"{path} is larger than {max_bytes} bytes.")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.") from None


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raises as `read_text` and `parse_json`."""
    return parse_json(read_text(path), str(path))


def parse_json(text: str, what: str) -> Any:
    """Parse a JSON text and return its value; error messages call the text `what`.

    Raises:
        InputError: the text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is not JSON ({one_line(error)}).") from None
