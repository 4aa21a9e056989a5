"""Read molecules and their targets from a CSV, TSV or SMILES file, a pandas DataFrame, or a list."""

from __future__ import annotations

import csv
import gzip
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.datasets.names import listing, suggestion
from graphcl.errors import InputError, one_line, reason

SUFFIXES = tuple(f"{suffix}{packed}" for suffix in (".csv", ".tsv", ".smi") for packed in ("", ".gz"))
"""Endings of files that are tables of molecules."""
MISSING = ("", "nan", "na", "none", "null")
"""Cells without a target, in lower case."""


@dataclass(frozen=True)
class Table:
    """Molecules before they are parsed.

    Attributes:
        name: name of the data set.
        molecules: SMILES or RDKit molecules, one per row.
        lines: line number of each row in the file; empty for other sources.
        y: targets `[rows, tasks]`, NaN where missing; None without targets.
        texts: whether the only target is a string; `y` then holds class indices.
    """

    name: str
    molecules: Sequence[Any]
    lines: Sequence[int] = ()
    y: Tensor | None = None
    texts: bool = False


def is_molecules(source: object, smiles: str | None = None) -> bool:
    """Return True if `source` is a table of molecules, or a list of SMILES or of RDKit molecules.

    If `smiles` is given, a list of graphs with this attribute counts as molecules too.
    """
    if isinstance(source, str | os.PathLike):
        return str(source).lower().endswith(SUFFIXES)
    if hasattr(source, "columns") and hasattr(source, "iloc"):
        return True
    if not isinstance(source, list | tuple) and smiles is None:
        return False
    first = next(iter(source), None) if isinstance(source, Iterable) else None
    return isinstance(first, str) or _is_rdkit(first) or (smiles is not None and isinstance(first, Data))


def read_table(source: Any, smiles: str | None = None, target: Sequence[str] = ()) -> Table:
    """Return the molecules and targets of a source for which `is_molecules` is true.

    Args:
        source: a file, a DataFrame, a list of SMILES, of RDKit molecules or of `Data`. A `.smi` file has no header;
            each line begins with a SMILES that ends at the first blank.
        smiles: column of the SMILES; default: `smiles`, in any case.
        target: columns of the targets.

    Raises:
        InputError: the file cannot be read or is empty, a column is not found, or a column mixes numbers and texts.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(os.path.expanduser(source))
        name = path.name.removesuffix(".gz").rpartition(".")[0]
        try:
            with (
                gzip.open(path, "rt", encoding="utf-8-sig")
                if path.suffix == ".gz"
                else path.open(newline="", encoding="utf-8-sig") as file
            ):
                columns, lines = _read(file, path, smiles, target)
        except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"cannot read {str(path)!r}: {reason(error)}.") from None
        return Table(name, columns[0], lines, *_targets(columns[1:], target, lines))
    if hasattr(source, "columns"):
        found = _find([str(each) for each in source.columns], smiles, target, "the table")
        columns = [source.iloc[:, place].tolist() for place in found]
        return Table("own", columns[0], (), *_targets(columns[1:], target, ()))
    if isinstance(source[0], Data):
        columns = [[graph.get(key) for graph in source] for key in (smiles, *target)]
        cells = [[each.item() if isinstance(each, Tensor) else each for each in column] for column in columns[1:]]
        return Table(getattr(source, "name", "own"), columns[0], (), *_targets(cells, target, ()))
    if target:
        raise InputError(f"`target` {target[0]!r} names a column, but a list has none; give a pandas DataFrame.")
    return Table("own", list(source))


def _read(file: Any, path: Path, smiles: str | None, target: Sequence[str]) -> tuple[list[list[str]], list[int]]:
    """Return the wanted columns and the line of each row; blank lines are left out."""
    if ".smi" in path.suffixes:
        if smiles or target:
            raise InputError(
                f"{path} has no columns, as its lines are SMILES; give a .csv file for {smiles or target[0]!r}."
            )
        rows = [(line, text.split()[0]) for line, text in enumerate(file, start=1) if text.strip()]
        columns, lines = [[text for _, text in rows]], [line for line, _ in rows]
    else:
        csv.field_size_limit(2**24)
        reader = csv.reader(file, delimiter="\t" if ".tsv" in path.suffixes else ",")
        header = next(reader, None)
        if header is None:
            raise InputError(f"{path} is empty.")
        found = _find(header, smiles, target, str(path))
        columns, lines = [[] for _ in found], []
        for row in reader:
            if row:
                lines.append(reader.line_num)
                for column, place in zip(columns, found, strict=True):
                    column.append(row[place] if place < len(row) else "")
    if not lines:
        raise InputError(f"{path} holds no molecule.")
    return columns, lines


def _find(header: list[str], smiles: str | None, target: Sequence[str], what: str) -> list[int]:
    if smiles is None:
        smiles = next((each for each in header if each.strip().lower() == "smiles"), None)
        if smiles is None:
            raise InputError(f"{what} has no column `smiles`; name one by `smiles`. Columns: {listing(header, 20)}.")
    for name in (smiles, *target):
        if name not in header:
            raise InputError(
                f"{what} has no column {one_line(name)!r}; {suggestion(name, header)}Columns: {listing(header, 20)}."
            )
    return [header.index(name) for name in (smiles, *target)]


def _targets(columns: list[list[Any]], names: Sequence[str], lines: Sequence[int]) -> tuple[Tensor | None, bool]:
    """Return the targets `[rows, tasks]`, and whether the only target is a string; `(None, False)` without targets."""
    if not columns:
        return None, False
    numbers, texts = [], False
    for name, column in zip(names, columns, strict=True):
        cells = ["" if each is None else str(each).strip() for each in column]
        known = [row for row, cell in enumerate(cells) if cell.lower() not in MISSING]
        parsed = {row: value for row in known if (value := _number(cells[row])) is not None}
        texts = bool(known) and not parsed
        if texts:
            classes = sorted({cells[row] for row in known})
            if len(columns) > 1:
                raise InputError(
                    f"`target` {name!r} holds strings such as {one_line(classes[0], 40)!r}; pass it as the only target."
                )
            if len(classes) < 2:
                raise InputError(f"`target` {name!r} holds only {one_line(classes[0], 40)!r}; two classes are needed.")
            number_of = {each: number for number, each in enumerate(classes)}
            listed = ", ".join(f"{number} = {one_line(each, 40)}" for number, each in enumerate(classes[:10]))
            print(f"graphcl: classes of {name}: {listed}{', ...' * (len(classes) > 10)}", file=sys.stderr)
            parsed = {row: number_of[cells[row]] for row in known}
        elif len(parsed) < len(known):
            row = next(row for row in known if row not in parsed)
            where = f"line {lines[row]}" if lines else f"row {row}"
            raise InputError(
                f"`target` {name!r} holds numbers, but {one_line(cells[row], 40)!r} in {where}; leave missing cells "
                "empty."
            )
        values = np.full(len(cells), np.nan)
        values[list(parsed)] = list(parsed.values())
        numbers.append(values)
    return torch.from_numpy(np.stack(numbers, axis=1)).float(), texts


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return {"true": 1.0, "false": 0.0}.get(cell.lower())
    return value if np.isfinite(value) else None


def _is_rdkit(value: object) -> bool:
    return type(value).__module__.startswith("rdkit.")
