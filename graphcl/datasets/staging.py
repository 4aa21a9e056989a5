"""Prepare a data set in a hidden folder, in one process at a time, then move it into the cache.

PyG and OGB write into the final folder, where another process reads half a file, and where an interruption leaves one.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from filelock import FileLock

from graphcl.errors import InputError, reason

T = TypeVar("T")


def load_cached(home: Path, read: Callable[[Path, bool], T]) -> T:
    """Return the data set whose cache is the folder `home`; prepare it if the cache is missing or cannot be read.

    Args:
        home: the folder; source files in it, such as `raw`, are used instead of fetching them.
        read: function of a folder and of a flag. With False, it reads the processed files in the folder; with True, it
            first fetches the source files that the folder lacks, and writes the processed files.

    Raises:
        InputError: the set cannot be fetched, or its source files are damaged.
    """
    found = _read_cached(home, read)
    if found is not None:
        return found
    try:
        with _staged(home) as staging:
            found = _read_cached(home, read)
            if found is not None:  # another process prepared the set while this one waited
                return found
            made, kept = staging / home.name, home.is_dir() and any(home.iterdir())
            if kept:
                shutil.copytree(home, made, ignore=shutil.ignore_patterns("processed"))
            try:
                found = read(made, True)
            except Exception as error:  # a damaged file can raise any exception
                if isinstance(error, InputError) and not kept:
                    raise
                advice = f"delete the folder {home} and load again" if kept else "get its files again"
                raise InputError(
                    f"cannot prepare {home.name}: {str(error) if isinstance(error, InputError) else reason(error)} (if "
                    f"its files are damaged, {advice})."
                ) from None
            _move(made, home)
            return found
    except OSError as error:
        raise InputError(f"cannot prepare {home.name} in {str(home.parent)!r}: {reason(error)}.") from None


def _read_cached(home: Path, read: Callable[[Path, bool], T]) -> T | None:
    if not home.is_dir():
        return None
    try:
        return read(home, False)
    except FileNotFoundError:
        return None
    except Exception as error:  # a damaged file, or one of another version of PyG, can raise any exception
        print(
            f"graphcl: the cache {home} cannot be read ({reason(error)}); its source files are processed again",
            file=sys.stderr,
        )
        return None


@contextmanager
def _staged(home: Path) -> Iterator[Path]:
    """Yield a new hidden folder next to `home`, and remove it at the end; one process at a time enters the block."""
    home.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(home.with_name(f".{home.name}.lock"))
    try:
        lock.acquire()
        for left in home.parent.glob(f".{home.name}.partial-*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
    except NotImplementedError:  # a file system without locks: two processes may both prepare the set
        pass
    try:
        with TemporaryDirectory(prefix=f".{home.name}.partial-", dir=home.parent) as staging:
            yield Path(staging)
    finally:
        lock.release()


def _move(made: Path, home: Path) -> None:
    """Move the prepared set to `home`; if `home` has source files, replace the processed files only."""
    if not home.is_dir() or not any(home.iterdir()):
        os.replace(made, home)
        return
    for processed in made.rglob("processed"):
        target = home / processed.relative_to(made)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(processed, target)
