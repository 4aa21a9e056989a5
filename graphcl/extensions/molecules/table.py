"""Read molecules and their targets from a table in a file, a frame, or a list."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.datasets.names import dataset_names, listing, suggestion
from graphcl.datasets.relation import GroupNumbers
from graphcl.datasets.tables import DELIMITERS, delimiter_of, frame, read_frame
from graphcl.errors import InputError, one_line, reason, warn
from graphcl.extensions.molecules import import_rdkit
from graphcl.system.files import check_regular

TEXT = tuple(f"{suffix}{packed}" for suffix in (".csv", ".tsv", ".smi") for packed in ("", ".gz"))
SUFFIXES = (*TEXT, ".parquet", ".xlsx")
"""Endings of files that are tables of molecules."""
MISSING = ("", "nan", "na", "n/a", "#n/a", "<na>", "nat", "none", "null")
"""Cells without a target, in lower case."""
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+").fullmatch
WHOLE = re.compile(r"0|-?[1-9]\d{0,18}").fullmatch
"""Function that tells whether an id is a whole number; 007 is a string, as it would be 7."""
_NAMED = re.compile(r"\s*(\S+)\s*(?:\|[^|]*\|)?\s*([^\t]*)").match
"""Function that finds the SMILES and the name in a line of a .smi file, without an extension |...| between them."""


class Table(NamedTuple):
    """Molecules before they are parsed.

    Attributes:
        name: name of the data set.
        molecules: SMILES or RDKit molecules, one per row.
        lines: line number of each row in the file; empty for other sources.
        y: targets `[rows, tasks]` in float64, NaN where missing; None without targets.
        classes: the different texts, in order, if the only target is one of texts; `y` then holds their indices.
        groups: number of each row's group `[rows]`, -1 where the cell is empty; None without groups.
        ids: id of each row, whole numbers or strings.
        refused: row -> what is wrong with its targets.
        targets: names of the columns of the targets.
    """

    name: str
    molecules: Sequence[Any]
    lines: Sequence[int]
    y: Tensor | None
    classes: Sequence[str]
    groups: Tensor | None
    ids: Tensor | list[str]
    refused: Mapping[int, str]
    targets: Sequence[str]


class Column(NamedTuple):
    """A column of a table: its role (`smiles`, `target`, `group` or `id`), its name and its cells."""

    role: str
    name: str
    cells: Sequence[Any]


def ending(source: str | os.PathLike[str]) -> str:
    """Return the entry of `SUFFIXES` that the path ends with, in any case; an empty string for other paths."""
    return next((suffix for suffix in SUFFIXES if str(source).lower().endswith(suffix)), "")


def is_molecules(source: object, smiles: str | None = None) -> bool:
    """Return True if `source` is a table of molecules, a list of SMILES or of RDKit molecules, or one RDKit molecule.

    If `smiles` is given, a list of graphs with this attribute counts as molecules too.
    """
    if isinstance(source, str | os.PathLike):
        return bool(ending(source))
    if frame(source) is not None or _series(source) is not None or _is_rdkit(source):
        return True
    entries = (
        source if isinstance(source, list | tuple) or (smiles is not None and isinstance(source, Iterable)) else ()
    )
    # a missing cell of a column is None or NaN
    first = next((entry for entry in entries if entry is not None and not isinstance(entry, float)), None)
    return isinstance(first, str) or _is_rdkit(first) or (smiles is not None and isinstance(first, Data))


def is_smiles(text: str) -> bool:
    """Return True if RDKit reads a string as a molecule, and it is not the name of a data set or a path."""
    if text in dataset_names() or ending(text) or os.path.exists(text):
        return False
    if importlib.util.find_spec("rdkit") is None:
        return False
    with import_rdkit("rdBase").BlockLogs():
        return import_rdkit("Chem").MolFromSmiles(text) is not None


def _is_rdkit(molecule: object) -> bool:
    return type(molecule).__module__.startswith("rdkit.")


def _series(source: Any) -> list[Any] | None:
    """Return the entries of a Series of pandas or polars, or of an array of pyarrow; None for other objects."""
    if type(source).__module__.partition(".")[0] not in ("pandas", "polars", "pyarrow"):
        return None
    convert = getattr(source, "to_list", None) or getattr(source, "to_pylist", None)
    return convert() if convert else None


def read_table(source: Any, rules: Any) -> Table:
    """Return the molecules, ids, targets and groups of a source for which `is_molecules` is true.

    Args:
        source: a file, a frame of pandas, polars or pyarrow, a Series or list of SMILES, of RDKit molecules or of
            `Data`, or one molecule. A row of a text file is one line. The delimiter of a .csv file is the one of comma,
            semicolon and tab with which the header has the wanted columns. A `.smi` file has no header; each line
            begins with a SMILES that ends at the first blank, and the rest up to a tab is its name, the id.
        rules: settings of loading: the names of the columns, and whether to skip rows with an invalid target. Different
            texts in the column of the groups are different groups.

    Raises:
        InputError: the file cannot be read or is empty; a row has an unclosed quote or too many cells; a column is not
            found or occurs twice, or mixes numbers and texts; or float32 cannot hold a number.
    """
    name, columns, lines = _columns(source, rules)
    cells = {column.role: column.cells for column in columns}
    if not len(cells["smiles"]):
        raise InputError(f"{name} holds no molecule.")
    targets = [column for column in columns if column.role == "target"]
    groups = None if "group" not in cells else GroupNumbers()(list(map(_text, cells["group"])), name)
    ids = _ids(cells.get("id", [""] * len(cells["smiles"])), lines, name)
    y, classes, refused = _targets(targets, lines, rules.invalid == "skip")
    return Table(
        name, list(cells["smiles"]), lines, y, classes, groups, ids, refused, [target.name for target in targets]
    )


def _columns(source: Any, rules: Any) -> tuple[str, list[Column], list[int]]:
    """Return the name of a table, its wanted columns, the SMILES first, and the line of each row in a text file."""
    name, what = "own", "the table"
    if isinstance(source, str | os.PathLike):
        path = Path(os.path.expanduser(source))
        name, what = path.name[: -len(ending(path))], str(path)
        if ending(path) in TEXT:
            return name, *_read_text(path, rules)
        source = read_frame(path)
    if (table := frame(source)) is not None:
        header, column = table
        return name, [Column(role, key, column(place)) for role, key, place in find(header, rules, what)], []
    source = [source] if _is_rdkit(source) else _series(source) or source
    named = [("target", key) for key in rules.target]
    named += [(role, key) for role, key in (("group", rules.group), ("id", rules.id)) if key]
    if len(source) and isinstance(source[0], Data):
        if rules.id is None and all(graph.get("id") is not None for graph in source):
            named.append(("id", "id"))
        columns = [Column(role, key, _attribute(source, key)) for role, key in (("smiles", rules.smiles), *named)]
        return getattr(source, "name", name), columns, []
    if named:
        raise InputError(f"`{named[0][0]}` {named[0][1]!r} names a column, but a list has none; give a DataFrame.")
    return name, [Column("smiles", "smiles", source)], []


def _attribute(graphs: Iterable[object], key: str) -> list[Any]:
    """Return the attribute `key` of each graph, a text or a number."""
    cells = []
    for number, graph in enumerate(graphs):
        value = graph.get(key) if isinstance(graph, Data) else None
        if value is None or (isinstance(value, Tensor) and value.numel() != 1):
            got = getattr(value, "shape", value)
            raise InputError(f"`{key}` of graph {number} must be one number or string, got {got}.")
        cells.append(value.item() if isinstance(value, Tensor) else value)
    return cells


def find(header: Sequence[str], rules: Any, what: str) -> list[tuple[str, str, int]]:
    """Return the role, the name and the index of each wanted column: `smiles`, `target`, `group` and `id`.

    Raises:
        InputError: a column is missing or occurs twice.
    """
    smiles = rules.smiles or _only(header, "smiles") or "smiles"
    if smiles in rules.target:
        raise InputError(f"`target` {smiles!r} is the column of the SMILES; name a column of values to predict.")
    if len({*rules.target}) < len(rules.target):
        raise InputError(f"`target` names a column twice, got {', '.join(rules.target)}; name each once.")
    key = rules.id or _only(header, "id")
    key = None if not rules.id and key in (rules.group, *rules.target) else key
    wanted = [("smiles", smiles), *(("target", name) for name in rules.target), ("group", rules.group), ("id", key)]
    columns = [(role, name) for role, name in wanted if name]
    for role, name in columns:
        if header.count(name) != 1:
            alike = [column for column in header if role in column.lower()] if rules.smiles is None else []
            advice = suggestion(name, header)
            if role == "smiles" and alike:
                advice = f"name the column of the SMILES by `smiles` (--smiles {one_line(alike[0], 60)}). "
            count = f"{header.count(name) or 'no'} columns {one_line(name)!r}"
            raise InputError(f"{what} has {count}; {advice}Columns: {listing(header, 20)}.")
    return [(role, name, header.index(name)) for role, name in columns]


def _only(header: Sequence[str], name: str) -> str | None:
    """Return the only column `name`, in any case; None if there is none, or several but none in this case."""
    alike = [column for column in header if column.strip().lower() == name]
    return alike[0] if len(alike) == 1 else name if alike.count(name) == 1 else None


def _read_text(path: Path, rules: Any) -> tuple[list[Column], list[int]]:
    """Return the wanted columns of a text file and the line of each row; blank lines are left out."""
    check_regular(path)
    plain = ending(path).startswith(".smi")
    named = [name for name in (rules.smiles, rules.id, rules.group, *rules.target) if name]
    if plain and named:
        raise InputError(f"{path} has no column {named[0]!r}, as its lines are SMILES and names; give a .csv file.")
    places, lines = [("smiles", "smiles", 0), ("id", "name", 1)], list[int]()
    try:
        rows = _rows(path, ending(path), {*named, "smiles"} if rules.smiles is None else {*named})
        header = None if plain else next(rows, None)
        if header is not None:
            places = find(header[1], rules, str(path))
        cells: list[list[str]] = [[] for _ in places]
        for line, row in rows:
            lines.append(line)
            for column, (*_, place) in zip(cells, places, strict=True):
                column.append(row[place] if place < len(row) else "")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        advice = "; save it as text in UTF-8" if isinstance(error, UnicodeDecodeError) else ""
        raise InputError(f"cannot read {str(path)!r}: {reason(error)}{advice}.") from None
    return [Column(role, name, column) for (role, name, _), column in zip(places, cells, strict=True)], lines


def _rows(path: Path, kind: str, wanted: set[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the number and the cells of each line that is not blank; each line is parsed alone, so quotes end there."""
    packed, plain = kind.endswith(".gz"), kind.startswith(".smi")
    width, delimiter = 0, "\t" if kind.startswith(".tsv") else ""
    with (gzip.open if packed else open)(path, "rt", encoding="utf-8-sig", newline="") as file:
        for number, text in enumerate(file, start=1):
            if not text.strip():
                continue
            if plain:
                match = _NAMED(text.rstrip())
                assert match is not None  # of a line that is not blank
                yield number, match.groups()
                continue
            delimiter = delimiter or delimiter_of(text, wanted)
            try:
                row = next(csv.reader([text], delimiter=delimiter, strict=True))
            except csv.Error as error:
                raise csv.Error(f"line {number}: {error}; close the quote in the same line") from None
            width = width or len(row)
            if any(row[width:]):
                advice = f"quote cells with {DELIMITERS[delimiter]}"
                raise csv.Error(f"line {number} has {len(row)} cells, the header {width}; {advice}")
            yield number, row


def where(lines: Sequence[int], row: int) -> str:
    """Return the place of a row for messages: its line in the file, or its index in other sources."""
    return f"line {lines[row]}" if lines else f"row {row}"


def _ids(cells: Sequence[Any], lines: Sequence[int], what: str) -> Tensor | list[str]:
    """Return ids as whole numbers if all are written as such, else as strings; rows without any are numbered.

    A missing id becomes "row N", which is the id of no other row.
    """
    # a column of numbers with gaps holds floats
    whole = (int(cell) if isinstance(cell, float) and cell.is_integer() else cell for cell in cells)
    texts = [cell.strip() if isinstance(cell, str) else _text(cell) or "" for cell in whole]
    missing = [row for row, text in enumerate(texts) if not text]
    if len(missing) == len(texts):
        return torch.arange(len(texts))
    if missing:
        first = where(lines, missing[0])
        warn(f"{what}: {len(missing)} of {len(texts)} rows have no id, the first is {first}; theirs become 'row N'")
    for row in missing:
        texts[row] = f"row {row}"
    if all(map(WHOLE, texts)) and all(-(2**63) <= int(text) < 2**63 for text in texts):
        return torch.tensor(list(map(int, texts)))
    return texts


def _targets(
    columns: Sequence[Column], lines: Sequence[int], skip: bool
) -> tuple[Tensor | None, Sequence[str], dict[int, str]]:
    """Return the targets `[rows, tasks]` in float64, or None, and the classes of the only target if it holds texts.

    The third result has the rows with cells that are not numbers of float32, and these cells; without `skip`, they
    raise InputError.
    """
    columns_of_y, classes, refused, faults = [], list[str](), dict[int, str](), list[str]()
    for _, name, column in columns:
        cells = ["" if cell is None else str(cell).strip() for cell in column]
        filled = [row for row, cell in enumerate(cells) if cell.lower() not in MISSING]
        parsed = {row: value for row in filled if (value := _number(cells[row])) is not None}
        if filled and not parsed:
            if DECIMAL_COMMA(cells[filled[0]]):
                raise InputError(f"`target` {name!r} has decimal commas, as in {cells[filled[0]]}; write points.")
            classes = sorted({cells[row] for row in filled})
            shown = [one_line(text, 40) for text in classes[:10]]
            if len(columns) > 1 or len(classes) < 2:
                raise InputError(
                    f"`target` {name!r} holds strings such as {shown[0]!r}; give it alone, with two classes or more."
                )
            listed = ", ".join(f"{number} = {text}" for number, text in enumerate(shown))
            print(f"graphcl: classes of {name}: {listed}{', ...' * (len(classes) > 10)}", file=sys.stderr)
            parsed = {row: classes.index(cells[row]) for row in filled}
        values = np.full(len(cells), np.nan)
        values[list(parsed)] = list(parsed.values())
        with np.errstate(over="ignore"):
            held = values.astype(np.float32)
        lost = np.isinf(held) | ((held == 0) != (values == 0))
        wrong = sorted({row for row in filled if row not in parsed} | set(np.flatnonzero(lost).tolist()))
        for row in wrong:
            refused.setdefault(row, f"{one_line(cells[row], 40)!r} in `{name}` is not a number of float32")
        if wrong:
            places = [f"{one_line(cells[row], 40)!r} in {where(lines, row)}" for row in wrong[:10]]
            more = f", ... ({len(wrong)} cells)" if len(wrong) > len(places) else ""
            faults.append(f"`target` {name!r} needs numbers of float32, got {', '.join(places)}{more}")
        columns_of_y.append(values)
    if faults and not skip:
        advice = 'correct it, or leave it empty. `invalid` "skip" leaves such rows out.'
        raise InputError(f"{'; '.join(faults)}; {advice}")
    return (torch.from_numpy(np.stack(columns_of_y, axis=1)) if columns else None), classes, refused


def _text(cell: Any) -> str | None:
    """Return a cell as a string; None if it is empty."""
    text = "" if cell is None else str(cell).strip()
    return None if text.lower() in MISSING else text


def _number(cell: str) -> float | None:
    try:
        value = float(cell if cell.isascii() and "_" not in cell else "?")  # Python reads 1_0 as 10
    except ValueError:
        return {"true": 1.0, "false": 0.0}.get(cell.lower())
    return value if np.isfinite(value) else None
