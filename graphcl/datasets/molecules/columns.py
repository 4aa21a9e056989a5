"""Read the columns of a table of molecules in a text file, and find those that are wanted in any table."""

from __future__ import annotations

import csv
import gzip
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphcl.datasets.names import listing, suggestion
from graphcl.datasets.settings import Table as Rules
from graphcl.datasets.tables import DELIMITERS, delimiter_of
from graphcl.errors import InputError, one_line, reason
from graphcl.system.files import check_regular

TEXT = tuple(f"{suffix}{packed}" for suffix in (".csv", ".tsv", ".smi") for packed in ("", ".gz"))
SUFFIXES = (*TEXT, ".parquet", ".xlsx")
"""Endings of files that are tables of molecules."""
MAX_LINE = 2**20
"""Largest number of characters in a line of a table."""
MAX_UNPACKED = 2**30
"""Largest number of characters in a packed table, with 256 more for each line, as rows take time and memory."""
_NAMED = re.compile(r"\s*(\S+)\s*(?:\|[^|]*\|)?\s*([^\t]*)").match
"""Function that finds the SMILES and the name in a line of a .smi file, without an extension |...| between them."""


class Column(NamedTuple):
    """A column of a table: its role (`smiles`, `target`, `group` or `id`), its name and its cells."""

    role: str
    name: str
    cells: Sequence[Any]


def ending(source: str | os.PathLike[str]) -> str:
    """Return the entry of `SUFFIXES` that the path ends with, in any case; an empty string for other paths."""
    return next((each for each in SUFFIXES if str(source).lower().endswith(each)), "")


def series(source: Any) -> list[Any] | None:
    """Return the entries of a Series of pandas or polars, or of an array of pyarrow; None for other objects."""
    if type(source).__module__.partition(".")[0] not in ("pandas", "polars", "pyarrow"):
        return None
    convert = getattr(source, "to_list", None) or getattr(source, "to_pylist", None)
    return convert() if convert else None


def read_text(path: Path, rules: Rules) -> tuple[list[Column], list[int]]:
    """Return the wanted columns of a text file and the line of each row; blank lines are left out."""
    check_regular(path)
    plain = ending(path).startswith(".smi")
    named = [name for name in (rules.smiles, rules.id, rules.group, *rules.target) if name]
    if plain and named:
        raise InputError(f"{path} has no column {named[0]!r}, as its lines are SMILES and names; give a .csv file.")
    places, lines, cells = [("smiles", "smiles", 0), ("id", "name", 1)], list[int](), list[list[str]]()
    try:
        rows = _rows(path, ending(path), {*named, "smiles"} if rules.smiles is None else {*named})
        if not plain and (first := next(rows, None)):
            places = find(first[1], rules, str(path))
        cells = [[] for _ in places]
        for line, row in rows:
            lines.append(line)
            for column, (*_, place) in zip(cells, places, strict=True):
                column.append(row[place] if place < len(row) else "")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        advice = "; save it as text in UTF-8" if isinstance(error, UnicodeDecodeError) else ""
        raise InputError(f"cannot read {str(path)!r}: {reason(error)}{advice}.") from None
    return [Column(role, name, column) for (role, name, _), column in zip(places, cells, strict=True)], lines


def find(header: Sequence[str], rules: Rules, what: str) -> list[tuple[str, str, int]]:
    """Return the role, the name and the index of each wanted column: `smiles`, `target`, `group` and `id`.

    A target that is not a column, but whose words are, stands for these columns.

    Raises:
        InputError: a column is missing or occurs twice, or a target is named twice or holds the SMILES.
    """
    target = [name for text in rules.target for name in (text.split() if _words(text, header) else [text])]
    smiles = rules.smiles or _usual(header, "smiles") or "smiles"
    if repeated := [name for place, name in enumerate(target) if name in target[:place]]:
        raise InputError(f"`target` names the column {repeated[0]!r} twice; name it once.")
    if smiles in target:
        raise InputError(f"`target` {smiles!r} is the column of the SMILES; name a column of values to predict.")
    wanted = [("smiles", smiles), *(("target", name) for name in target)]
    usual = _usual(header, "id")
    others = (("group", rules.group), ("id", rules.id or (None if usual in (rules.group, *target) else usual)))
    wanted += [(role, name) for role, name in others if name]
    for role, name in wanted:
        if header.count(name) != 1:
            count = f"{header.count(name) or 'no'} columns {one_line(name)!r}"
            alike = [column for column in header if role in column.lower()] if rules.smiles is None else []
            advice = suggestion(name, header)
            if role == "smiles" and alike:
                advice = f"name the column of the SMILES by `smiles` (--smiles {one_line(alike[0], 60)}). "
            elif cut := [column for column in header if "," in column and name in map(str.strip, column.split(","))]:
                advice = f"write a name with a comma as a list: --target '[\"{one_line(cut[0], 60)}\"]'. "
            raise InputError(f"{what} has {count}; {advice}Columns: {listing(header, 20)}.")
    return [(role, name, header.index(name)) for role, name in wanted]


def _usual(header: Sequence[str], name: str) -> str | None:
    """Return the only column `name`, in any case; None if there is none, or several but none in this case."""
    alike = [column for column in header if column.strip().lower() == name]
    return alike[0] if len(alike) == 1 else name if alike.count(name) == 1 else None


def _words(text: str, header: Sequence[str]) -> bool:
    return text not in header and len(text.split()) > 1 and set(text.split()) <= set(header)


def _rows(path: Path, kind: str, wanted: set[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the number and the cells of each line that is not blank; each line is parsed alone, so quotes end there."""
    packed, plain = kind.endswith(".gz"), kind.startswith(".smi")
    size = number = width = 0
    delimiter = "\t" if kind.startswith(".tsv") else ""
    with (gzip.open if packed else open)(path, "rt", encoding="utf-8-sig", newline="") as file:
        while text := file.readline(MAX_LINE + 1):
            number += 1
            size += len(text) + 256
            if len(text) > MAX_LINE:
                raise csv.Error(f"line {number} has more than {MAX_LINE} characters")
            if packed and size > MAX_UNPACKED:
                raise csv.Error(f"it holds more than {MAX_UNPACKED} characters; unpack it if you trust it")
            if plain or not text.strip():
                named = _NAMED(text.rstrip())
                row = list(named.groups()) if named else []
            else:
                delimiter = delimiter or delimiter_of(text, wanted)
                try:
                    row = next(csv.reader([text], delimiter=delimiter, strict=True))
                except csv.Error as error:
                    raise csv.Error(f"line {number}: {error}; close the quote in the same line") from None
                width = width or len(row)
                if any(row[width:]):
                    advice = f"quote cells with {DELIMITERS[delimiter]}"
                    raise csv.Error(f"line {number} has {len(row)} cells, the header {width}; {advice}")
            if row:
                yield number, row
