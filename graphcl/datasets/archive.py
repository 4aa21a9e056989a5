"""Checks of a zip archive before anything of it is written, and extraction of the files in it that are wanted."""

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
MOST_LISTED = 2**20
"""Bytes of an archive's table of contents, which is read as a whole before its entries can be counted."""
MOST_BYTES = 8 * 2**30
"""The most that an archive may unpack to."""
FREE_BYTES, MOST_RATIO = 16 * 2**20, 200
"""Beyond so many unpacked bytes, an archive may not unpack to more than so many times its own size."""


def unpack(archive: Path, name: str, target: Path, origin: str) -> None:
    """Extract the text files `NAME_*.txt` of a TU archive into the folder `target`, which is made.

    Every entry is checked before the first byte is written, the others (READMEs) too.

    Args:
        archive: path of the zip.
        name: name of the set, the prefix of its files.
        target: the new folder.
        origin: where the archive came from, for messages.

    Raises:
        InputError: not a zip, damaged, unsafe (paths that escape, links, a bomb), or without `NAME_A.txt`.
    """
    _extract(archive, origin, target, lambda entries: _choose(entries, name, origin))


def unpack_folder(archive: Path, folder: str, keep: Sequence[str], target: Path, origin: str) -> None:
    """Extract what lies in a folder of an archive into the folder `target`, which is made.

    Every entry is checked before the first byte is written, the others too.

    Args:
        archive: path of the zip.
        folder: name of the folder at its top.
        keep: patterns of the names to extract, within the folder.
        target: the new folder.
        origin: where the archive came from, for messages.

    Raises:
        InputError: not a zip, damaged, unsafe (paths that escape, links, a bomb), or nothing matches the first pattern.
    """

    def choose(entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        files = {entry.filename: entry for entry in entries if not entry.is_dir()}
        top = f"{folder}/"
        inside = {name.removeprefix(top): each for name, each in files.items() if name.startswith(top)}
        chosen = {name: each for name, each in inside.items() if any(fnmatch.fnmatch(name, rule) for rule in keep)}
        if not fnmatch.filter(chosen, keep[0]):
            raise InputError(
                f"{origin} is not the archive that is wanted: no {folder}/{keep[0]} in it. It holds: {listing(files)}."
            )
        return chosen

    _extract(archive, origin, target, choose)


class DamagedArchiveError(InputError):
    """Bytes are missing or wrong, as after a download that went wrong."""


def _extract(
    archive: Path,
    origin: str,
    target: Path,
    choose: Callable[[list[zipfile.ZipInfo]], dict[str, zipfile.ZipInfo]],
) -> None:
    """Check all entries, and write those that `choose` gives, by their name under `target`."""
    try:
        _check_listing(archive, origin)
        with zipfile.ZipFile(archive) as zipped:
            entries = zipped.infolist()
            _check_safe(entries, archive.stat().st_size, origin)
            chosen = choose(entries)
            target.mkdir(parents=True)
            for name, entry in chosen.items():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                # zipfile never gives more than the entry's declared (and checked) size, and compares its CRC.
                with zipped.open(entry) as source, (target / name).open("wb") as sink:
                    shutil.copyfileobj(source, sink, 2**20)
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, struct.error, OSError) as error:
        # A nonsensical offset in the archive is an invalid argument; other errors of the disk are not the archive's.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        with archive.open("rb") as file:
            start = file.read(16)
        if not start.startswith(b"PK"):
            raise InputError(f"{origin} is not a zip archive: it starts with {start!r}.") from None
        raise DamagedArchiveError(f"{origin} is damaged: {reason(error)}; fetch the file again.") from None


def _check_listing(archive: Path, origin: str) -> None:
    """Refuse a table of contents beyond all need; a few bytes at the archive's end tell its length."""
    size = archive.stat().st_size
    with archive.open("rb") as file:
        file.seek(max(0, size - 2**16 - 22))  # a comment may follow, of at most 65535 bytes
        tail = file.read()
    # Found as zipfile finds it: at the very end, else the last that looks like it.
    plain = tail[-22:-18] == b"PK\x05\x06" and tail[-2:] == b"\0\0"
    at = len(tail) - 22 if plain else tail.rfind(b"PK\x05\x06")
    listed = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
    if at >= 76 and tail[at - 20 : at - 16] == b"PK\x06\x07":  # and once more, in the form for archives beyond 4 GB
        listed = max(listed, int.from_bytes(tail[at - 36 : at - 28], "little"))
    if listed > MOST_LISTED:
        raise InputError(f"{origin} is refused: it lists {listed} bytes of entries, such an archive has a dozen.")


def _check_safe(entries: list[zipfile.ZipInfo], packed: int, origin: str) -> None:
    """Nothing that writes outside of its folder, is not a plain file, or fills the disk."""
    if len(entries) > MOST_ENTRIES:
        raise InputError(f"{origin} is refused: {len(entries)} entries, such an archive has a dozen.")
    for entry in entries:
        # `filename` is already cleaned for the platform; the original name is what the archive says.
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


def _choose(entries: list[zipfile.ZipInfo], name: str, origin: str) -> dict[str, zipfile.ZipInfo]:
    """The entries to extract, by the name of the file they become."""
    wanted = {f"{name}_{part}.txt" for part in PARTS}
    chosen: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        file_name = PurePosixPath(entry.filename).name
        if entry.is_dir() or file_name not in wanted:
            continue
        if file_name in chosen:
            raise InputError(f"{origin} is ambiguous: it holds {file_name} twice.")
        chosen[file_name] = entry
    for part in ("A", "graph_indicator"):
        if f"{name}_{part}.txt" not in chosen:
            there = listing(entry.filename for entry in entries if not entry.is_dir())
            raise InputError(f"{origin} is no archive of {name}: no {name}_{part}.txt in it. It holds: {there}.")
    return chosen


def note_checksum(archive: Path, name: str, origin: str) -> None:
    """Say so where an archive is not the one that this library was tested with; it may have been packed anew."""
    if name in TESTED_ARCHIVES:
        with archive.open("rb") as file:
            digest = hashlib.sha256()
            while block := file.read(2**20):
                digest.update(block)
        if digest.hexdigest() != TESTED_ARCHIVES[name]:
            print(
                f"graphcl: {origin} is not the archive that this library was tested with (its SHA-256 is "
                f"{digest.hexdigest()}); it passes all checks and is used",
                file=sys.stderr,
            )
