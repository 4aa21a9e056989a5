"""Prepare a data set in a hidden folder, in one process at a time, then move the data set into the cache."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from graphcl.errors import InputError, reason
from graphcl.system.files import refuse_links

T = TypeVar("T")


def load_cached(
    name: str, root: Path, home: Path, cached: str, reader: str, fill: Callable[[Path], str], read: Callable[[Path], T]
) -> T:
    """Return a data set from the cache; if it is not cached, prepare it first.

    `fill` and `read` prepare the set in a temporary hidden folder with the layout of `root`. The set is then moved to
    `home`, so that the cache never holds incomplete files.

    Args:
        name: name of the set.
        root: folder of all sets.
        home: cache folder of this set in `root`.
        cached: name of a file that `read` writes into `home/processed`; the set is cached if this file exists.
        reader: library whose reader `read` calls, such as "PyG's", for messages.
        fill: function that takes the hidden folder, writes the checked source files into it, and returns their origin
            for messages.
        read: function that takes `root` or the hidden folder, processes the source files if `cached` is missing, and
            returns the set.

    Raises:
        InputError: the set cannot be read or prepared.
    """

    def read_cached() -> T:
        try:
            return read(root)
        except Exception as error:
            raise InputError(
                f"the cached copy of {name} cannot be read ({reason(error)}): delete the folder {home / 'processed'} "
                "and load again."
            ) from None

    file = home / "processed" / cached
    if file.is_file():
        return read_cached()
    with staged(name, root) as staging:
        if file.is_file():  # another process prepared the set while this one waited
            return read_cached()
        origin = fill(staging)
        try:
            found = read(staging)
        except Exception as error:
            if shutil.disk_usage(staging).free < 2**16:  # torch's own error does not name the cause
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
            raise InputError(f"{origin}: {reader} reader cannot make graphs of {name}: {reason(error)}.") from None
        _move(staging / home.name, home)
        if not file.is_file():
            raise InputError(f"the folder {file.parent} holds no {cached}: delete it and load again.")
        return found


@contextlib.contextmanager
def staged(name: str, root: Path) -> Iterator[Path]:
    """Yield a new folder `root/.NAME-*`, and remove the folder at the end of the block.

    Only one process at a time enters the block for `name`, so check within the block whether another process has
    prepared the set. The operating system releases the lock when a process ends in any way. If a process is killed,
    its folder is removed by the next process.

    Args:
        name: name of the data set.
        root: absolute path of the folder of all data sets; created if necessary, and then removed if it stays empty.

    Raises:
        InputError: an OSError was raised, here or in the block.
    """
    is_new = not root.exists()
    try:
        root.mkdir(parents=True, exist_ok=True)
        refuse_links(root, f".{name}.lock")
        with _locked(root / f".{name}.lock", name) as alone:
            for left in root.glob(f".{name}-*") if alone else ():
                if re.fullmatch(r"-[0-9a-f]{12}", left.name.removeprefix(f".{name}")) and not left.is_symlink():
                    shutil.rmtree(left, ignore_errors=True)
            staging = root / f".{name}-{secrets.token_hex(6)}"
            try:
                staging.mkdir(mode=0o700)
                yield staging
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise InputError(f"cannot prepare {name} under `data_root` {str(root)!r}: {reason(error)}.") from None
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # `root` is not empty, so it stays
                root.rmdir()


@contextlib.contextmanager
def _locked(path: Path, name: str) -> Iterator[bool]:
    """Hold the lock file `path` in the block and yield True; yield False if the file system has no locks."""
    lock = FileLock(path)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print(f"graphcl: another process is preparing {name}; waiting for it", file=sys.stderr)
            lock.acquire()
    except (NotImplementedError, OSError):  # if the folder is read-only, creating the staging folder fails next
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()


def _move(prepared: Path, home: Path) -> None:
    """Move the prepared set to `home`; if `home` has files already, move only the missing subfolders."""
    with contextlib.suppress(OSError):  # another process was first, so its set stays
        if not home.exists() or not any(home.iterdir()):
            os.replace(prepared, home)
            return
    for part in prepared.iterdir():
        target = home / part.name
        if not target.exists() or (target.is_dir() and not any(target.iterdir())):
            with contextlib.suppress(OSError):
                os.replace(part, target)
