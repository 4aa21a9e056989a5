"""A hidden folder in which one process at a time prepares a data set before it is moved into the cache."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from graphcl.errors import InputError, reason

try:
    import fcntl
except ImportError:  # on Windows there is no lock, so processes may prepare the same set at the same time
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def staged(name: str, root: Path) -> Iterator[Path]:
    """Yield a new folder `root/.NAME-*`; at the end remove it, and `root` too if it was created here and is empty.

    Only one process at a time enters the block for `name`, so check again within it whether the set exists. The
    operating system releases the lock when the process that holds it ends in any way. The next process removes the
    folder that a killed process left.

    Args:
        name: name of the data set.
        root: absolute path of the folder of all data sets; created if necessary.

    Raises:
        InputError: an OSError was raised, here or in the block.
    """
    made = not root.exists()
    try:
        with _locked(name, root) as alone:
            if alone:
                _remove_left(name, root)
            staging = root / f".{name}-{secrets.token_hex(6)}"
            try:
                staging.mkdir(mode=0o700)
                yield staging
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise InputError(f"cannot prepare {name} under `root` {str(root)!r}: {reason(error)}.") from None
    finally:
        if made:
            with contextlib.suppress(OSError):  # `root` is not empty, so it stays
                root.rmdir()


@contextlib.contextmanager
def _locked(name: str, root: Path) -> Iterator[bool]:
    """Hold the lock `root/.NAME.lock` in the block and yield True; yield False if the system has no file locks."""
    path = root / f".{name}.lock"
    if fcntl is None:
        root.mkdir(parents=True, exist_ok=True)
        yield False
        return
    while True:
        root.mkdir(parents=True, exist_ok=True)
        try:
            flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            handle = os.open(path, flags, 0o666)
        except FileNotFoundError:  # another process has just removed `root`, so try again
            continue
        alone = False
        try:
            alone = _lock(handle, name)
            # the previous holder may have removed the file; then others lock a new file, so try again
            if not alone or _same_file(handle, path):
                yield alone
                return
        finally:
            if alone and _same_file(handle, path):
                with contextlib.suppress(OSError):
                    path.unlink()
            os.close(handle)


def _lock(handle: int, name: str) -> bool:
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"graphcl: another process is preparing {name}; waiting for it", file=sys.stderr)
            fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        # without locks go on unlocked; EBADF: NFS locks only files that are open for writing
        if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF):
            return False
        raise
    return True


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _remove_left(name: str, root: Path) -> None:
    """Remove the folders that killed processes left; call it with the lock held, so that no process uses them."""
    for left in root.glob(f".{name}-*"):
        if re.fullmatch(r"-[0-9a-f]{12}", left.name.removeprefix(f".{name}")) and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)


def check_room(folder: Path) -> None:
    """Raise OSError if the disk is full, as torch's own error does not name the cause."""
    if shutil.disk_usage(folder).free < 2**16:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
