"""Write files atomically; read text and JSON with a size limit and without running code."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from graphcl.errors import InputError, one_line, reason

MAX_TEXT = 16 * 2**20
"""Size limit in bytes for reading text files; the results of a run of a thousand seeds are smaller."""
MAX_METRICS = 256 * 2**20
"""Size limit in bytes for reading metrics.jsonl; an epoch takes a few hundred bytes."""


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file atomically by `write`, replacing an earlier file; if `write` raises, that is unchanged."""
    partial = _partial(path)
    try:
        with naming(path, partial):
            with partial.open("xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    _flush_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically, replacing an earlier file."""
    write_whole(path, lambda file: file.write(text.encode()))


def append_text(path: Path, text: str) -> None:
    """Append UTF-8 text to a log; a kill can leave half of it."""
    with naming(path), path.open("ab") as file:
        file.write(text.encode())


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a hidden folder next to `path` to write into, and rename it to `path`; remove it after an error.

    Raises:
        OSError: the folder cannot be written, or `path` holds files.
    """
    partial = _partial(path)
    try:
        with naming(path, partial):
            partial.mkdir(parents=True)
            yield partial
            for name in partial.iterdir():
                with name.open("rb+") as file:
                    os.fsync(file.fileno())
            partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    _flush_folder(path.parent)


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Keep other processes from writing the file or folder `path` within the block.

    Temporary files for it, or in it, that a killed process left are removed. The lock of a killed process is released.

    Raises:
        InputError: another process writes `path`.
    """
    inside = path.is_dir()
    lock = FileLock(path / ".lock" if inside else path.with_name(f".{path.name[:200]}.lock"))
    try:
        with suppress(NotImplementedError):  # a file system without locks
            lock.acquire(timeout=0)
    except Timeout:
        raise InputError(f"another process writes {path}; wait for it, or give another path.") from None
    except OSError as error:  # of the lock, whose name says nothing
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        remove_partial(path if inside else path.parent, "" if inside else path.name)
        yield
    finally:
        with suppress(OSError):  # Windows removes no open file
            Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def remove_partial(folder: Path, name: str = "") -> None:
    """Remove what a killed process left of `name`, by default of all names, in `folder`."""
    pattern = f".{glob.escape(name[:200])}.????????.partial" if name else ".*.partial"
    for path in folder.glob(pattern):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    # a random name, as the folder's owner could put a link at a predictable one
    return path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.partial")


@contextmanager
def naming(path: Path, partial: Path | None = None) -> Iterator[None]:
    """Let an OSError name the file `path`: that of a full disk names none, others name the temporary file."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and not str(error.filename).startswith(str(partial)):
            raise
        # NumPy's error of a full disk has no number
        number, text = error.errno or errno.EIO, error.strerror or f"cannot be written ({reason(error)})"
        raise OSError(number, text, str(path)) from error


def _flush_folder(path: Path) -> None:
    """Flush a folder, so that a new name in it survives a power failure."""
    with suppress(OSError):  # Windows cannot open folders, and some network disks cannot flush them
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def digest(value: object) -> str:
    """Return a digest of a value's JSON text, in 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def refuse_links(folder: Path, *names: str) -> None:
    """Raise InputError if one of these names in `folder` is a link; writing through it could change any file."""
    for name in names:
        if (folder / name).is_symlink():
            raise InputError(f"{folder / name} is a link, and nothing is written through it; remove it.")


def new_file(path: str | os.PathLike[str], force: bool | None = None, source: str = "") -> Path:
    """Return `path` if a file can be created there, else raise InputError.

    `force` is None without `--force`; even with it, the file `source` of a data set is never replaced.
    """
    file = Path(path).expanduser()
    if file.is_file() and (data := Path(source).expanduser()).is_file() and file.samefile(data):
        raise InputError(f"`out` {path} is the data set; give another file.")
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
