"""Safe extraction of zip archives: all entries are checked before any file is written."""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import shutil
import stat
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from graphcl.datasets.names import TESTED_ARCHIVES, listing
from graphcl.datasets.text import PARTS
from graphcl.errors import InputError, one_line, reason

MOST_ENTRIES = 1000
MOST_BYTES = 8 * 2**30
"""Largest total size of the unpacked files, in bytes."""
FREE_BYTES, MOST_RATIO = 16 * 2**20, 200
"""An archive that unpacks to more than `FREE_BYTES` bytes may unpack to at most `MOST_RATIO` times its own size."""


class DamagedArchiveError(InputError):
    """Bytes of an archive are missing or wrong, as after an incomplete download."""


def unpack(archive: Path, name: str, target: Path, origin: str) -> None:
    """Extract the text files `NAME_*.txt` of a TU archive into a new folder.

    Args:
        archive: path of the zip archive.
        name: name of the data set, with which its file names begin.
        target: the new folder.
        origin: the source of the archive, for messages.

    Raises:
        InputError: the archive is not a zip, is corrupted or unsafe (escaping paths, links, a zip bomb), or lacks
            `NAME_A.txt`.
    """
    wanted = {f"{name}_{part}.txt" for part in PARTS}

    def choose(entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        chosen: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            file_name = PurePosixPath(entry.filename).name
            if file_name in chosen:
                raise InputError(f"{origin} is ambiguous: it holds {file_name} twice.")
            if file_name in wanted:
                chosen[file_name] = entry
        for part in ("A", "graph_indicator"):
            if f"{name}_{part}.txt" not in chosen:
                there = listing(entry.filename for entry in entries)
                raise InputError(
                    f"{origin} is not an archive of {name}: no {name}_{part}.txt in it. It holds: {there}."
                )
        return chosen

    _extract(archive, origin, target, choose)


def unpack_folder(archive: Path, folder: str, keep: Sequence[str], target: Path, origin: str) -> None:
    """Extract the files of one folder in an archive into a new folder.

    Args:
        archive: path of the zip archive.
        folder: name of a top-level folder in the archive.
        keep: patterns for the names of the files to extract, relative to `folder`; the first must match a file.
        target: the new folder.
        origin: the source of the archive, for messages.

    Raises:
        InputError: the archive is not a zip, is corrupted or unsafe (escaping paths, links, a zip bomb), or nothing
            matches the first pattern.
    """

    def choose(entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        top = f"{folder}/"
        inside = {each.filename.removeprefix(top): each for each in entries if each.filename.startswith(top)}
        chosen = {name: each for name, each in inside.items() if any(fnmatch.fnmatch(name, rule) for rule in keep)}
        if not fnmatch.filter(chosen, keep[0]):
            there = listing(entry.filename for entry in entries)
            raise InputError(f"{origin} is the wrong archive: no {folder}/{keep[0]} in it. It holds: {there}.")
        return chosen

    _extract(archive, origin, target, choose)


def note_checksum(archive: Path, name: str, origin: str) -> None:
    """Print a line if the checksum of a TU archive differs from the tested one; the server may have repacked it."""
    if name not in TESTED_ARCHIVES:
        return
    digest = hashlib.sha256()
    with archive.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    if digest.hexdigest() != TESTED_ARCHIVES[name]:
        print(
            f"graphcl: {origin} is not the archive that this library was tested with (its SHA-256 is "
            f"{digest.hexdigest()}); it passes all checks and is used",
            file=sys.stderr,
        )


def _extract(
    archive: Path,
    origin: str,
    target: Path,
    choose: Callable[[list[zipfile.ZipInfo]], dict[str, zipfile.ZipInfo]],
) -> None:
    """Check all entries, then write those that `choose` returns, each as the file `target/NAME` for its key NAME."""
    try:
        with zipfile.ZipFile(archive) as zipped:
            entries = zipped.infolist()
            _check_safe(entries, archive.stat().st_size, origin)
            chosen = choose([entry for entry in entries if not entry.is_dir()])
            target.mkdir(parents=True)
            for name, entry in chosen.items():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                # zipfile verifies the CRC and never returns more than the declared size, so the check above suffices
                with zipped.open(entry) as source, (target / name).open("wb") as sink:
                    shutil.copyfileobj(source, sink, 2**20)
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, struct.error, OSError) as error:
        # EINVAL comes from an invalid offset in the archive; other OSErrors come from the disk, so they pass
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        with archive.open("rb") as file:
            start = file.read(16)
        if not start.startswith(b"PK"):
            raise InputError(f"{origin} is not a zip archive: it starts with {start!r}.") from None
        raise DamagedArchiveError(f"{origin} is damaged: {reason(error)}; fetch the file again.") from None


def _check_safe(entries: list[zipfile.ZipInfo], packed: int, origin: str) -> None:
    """Raise InputError if an entry escapes the folder, is not a plain file, or would fill the disk."""
    if len(entries) > MOST_ENTRIES:
        raise InputError(f"{origin} is refused: {len(entries)} entries, such an archive has a dozen.")
    for entry in entries:
        # not `filename`, which zipfile has already normalised, so that it hides backslashes and NUL
        told = one_line(repr(entry.orig_filename), 100)
        path, kind = PurePosixPath(entry.orig_filename), stat.S_IFMT(entry.external_attr >> 16)
        drive = len(entry.orig_filename) > 1 and entry.orig_filename[1] == ":"
        if path.is_absolute() or ".." in path.parts or drive or {"\\", "\0"} & set(entry.orig_filename):
            raise InputError(f"{origin} is refused: the entry {told} leads out of the folder.")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise InputError(f"{origin} is refused: the entry {told} is a link or special file.")
        if entry.flag_bits & 0x1:
            raise InputError(f"{origin} is refused: the entry {told} is encrypted.")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            how = f"is packed by method {entry.compress_type}"
            raise InputError(f"{origin} is refused: the entry {told} {how}; repack it with deflate.")
    total = sum(entry.file_size for entry in entries)
    if total > MOST_BYTES or (total > FREE_BYTES and total > MOST_RATIO * packed):
        raise InputError(f"{origin} is refused: its {packed} bytes would unpack to {total} bytes (a zip bomb?).")
