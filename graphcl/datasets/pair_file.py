"""Read a list of pairs from a table, and give a data set its pairs."""

from __future__ import annotations

import copy
import csv
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.groups import with_groups
from graphcl.datasets.molecules.columns import delimiter_of, ending, frame, read_frame
from graphcl.datasets.relation import make_relation
from graphcl.errors import InputError, one_line, reason
from graphcl.system.files import check_regular, parse_json, read_json

PairList = Sequence[Sequence[Any]] | Mapping[str, Sequence[Any]] | str | os.PathLike[str]
"""Pairs of ids, see `graphcl.datasets.relation.make_relation`, or the path of a table with these columns."""
Row = tuple[int, dict[str, Any]]
"""The number of a row, or of its line, in its file, and its cells."""
Columns = tuple[dict[str, list[str]], Callable[[int], str]]
"""Columns of texts, where an empty text is a missing value, and a function from a row to its place in the file."""


def with_pairs(dataset: GraphDataset, pairs: PairList, targets: GraphDataset | None = None) -> GraphDataset:
    """Return a copy of a data set of queries with the attributes `relation` and `targets`; all tensors are shared.

    The groups of the copy are the connected components of the pairs, so that a split by group keeps pairs together.

    Args:
        dataset: the queries.
        pairs: pairs of ids: the attribute `id` of the graphs, else their index. Or a DataFrame, or the path of a table,
            `.csv`, `.tsv`, `.jsonl`, `.json`, `.parquet` or `.xlsx`, with the columns `query` and `target`, and if
            wanted `weight`, and `negative`, `negative_2`, ... or `label`.
        targets: data set of the targets; default: `dataset`.

    Raises:
        InputError: the table cannot be read, or see `make_relation`.
    """
    what = "`pairs`"
    at: Callable[[int], str] = "pair {}".format
    ids = [each.ids.tolist() for each in (dataset, targets) if each is not None]
    if isinstance(pairs, str | os.PathLike):
        what = str(pairs)
        pairs, at = read_pairs(Path(pairs).expanduser())
        ids = [list(map(str, each)) for each in ids]
    elif (table := frame(pairs)) is not None:
        names, column = table
        gaps = ("nan", "<NA>", "NaT")
        pairs = {name: [None if str(cell) in gaps else cell for cell in column(k)] for k, name in enumerate(names)}
    queries, *others = ids
    relation = make_relation(pairs, queries, others[0] if others else None, what, at)
    found = with_groups(dataset, relation.component[: len(dataset)])
    found.relation = relation
    if targets is not None:
        found.targets = copy.copy(targets)
    return found


def read_pairs(path: Path) -> Columns:
    """Return the columns of a table of pairs, and a function from a row to its place."""
    check_regular(path)
    try:
        if ending(path) in (".parquet", ".xlsx"):
            table = frame(read_frame(path))
            names = table[0] if table else []
            rows = enumerate(zip(*(table[1](place) for place in range(len(names)) if table), strict=True))
            return _columns(path, names, ((row, dict(zip(names, cells, strict=True))) for row, cells in rows), "row")
        kind = path.suffix.lower()
        if kind in (".jsonl", ".ndjson", ".json"):
            objects = list(_objects(path, kind))
            names = [*dict.fromkeys(key for _, row in objects for key in row)]
            return _columns(path, names, objects, "row" if kind == ".json" else "line")
        with path.open(newline="", encoding="utf-8-sig") as file:
            delimiter = "\t" if kind == ".tsv" else delimiter_of(file.readline(), {"query", "target"})
            file.seek(0)
            reader = csv.DictReader(file, delimiter=delimiter, strict=True, skipinitialspace=True)
            return _columns(path, list(reader.fieldnames or []), _cells(path, reader), "line")
    except (OSError, UnicodeError, csv.Error, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read the pairs in {str(path)!r}: {reason(error)}.") from None


def _cells(path: Path, reader: csv.DictReader[str]) -> Iterator[Row]:
    """Yield the rows of a text file."""
    for row in reader:
        if None in row or None in row.values():
            raise InputError(f"{path}: line {reader.line_num} has another number of cells than the header; correct it.")
        yield reader.line_num, row


def _objects(path: Path, kind: str) -> Iterator[Row]:
    """Yield the objects of a JSON file, a list, or of a file with one in each line."""
    if kind == ".json":
        content = read_json(path)
        rows = list(enumerate(content)) if isinstance(content, list) else []
    else:
        lines = enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1)
        rows = [(number, parse_json(line, f"{path} line {number}")) for number, line in lines if line.strip()]
    for number, row in rows:
        wrong = row if not isinstance(row, dict) else [cell for cell in row.values() if isinstance(cell, list | dict)]
        if wrong or not isinstance(row, dict):
            example = '{"query": "a", "target": "b", "negative": "c", "negative_2": "d"}'
            place = f"{'row' if kind == '.json' else 'line'} {number}"
            raise InputError(f"{path}: {place} must be like {example}, got {one_line(repr(row), 60)}.")
        yield number, row


def _columns(path: Path, names: list[str], rows: Iterable[Row], unit: str) -> Columns:
    """Return the columns of rows, which are numbered by the `unit` "line" or "row"."""
    if repeated := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{path} has {names.count(repeated[0])} columns {repeated[0]!r}; keep one of them.")
    columns, numbers = {name: list[str]() for name in names}, list[int]()
    for number, row in rows:
        for name, column in columns.items():
            column.append(_text(row.get(name)))
        numbers.append(number)
    if not numbers:
        raise InputError(f"{path} lists no pair; write a header `query,target` and one pair per line.")
    return columns, lambda row: f"{unit} {numbers[row]}"


def _text(cell: Any) -> str:
    """Return a cell as a text; a whole float, as of a column of numbers with gaps, without its point."""
    if cell is None or cell != cell:
        return ""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
