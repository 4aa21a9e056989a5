"""A hidden folder in which one process at a time prepares a data set, before it is moved into the cache as a whole."""

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
except ImportError:  # another system than those this is tested on: processes prepare beside each other
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def staged(name: str, root: Path) -> Iterator[Path]:
    """The folder `root/.NAME-*`, which is removed whatever happens; so is `root`, if it was made here and is empty.

    Only one process at a time has one for a name; who waited for it should look whether the set is there by now. The
    lock is the operating system's, so it is free as soon as its holder is gone, however that ended; what a killed
    process left behind is removed by the next.

    Args:
        name: of the data set.
        root: absolute folder of all data sets, made if it is not there.

    Raises:
        InputError: the disk refuses something, here or in the block.
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
            with contextlib.suppress(OSError):  # it is not empty: the set is there
                root.rmdir()


@contextlib.contextmanager
def _locked(name: str, root: Path) -> Iterator[bool]:
    """Wait for the lock `root/.NAME.lock`; gives whether there is one, which some network file systems do not offer."""
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
        except FileNotFoundError:  # another process has just removed the folder that it had made
            continue
        alone = False
        try:
            alone = _lock(handle, name)
            # Who had the lock before has removed its file: then it is a lock on nothing.
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
        # NFS wants a file that is open for writing, which that of another user may not be.
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
    """Remove the folders of processes that were killed; nobody is at work in them, as the lock is ours."""
    for left in root.glob(f".{name}-*"):
        if re.fullmatch(r"-[0-9a-f]{12}", left.name.removeprefix(f".{name}")) and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)


def check_room(folder: Path) -> None:
    """Say that the disk is full, if it is: torch's own error does not.

    Raises:
        OSError: so it is.
    """
    if shutil.disk_usage(folder).free < 2**16:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
