"""Read molecules and their targets from a CSV, TSV or SMILES file, a pandas DataFrame, or a list."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.datasets.groups import GroupNumbers
from graphcl.datasets.names import dataset_names, listing, suggestion
from graphcl.errors import InputError, one_line, reason
from graphcl.system.optional import import_rdkit

SUFFIXES = tuple(f"{suffix}{packed}" for suffix in (".csv", ".tsv", ".smi") for packed in ("", ".gz"))
"""Endings of files that are tables of molecules."""
MISSING = ("", "nan", "na", "n/a", "#n/a", "<na>", "nat", "none", "null")
"""Cells without a target, in lower case."""
MAX_LINE = 2**20
"""Largest number of characters in a line of a table."""
MAX_UNPACKED = 2**30
"""Largest number of characters in a packed table, with 256 more for each line, as rows take time and memory."""


class Table(NamedTuple):
    """Molecules before they are parsed.

    Attributes:
        name: name of the data set.
        molecules: SMILES or RDKit molecules, one per row.
        lines: line number of each row in the file; empty for other sources.
        y: targets `[rows, tasks]` in float64, NaN where missing; None without targets.
        texts: whether the only target is a string; `y` then holds class indices.
        groups: number of each row's group `[rows]`, -1 where the cell is empty; None without groups.
    """

    name: str
    molecules: Sequence[Any]
    lines: Sequence[int] = ()
    y: Tensor | None = None
    texts: bool = False
    groups: Tensor | None = None


def is_molecules(source: object, smiles: str | None = None) -> bool:
    """Return True if `source` is a table of molecules, a list of SMILES or of RDKit molecules, or one RDKit molecule.

    If `smiles` is given, a list of graphs with this attribute counts as molecules too.
    """
    if isinstance(source, str | os.PathLike):
        return bool(_ending(source))
    if hasattr(source, "iloc") or _is_rdkit(source):
        return True
    listed = isinstance(source, list | tuple) or (smiles is not None and isinstance(source, Iterable))
    # a missing cell of a column is None or NaN
    known = (each for each in (source if listed else ()) if each is not None and not isinstance(each, float))  # type: ignore[attr-defined]
    first = next(known, None)
    graphs = smiles is not None and isinstance(first, Data)
    return graphs or isinstance(first, str) or _is_rdkit(first)


def is_smiles(source: object) -> bool:
    """Return True if `source` is a string that RDKit reads as a molecule, and not the name of a data set or a path."""
    if not isinstance(source, str) or source in dataset_names() or _ending(source) or os.path.exists(source):
        return False
    if importlib.util.find_spec("rdkit") is None:
        return False
    with import_rdkit("rdBase").BlockLogs():
        return import_rdkit("Chem").MolFromSmiles(source) is not None


def _is_rdkit(each: object) -> bool:
    return type(each).__module__.startswith("rdkit.")


def read_table(source: Any, smiles: str | None = None, target: Sequence[str] = (), group: str | None = None) -> Table:
    """Return the molecules, targets and groups of a source for which `is_molecules` is true.

    Args:
        source: a file, a DataFrame, a Series or list of SMILES, of RDKit molecules or of `Data`, or one molecule. A row
            of a file is one line. A `.smi` file has no header; each line begins with a SMILES that ends at the first
            blank.
        smiles: column of the SMILES; default: `smiles`, in any case.
        target: columns of the targets.
        group: column of the groups; different texts are different groups.

    Raises:
        InputError: the file cannot be read, is empty or too large; a row has an unclosed quote or too many cells; a
            column is not found or occurs twice, or mixes numbers and texts; or float32 cannot hold a number.
    """
    name, columns, lines = "own", [source], list[int]()
    wanted = [*target, *([] if group is None else [group])]
    if isinstance(source, str | os.PathLike):
        path = Path(os.path.expanduser(source))
        name = path.name[: -len(_ending(path))]
        columns, lines = _read(path, smiles, wanted)
    elif hasattr(source, "columns"):
        found = _find([str(each) for each in source.columns], smiles, wanted, "the table")
        columns = [source.iloc[:, place].tolist() for place in found]
    elif _is_rdkit(source):
        columns = [[source]]
    elif hasattr(source, "iloc"):
        columns = [source.tolist()]
    elif isinstance(source[0], Data):
        name = getattr(source, "name", "own")
        columns = [[_cell(graph, key, number) for number, graph in enumerate(source)] for key in (smiles, *wanted)]
    if wanted and len(columns) == 1:
        setting = "target" if target else "group"
        raise InputError(f"`{setting}` {wanted[0]!r} names a column, but a list has none; give a pandas DataFrame.")
    if not len(columns[0]):
        raise InputError(f"{name} holds no molecule.")
    groups = None if group is None else GroupNumbers()([_text(each) for each in columns.pop()], name)
    return Table(name, list(columns[0]), lines, *_targets(columns[1:], target, lines), groups)


def where(lines: Sequence[int], row: int) -> str:
    """Return the place of a row for messages: its line in the file, or its index in other sources."""
    return f"line {lines[row]}" if lines else f"row {row}"


def _ending(source: str | os.PathLike[str]) -> str:
    """Return the entry of `SUFFIXES` that the path ends with, in any case; an empty string for other paths."""
    return next((each for each in SUFFIXES if str(source).lower().endswith(each)), "")


def _read(path: Path, smiles: str | None, target: Sequence[str]) -> tuple[list[list[str]], list[int]]:
    """Return the wanted columns of a file and the line of each row; blank lines are left out."""
    plain = _ending(path).startswith(".smi")
    if plain and (smiles or target):
        raise InputError(f"{path} has no column {smiles or target[0]!r}, as its lines are SMILES; give a .csv file.")
    header: list[str] = []
    columns: list[list[str]] = [[]]
    found, lines = [0], []
    try:
        for line, row in _rows(path, _ending(path)):
            if not header and not plain:
                header, found = row, _find(row, smiles, target, str(path))
                columns = [[] for _ in found]
                continue
            if header and any(row[len(header) :]):
                raise csv.Error(f"line {line} has {len(row)} cells, the header {len(header)}; quote cells with commas")
            lines.append(line)
            for column, place in zip(columns, found, strict=True):
                column.append(row[place] if place < len(row) else "")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        advice = "; save it as text in UTF-8" if isinstance(error, UnicodeDecodeError) else ""
        raise InputError(f"cannot read {str(path)!r}: {reason(error)}{advice}.") from None
    return columns, lines


def _rows(path: Path, ending: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each line that is not blank; each line is parsed alone, so quotes end there."""
    packed, delimiter = ending.endswith(".gz"), "\t" if ending.startswith(".tsv") else ","
    size = number = 0
    with (gzip.open if packed else open)(path, "rt", encoding="utf-8-sig", newline="") as file:
        while text := file.readline(MAX_LINE + 1):
            number += 1
            size += len(text) + 256
            if len(text) > MAX_LINE:
                raise csv.Error(f"line {number} has more than {MAX_LINE} characters")
            if packed and size > MAX_UNPACKED:
                raise csv.Error(f"it holds more than {MAX_UNPACKED} characters; unpack it if you trust it")
            if ending.startswith(".smi") or not text.strip():
                row = text.split(maxsplit=1)
            else:
                try:
                    row = next(csv.reader([text], delimiter=delimiter, strict=True))
                except csv.Error as error:
                    raise csv.Error(f"line {number}: {error}; close the quote in the same line") from None
            if row:
                yield number, row


def _cell(graph: object, key: Any, number: int) -> Any:
    """Return the attribute `key` of a graph, a text or a number."""
    value = graph.get(key) if isinstance(graph, Data) else None
    if value is None or (isinstance(value, Tensor) and value.numel() != 1):
        raise InputError(
            f"`{key}` of graph {number} must be one number or string, got {getattr(value, 'shape', value)}."
        )
    return value.item() if isinstance(value, Tensor) else value


def _find(header: list[str], smiles: str | None, target: Sequence[str], what: str) -> list[int]:
    if smiles is None:
        found = [each for each in header if each.strip().lower() == "smiles"]
        smiles = found[0] if len(found) == 1 else "smiles"
    for name in (smiles, *target):
        if header.count(name) != 1:
            count = f"{header.count(name) or 'no'} columns {one_line(name)!r}; {suggestion(name, header)}"
            raise InputError(f"{what} has {count}Columns: {listing(header, 20)}.")
    return [header.index(name) for name in (smiles, *target)]


def _targets(columns: list[list[Any]], names: Sequence[str], lines: Sequence[int]) -> tuple[Tensor | None, bool]:
    """Return the targets `[rows, tasks]` in float64, and whether the only target is a string; or `(None, False)`."""
    found, texts = [], False
    for name, column in zip(names, columns, strict=True):
        cells = ["" if each is None else str(each).strip() for each in column]
        known = [row for row, cell in enumerate(cells) if cell.lower() not in MISSING]
        parsed = {row: value for row in known if (value := _number(cells[row])) is not None}
        texts = bool(known) and not parsed
        if texts:
            classes = sorted({cells[row] for row in known})
            shown = [one_line(each, 40) for each in classes[:10]]
            if len(columns) > 1 or len(classes) < 2:
                raise InputError(f"`target` {name!r} holds strings such as {shown[0]!r}; give one target of two.")
            listed = ", ".join(f"{number} = {each}" for number, each in enumerate(shown))
            print(f"graphcl: classes of {name}: {listed}{', ...' * (len(classes) > 10)}", file=sys.stderr)
            parsed = {row: classes.index(cells[row]) for row in known}
        values = np.full(len(cells), np.nan)
        values[list(parsed)] = list(parsed.values())
        with np.errstate(over="ignore"):
            held = values.astype(np.float32)
        lost = np.isinf(held) | ((held == 0) != (values == 0))
        for row in [row for row in known if row not in parsed][:1] or np.flatnonzero(lost)[:1]:
            cell = f"{one_line(cells[row], 40)!r} in {where(lines, row)}"
            raise InputError(f"`target` {name!r} needs numbers of float32, got {cell}; correct it, or leave it empty.")
        found.append(values)
    return (torch.from_numpy(np.stack(found, axis=1)) if found else None), texts


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
