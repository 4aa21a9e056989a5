"""Read molecules and their targets from a table in a file, a frame, or a list."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.datasets.groups import GroupNumbers
from graphcl.datasets.molecules.columns import TEXT, Column, ending, find, read_text, series
from graphcl.datasets.names import dataset_names
from graphcl.datasets.settings import Table as Rules
from graphcl.datasets.tables import frame, read_frame
from graphcl.errors import InputError, one_line, warn
from graphcl.system.optional import import_rdkit

MISSING = ("", "nan", "na", "n/a", "#n/a", "<na>", "nat", "none", "null")
"""Cells without a target, in lower case."""
REACTION = re.compile(r"(?<!-)>.*>").search
"""Function that finds the arrows of a reaction, A>>B or A>C>B, in a SMILES; -> is a dative bond."""
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+").fullmatch
WHOLE = re.compile(r"0|-?[1-9]\d{0,18}").fullmatch
"""Function that tells whether an id is a whole number; 007 is a string, as it would be 7."""


class Table(NamedTuple):
    """Molecules before they are parsed.

    Attributes:
        name: name of the data set.
        molecules: SMILES or RDKit molecules, one per row.
        lines: line number of each row in the file; empty for other sources.
        y: targets `[rows, tasks]` in float64, NaN where missing; None without targets.
        classes: the different texts, in order, if the only target is one of texts; `y` then holds their indices.
        groups: number of each row's group `[rows]`, -1 where the cell is empty; None without groups.
        ids: id of each row, whole numbers or strings; None if the rows are numbered.
        refused: row -> what is wrong with its targets.
        targets: names of the columns of the targets.
    """

    name: str
    molecules: Sequence[Any]
    lines: Sequence[int] = ()
    y: Tensor | None = None
    classes: Sequence[str] = ()
    groups: Tensor | None = None
    ids: Tensor | list[str] | None = None
    refused: Mapping[int, str] = MappingProxyType({})
    targets: Sequence[str] = ()

    def id(self, row: int) -> int | str:
        """Return the id of a row."""
        return row if self.ids is None else self.ids[row] if isinstance(self.ids, list) else int(self.ids[row])


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


def read_table(source: Any, rules: Rules) -> Table:
    """Return the molecules, ids, targets and groups of a source for which `is_molecules` is true.

    Args:
        source: a file, a frame of pandas, polars or pyarrow, a Series or list of SMILES, of RDKit molecules or of
            `Data`, or one molecule. A row of a text file is one line. The delimiter of a .csv file is the one of comma,
            semicolon and tab with which the header has the wanted columns. A `.smi` file has no header; each line
            begins with a SMILES that ends at the first blank, and the rest up to a tab is its name, the id.
        rules: the names of the columns, and whether to skip rows with an invalid target. Different texts in the column
            of the groups are different groups.

    Raises:
        InputError: the file cannot be read, is empty or too large; a row has an unclosed quote or too many cells; a
            column is not found or occurs twice, or mixes numbers and texts; a text is not Unicode; or float32 cannot
            hold a number.
    """
    name, columns, lines = _columns(source, rules)
    smiles = columns[0].cells
    if not len(smiles):
        raise InputError(f"{name} holds no molecule.")
    check_text([name, *(column.name for column in columns)], "the name")
    for column in columns:
        check_text(column.cells, lines)
    targets = [column for column in columns if column.role == "target"]
    cells = {column.role: column.cells for column in columns}
    groups = None if "group" not in cells else GroupNumbers()([_text(cell) for cell in cells["group"]], name)
    ids = None if "id" not in cells else _ids(cells["id"], lines, name)
    y, classes, refused = _targets(targets, lines, rules.invalid == "skip")
    return Table(name, list(smiles), lines, y, classes, groups, ids, refused, [column.name for column in targets])


def _columns(source: Any, rules: Rules) -> tuple[str, list[Column], list[int]]:
    """Return the name of a table, its wanted columns, the SMILES first, and the line of each row in a text file."""
    name, what = "own", "the table"
    if isinstance(source, str | os.PathLike):
        path = Path(os.path.expanduser(source))
        name, what = path.name[: -len(ending(path))], str(path)
        if ending(path) in TEXT:
            return name, *read_text(path, rules)
        source = read_frame(path)
    if (table := frame(source)) is not None:
        names, column = table
        return name, [Column(role, key, column(place)) for role, key, place in find(names, rules, what)], []
    source = [source] if _is_rdkit(source) else series(source) or source
    named = [("target", key) for key in rules.target]
    named += [(role, key) for role, key in (("group", rules.group), ("id", rules.id)) if key]
    if len(source) and isinstance(source[0], Data):
        name = getattr(source, "name", "own")
        if rules.id is None and all(graph.get("id") is not None for graph in source):
            named.append(("id", "id"))
        named.insert(0, ("smiles", str(rules.smiles)))
        cells = ([_cell(graph, key, row) for row, graph in enumerate(source)] for _, key in named)
        return name, [Column(*column, values) for column, values in zip(named, cells, strict=True)], []
    if named:
        raise InputError(f"`{named[0][0]}` {named[0][1]!r} names a column, but a list has none; give a DataFrame.")
    return name, [Column("smiles", "smiles", source)], []


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


def _ids(cells: Sequence[Any], lines: Sequence[int], what: str) -> Tensor | list[str] | None:
    """Return ids as whole numbers if all are written as such, else as strings; None if all cells are empty.

    A missing id becomes "row N", which is the id of no other row.
    """
    texts = [cell.strip() if isinstance(cell, str) else _text(_whole(cell)) or "" for cell in cells]
    missing = [row for row, text in enumerate(texts) if not text]
    if len(missing) == len(texts):
        return None
    if missing:
        first = where(lines, missing[0])
        warn(f"{what}: {len(missing)} of {len(texts)} rows have no id, the first is {first}; theirs become 'row N'")
    for row in missing:
        texts[row] = f"row {row}"
    if all(map(WHOLE, texts)) and all(-(2**63) <= int(text) < 2**63 for text in texts):
        return torch.tensor(list(map(int, texts)))
    return texts


def _whole(cell: Any) -> Any:
    """Return a whole float, as of a column of numbers with gaps, as an integer; other cells unchanged."""
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def _targets(
    columns: Sequence[Column], lines: Sequence[int], skip: bool
) -> tuple[Tensor | None, Sequence[str], dict[int, str]]:
    """Return the targets `[rows, tasks]` in float64, or None, and the classes of the only target if it holds texts.

    The third result has the rows with cells that are not numbers of float32, and these cells; without `skip`, they
    raise InputError.
    """
    values_of, classes, refused, faults = [], list[str](), dict[int, str](), list[str]()
    for _, name, column in columns:
        cells = ["" if each is None else str(each).strip() for each in column]
        known = [row for row, cell in enumerate(cells) if cell.lower() not in MISSING]
        parsed = {row: value for row in known if (value := _number(cells[row])) is not None}
        texts = bool(known) and not parsed
        if texts and DECIMAL_COMMA(cells[known[0]]):
            raise InputError(f"`target` {name!r} has decimal commas, as in {cells[known[0]]}; write decimal points.")
        if texts:
            classes = sorted({cells[row] for row in known})
            shown = [one_line(each, 40) for each in classes[:10]]
            if len(columns) > 1 or len(classes) < 2:
                raise InputError(
                    f"`target` {name!r} holds strings such as {shown[0]!r}; give it alone, with two classes or more."
                )
            listed = ", ".join(f"{number} = {each}" for number, each in enumerate(shown))
            print(f"graphcl: classes of {name}: {listed}{', ...' * (len(classes) > 10)}", file=sys.stderr)
            parsed = {row: classes.index(cells[row]) for row in known}
        values = np.full(len(cells), np.nan)
        values[list(parsed)] = list(parsed.values())
        with np.errstate(over="ignore"):
            held = values.astype(np.float32)
        lost = np.isinf(held) | ((held == 0) != (values == 0))
        wrong = sorted({row for row in known if row not in parsed} | set(np.flatnonzero(lost).tolist()))
        for row in wrong:
            fault = f"{one_line(cells[row], 40)!r} in `{name}` is not a number of float32"
            refused[row] = f"{refused[row]}; {fault}" if row in refused else fault
        if wrong:
            places = [f"{one_line(cells[row], 40)!r} in {where(lines, row)}" for row in wrong[:10]]
            more = f", ... ({len(wrong)} cells)" if len(wrong) > len(places) else ""
            faults.append(f"`target` {name!r} needs numbers of float32, got {', '.join(places)}{more}")
            if any(DECIMAL_COMMA(cells[row]) for row in wrong):
                faults[-1] += ", and decimals need a point"
        values_of.append(values)
    if faults and not skip:
        advice = 'correct it, or leave it empty. `invalid` "skip" leaves such rows out.'
        raise InputError(f"{'; '.join(faults)}; {advice}")
    return (torch.from_numpy(np.stack(values_of, axis=1)) if values_of else None), classes, refused


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
