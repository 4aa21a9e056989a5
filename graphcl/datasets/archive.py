"""Extract zip archives safely: check all entries before writing any file."""

from __future__ import annotations

import errno
import fnmatch
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from graphcl.datasets.names import listing
from graphcl.datasets.text import PARTS
from graphcl.errors import InputError, one_line, reason

MAX_ENTRIES = 1000
MAX_BYTES = 8 * 2**30
"""Largest total size of the unpacked files, in bytes."""
FREE_BYTES, MAX_RATIO = 16 * 2**20, 200
"""An archive may unpack to at most `FREE_BYTES` bytes or `MAX_RATIO` times its own size, whichever is larger."""


Entries = list[zipfile.ZipInfo]
Chosen = dict[str, zipfile.ZipInfo]


class DamagedArchiveError(InputError):
    """An archive is corrupted, for example by an incomplete download."""


def unpack(archive: Path, target: Path, origin: str, choose: Callable[..., Chosen]) -> None:
    """Check all entries of a zip archive, then extract the entries that `choose` selects into a new folder.

    Args:
        archive: path of the zip archive.
        target: the new folder.
        origin: the source of the archive, for messages.
        choose: function that takes a list of the file entries and `origin`, and returns a dict from the new file name
            to the entry to extract.

    Raises:
        InputError: the archive is not a zip file, is corrupted, or is unsafe (escaping paths, links, a zip bomb), or
            `choose` refuses its entries.
    """
    try:
        with zipfile.ZipFile(archive) as zipped:
            entries = zipped.infolist()
            _check_safe(entries, archive.stat().st_size, origin)
            chosen = choose([entry for entry in entries if not entry.is_dir()], origin=origin)
            target.mkdir(parents=True)
            for name, entry in chosen.items():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                # zipfile verifies the CRC and never returns more than the declared size, so the check above suffices
                with zipped.open(entry) as source, (target / name).open("wb") as sink:
                    shutil.copyfileobj(source, sink, 2**20)
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, struct.error, OSError) as error:
        # EINVAL comes from an invalid offset in the archive; any other OSError comes from the disk
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        with archive.open("rb") as file:
            start = file.read(16)
        if not start.startswith(b"PK"):
            raise InputError(f"{origin} is not a zip archive: it starts with {start!r}.") from None
        raise DamagedArchiveError(f"{origin} is damaged: {reason(error)}; fetch the file again.") from None


def tu_files(entries: Entries, name: str, origin: str) -> Chosen:
    """Return a dict from file name to entry of the text files `NAME_*.txt` in a TU archive.

    Raises:
        InputError: a file occurs twice, or `NAME_A.txt` or `NAME_graph_indicator.txt` is missing.
    """
    wanted, chosen = {f"{name}_{part}.txt" for part in PARTS}, {}
    for entry in entries:
        file_name = PurePosixPath(entry.filename).name
        if file_name in chosen:
            raise InputError(f"{origin} is ambiguous: it holds {file_name} twice.")
        if file_name in wanted:
            chosen[file_name] = entry
    for part in ("A", "graph_indicator"):
        if f"{name}_{part}.txt" not in chosen:
            there = listing(entry.filename for entry in entries)
            raise InputError(f"{origin} is not an archive of {name}: no {name}_{part}.txt in it. It holds: {there}.")
    return chosen


def folder_files(entries: Entries, folder: str, keep: Sequence[str], origin: str) -> Chosen:
    """Return a dict from path to entry of the files that match a pattern, in one folder of an archive.

    Args:
        entries: all file entries of the archive.
        folder: name of a top-level folder in the archive.
        keep: patterns of paths within the folder, such as `raw/*`.
        origin: the source of the archive, for messages.

    Raises:
        InputError: no entry matches the first pattern.
    """
    top = f"{folder}/"
    inside = {each.filename.removeprefix(top): each for each in entries if each.filename.startswith(top)}
    chosen = {name: each for name, each in inside.items() if any(fnmatch.fnmatch(name, rule) for rule in keep)}
    if not fnmatch.filter(chosen, keep[0]):
        there = listing(entry.filename for entry in entries)
        raise InputError(f"{origin} is the wrong archive: no {folder}/{keep[0]} in it. It holds: {there}.")
    return chosen


def _check_safe(entries: list[zipfile.ZipInfo], packed: int, origin: str) -> None:
    """Raise InputError if an entry has an unsafe path, type or encoding, or if the unpacked files are too large."""
    if len(entries) > MAX_ENTRIES:
        raise InputError(f"{origin} is refused: it has {len(entries)} entries, more than {MAX_ENTRIES}.")
    for entry in entries:
        # `filename` cannot be used: zipfile normalises it, which hides backslashes and NUL
        shown = one_line(repr(entry.orig_filename), 100)
        path, kind = PurePosixPath(entry.orig_filename), stat.S_IFMT(entry.external_attr >> 16)
        drive = len(entry.orig_filename) > 1 and entry.orig_filename[1] == ":"
        if path.is_absolute() or ".." in path.parts or drive or {"\\", "\0"} & set(entry.orig_filename):
            raise InputError(f"{origin} is refused: the entry {shown} leads out of the folder.")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise InputError(f"{origin} is refused: the entry {shown} is a link or special file.")
        if entry.flag_bits & 0x1:
            raise InputError(f"{origin} is refused: the entry {shown} is encrypted.")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            how = f"is packed by method {entry.compress_type}"
            raise InputError(f"{origin} is refused: the entry {shown} {how}; repack it with deflate.")
    total = sum(entry.file_size for entry in entries)
    if total > MAX_BYTES or (total > FREE_BYTES and total > MAX_RATIO * packed):
        raise InputError(f"{origin} is refused: its {packed} bytes would unpack to {total} bytes (a zip bomb?).")
