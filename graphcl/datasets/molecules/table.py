"""Read molecules and their targets from a table in a file, a frame, or a list."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.datasets.groups import GroupNumbers
from graphcl.datasets.molecules.columns import TEXT, ending, find, frame, read_frame, read_text, series
from graphcl.datasets.names import dataset_names
from graphcl.errors import InputError, one_line
from graphcl.system.optional import import_rdkit

MISSING = ("", "nan", "na", "n/a", "#n/a", "<na>", "nat", "none", "null")
"""Cells without a target, in lower case."""
REACTION = re.compile(r"(?<!-)>.*>").search
"""Function that finds the arrows of a reaction, A>>B or A>C>B, in a SMILES; -> is a dative bond."""


class Table(NamedTuple):
    """Molecules before they are parsed.

    Attributes:
        name: name of the data set.
        molecules: SMILES or RDKit molecules, one per row.
        lines: line number of each row in the file; empty for other sources.
        y: targets `[rows, tasks]` in float64, NaN where missing; None without targets.
        classes: the different texts, in order, if the only target is one of texts; `y` then holds their indices.
        groups: number of each row's group `[rows]`, -1 where the cell is empty; None without groups.
    """

    name: str
    molecules: Sequence[Any]
    lines: Sequence[int] = ()
    y: Tensor | None = None
    classes: Sequence[str] = ()
    groups: Tensor | None = None


def is_molecules(source: object, smiles: str | None = None) -> bool:
    """Return True if `source` is a table of molecules, a list of SMILES or of RDKit molecules, or one RDKit molecule.

    If `smiles` is given, a list of graphs with this attribute counts as molecules too.
    """
    if isinstance(source, str | os.PathLike):
        return bool(ending(source))
    if frame(source) is not None or series(source) is not None or _is_rdkit(source):
        return True
    listed = isinstance(source, list | tuple) or (smiles is not None and isinstance(source, Iterable))
    # a missing cell of a column is None or NaN
    known = (each for each in (source if listed else ()) if each is not None and not isinstance(each, float))  # type: ignore[attr-defined]
    first = next(known, None)
    graphs = smiles is not None and isinstance(first, Data)
    return graphs or isinstance(first, str) or _is_rdkit(first)


def is_smiles(source: object) -> bool:
    """Return True if `source` is a string that RDKit reads as a molecule, and not the name of a data set or a path.

    Also return True for a reaction, which is then refused as a molecule.
    """
    if not isinstance(source, str) or source in dataset_names() or ending(source) or os.path.exists(source):
        return False
    if REACTION(source):
        return True
    if importlib.util.find_spec("rdkit") is None:
        return False
    with import_rdkit("rdBase").BlockLogs():
        return import_rdkit("Chem").MolFromSmiles(source) is not None


def _is_rdkit(each: object) -> bool:
    return type(each).__module__.startswith("rdkit.")


def read_table(source: Any, smiles: str | None = None, target: Sequence[str] = (), group: str | None = None) -> Table:
    """Return the molecules, targets and groups of a source for which `is_molecules` is true.

    Args:
        source: a file, a frame of pandas, polars or pyarrow, a Series or list of SMILES, of RDKit molecules or of
            `Data`, or one molecule. A row of a text file is one line. The delimiter of a .csv file is the one of comma,
            semicolon and tab with which the header has the wanted columns. A `.smi` file has no header; each line
            begins with a SMILES that ends at the first blank.
        smiles: column of the SMILES; default: `smiles`, in any case.
        target: columns of the targets.
        group: column of the groups; different texts are different groups.

    Raises:
        InputError: the file cannot be read, is empty or too large; a row has an unclosed quote or too many cells; a
            column is not found or occurs twice, or mixes numbers and texts; a text is not Unicode; or float32 cannot
            hold a number.
    """
    wanted = [*target, *([] if group is None else [group])]
    name, columns, lines = _columns(source, smiles, wanted)
    if wanted and len(columns) == 1:
        setting = "target" if target else "group"
        raise InputError(f"`{setting}` {wanted[0]!r} names a column, but a list has none; give a DataFrame.")
    if not len(columns[0]):
        raise InputError(f"{name} holds no molecule.")
    check_text([name, *wanted], "the name")
    for column in columns:
        check_text(column, lines)
    groups = None if group is None else GroupNumbers()([_text(each) for each in columns.pop()], name)
    return Table(name, list(columns[0]), lines, *_targets(columns[1:], target, lines), groups)


def _columns(source: Any, smiles: str | None, wanted: Sequence[str]) -> tuple[str, list[Sequence[Any]], list[int]]:
    """Return the name of a table, its SMILES and wanted columns, and the line of each row in a text file."""
    name, what = "own", "the table"
    if isinstance(source, str | os.PathLike):
        path = Path(os.path.expanduser(source))
        name, what = path.name[: -len(ending(path))], str(path)
        if ending(path) in TEXT:
            columns, lines = read_text(path, smiles, wanted)
            return name, [*columns], lines
        source = read_frame(path)
    if (table := frame(source)) is not None:
        names, column = table
        return name, [column(place) for place in find(names, smiles, wanted, what)], []
    if _is_rdkit(source):
        return name, [[source]], []
    source = series(source) or source
    if len(source) and isinstance(source[0], Data):
        name = getattr(source, "name", "own")
        return name, [[_cell(graph, key, row) for row, graph in enumerate(source)] for key in (smiles, *wanted)], []
    return name, [source], []


def check_text(texts: Iterable[Any], lines: Sequence[int] | str = ()) -> None:
    """Raise InputError for a string with a lone surrogate, which cannot be written as UTF-8.

    Args:
        texts: strings; other objects are ignored.
        lines: line of each row in the file, see `where`, or what the strings are.
    """
    for row, text in enumerate(texts):
        if isinstance(text, str) and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                place = lines if isinstance(lines, str) else where(lines, row)
                shown = f"{place} '{one_line(text, 60)}'"
                raise InputError(f"{shown} is not Unicode, as it has a lone surrogate; save it in UTF-8.") from None


def where(lines: Sequence[int], row: int) -> str:
    """Return the place of a row for messages: its line in the file, or its index in other sources."""
    return f"line {lines[row]}" if lines else f"row {row}"


def _cell(graph: object, key: Any, number: int) -> Any:
    """Return the attribute `key` of a graph, a text or a number."""
    value = graph.get(key) if isinstance(graph, Data) else None
    if value is None or (isinstance(value, Tensor) and value.numel() != 1):
        raise InputError(
            f"`{key}` of graph {number} must be one number or string, got {getattr(value, 'shape', value)}."
        )
    return value.item() if isinstance(value, Tensor) else value


def _targets(
    columns: Sequence[Sequence[Any]], names: Sequence[str], lines: Sequence[int]
) -> tuple[Tensor | None, Sequence[str]]:
    """Return the targets `[rows, tasks]` in float64, or None, and the classes of the only target if it holds texts."""
    found, classes = [], list[str]()
    for name, column in zip(names, columns, strict=True):
        cells = ["" if each is None else str(each).strip() for each in column]
        known = [row for row, cell in enumerate(cells) if cell.lower() not in MISSING]
        parsed = {row: value for row in known if (value := _number(cells[row])) is not None}
        texts = bool(known) and not parsed
        if texts and re.fullmatch(r"[+-]?\d+,\d+", cells[known[0]]):
            raise InputError(f"`target` {name!r} has decimal commas, as in {cells[known[0]]}; write decimal points.")
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
    return (torch.from_numpy(np.stack(found, axis=1)) if found else None), classes


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
