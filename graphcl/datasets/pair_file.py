"""Give a data set its pairs: a list of pairs of ids, in Python or in a table."""

from __future__ import annotations

import copy
import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.arguments import did_you_mean, resembling
from graphcl.datasets.dataset import GraphDataset, with_groups
from graphcl.datasets.relation import Relation
from graphcl.datasets.tables import delimiter_of, frame, read_frame
from graphcl.errors import InputError, one_line, reason, warn
from graphcl.graphs.segment import group, ranges, repeat
from graphcl.system.files import check_regular, parse_json, read_json

Pairs = Sequence[Sequence[Any]] | Mapping[str, Sequence[Any]]
_COLUMNS = ("query", "target", "weight", "label", "negative")
"""Columns of pairs; more columns of negatives have a number: `negative_2`."""
_NEGATIVE = re.compile(r"negative[ _]?\d*").fullmatch
_LABELS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


def with_pairs(
    dataset: GraphDataset, pairs: Pairs | str | os.PathLike[str], targets: GraphDataset | None = None
) -> GraphDataset:
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
    ids = [side.ids.tolist() for side in (dataset, targets) if side is not None]
    if isinstance(pairs, str | os.PathLike):
        what = str(pairs)
        pairs, at = read_pairs(Path(pairs).expanduser())
        ids = [list(map(str, side)) for side in ids]
    elif (table := frame(pairs)) is not None:
        names, column = table
        gaps = ("nan", "<NA>", "NaT")
        pairs = {name: [None if str(cell) in gaps else cell for cell in column(k)] for k, name in enumerate(names)}
    relation = make_relation(pairs, ids[0], None if targets is None else ids[1], what, at)
    paired = with_groups(dataset, relation.component[: len(dataset)])
    paired.relation, paired.targets = relation, copy.copy(targets)
    return paired


def read_pairs(path: Path) -> tuple[dict[str, list[str]], Callable[[int], str]]:
    """Return the columns of a table of pairs, and a function from a row to its place in the file.

    The cells are texts; an empty text is a missing value.
    """
    check_regular(path)
    kind = path.suffix.lower()
    try:
        names, rows = _read_rows(path, kind)
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f"{path} has {len(twice)} columns {twice[0]!r}; keep one of them.")
        numbered = list(rows)
    except InputError:
        raise
    except (OSError, csv.Error, ValueError) as error:
        raise InputError(f"cannot read the pairs in {str(path)!r}: {reason(error)}.") from None
    if not numbered:
        raise InputError(f"{path} lists no pair; write a header `query,target` and one pair per line.")
    unit = "row" if kind in (".parquet", ".xlsx", ".json") else "line"
    columns = {name: [_text(row.get(name)) for _, row in numbered] for name in names}
    return columns, lambda row: f"{unit} {numbered[row][0]}"


def _read_rows(path: Path, kind: str) -> tuple[list[str], Iterable[tuple[int, dict[str, Any]]]]:
    """Return the names of the columns of a table, and the number of each row, or of its line, with its cells."""
    if kind in (".parquet", ".xlsx"):
        table = frame(read_frame(path))
        assert table is not None
        names, column = table
        cells = zip(*map(column, range(len(names))), strict=True)
        return names, enumerate(dict(zip(names, row, strict=True)) for row in cells)
    if kind in (".json", ".jsonl", ".ndjson"):
        if kind == ".json":
            content = read_json(path)
            rows = [*enumerate(content)] if isinstance(content, list) else []
        else:
            lines = enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1)
            rows = [(number, parse_json(line, f"{path} line {number}")) for number, line in lines if line.strip()]
        for number, row in rows:
            if not isinstance(row, dict) or any(isinstance(cell, list | dict) for cell in row.values()):
                example = '{"query": "a", "target": "b", "negative": "c", "negative_2": "d"}'
                place = f"{'row' if kind == '.json' else 'line'} {number}"
                raise InputError(f"{path}: {place} must be like {example}, got {one_line(repr(row), 60)}.")
        return [*dict.fromkeys(key for _, row in rows for key in row)], rows
    text = path.read_text(encoding="utf-8-sig")
    delimiter = "\t" if kind == ".tsv" else delimiter_of(text.partition("\n")[0], {"query", "target"})
    reader = csv.DictReader(io.StringIO(text), delimiter=delimiter, strict=True, skipinitialspace=True)
    names, table_rows = list(reader.fieldnames or []), [(reader.line_num, row) for row in reader]
    for number, row in table_rows:
        if None in row or None in row.values():
            raise InputError(f"{path}: line {number} has another number of cells than the header; correct it.")
    return names, table_rows


def _text(cell: Any) -> str:
    """Return a cell as a text; a whole float, as of a column of numbers with gaps, without its point."""
    if cell is None or cell != cell:
        return ""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def make_relation(
    pairs: Pairs,
    queries: Sequence[Any],
    targets: Sequence[Any] | None = None,
    what: str = "`pairs`",
    at: Callable[[int], str] = "pair {}".format,
) -> Relation:
    """Return the relation of a list of pairs.

    Args:
        pairs: tuples `(query, target)` or `(query, target, negative, ...)` of ids, or of indices if the ids are
            strings; or columns: `query`, `target`, and if wanted `weight` (None or "": 1), `negative`, `negative_2`,
            ... (None or "": none), or `label`: a row with label 0 is no pair, and its target a known negative of its
            query.
        queries: id of each graph of the data set of queries, such as 0, 1, 2, ...
        targets: the same for the data set of targets; None if it is the data set of queries.
        what: name of the list in messages.
        at: function from a row to its place in messages, such as "line 2"; default: "pair 0", ...

    Raises:
        InputError: a column is unknown, an id belongs to no graph or to several, a pair is a graph with itself, a
            weight is not a positive number, a label not 0 or 1, a negative is the query or a positive, or there are
            fewer than two pairs.

    Example:
        >>> make_relation([("a", "b"), ("c", "a")], ["a", "b", "c"]).nodes
        tensor([[0, 2],
                [1, 0]])
    """
    columns, shared = _columns(pairs, what), targets is None
    query_ids = _indices(queries)
    target_ids = query_ids if targets is None else _indices(targets)

    def graphs(key: str, ids: Mapping[Any, int], rows: Iterable[int]) -> Tensor:
        """Return the graphs whose ids are in these rows of a column."""
        numbers = []
        for row in rows:
            cell = columns[key][row]
            number = ids.get(_plain(cell))
            if number is None or number < 0:
                why = "no graph has" if number is None else "several graphs have"
                raise InputError(f"{what}: {why} the id {_shown(cell)} of `{key}` in {at(row)}.")
            numbers.append(number)
        return torch.tensor(numbers, dtype=torch.long)

    every = range(len(columns["query"]))
    query, target = graphs("query", query_ids, every), graphs("target", target_ids, every)
    labels = [_LABELS.get(str(_plain(cell)).strip().lower()) for cell in columns.get("label", ())]
    if None in labels:
        row = labels.index(None)
        rule = "must be 1, for a pair, or 0, for a known negative"
        raise InputError(f"{what}: the `label` of {at(row)} {rule}, got {_shown(columns['label'][row])}.")
    positive = torch.tensor(labels) if labels else torch.ones_like(query, dtype=torch.bool)
    rows = positive.nonzero().flatten()
    if len(rows) < 2:
        raise InputError(f"{what} has {len(rows)} pairs; contrasting needs at least two.")
    if shared and bool((query == target).any()):
        row = int((query == target).int().argmax())
        raise InputError(f"{what}: {at(row)} is graph {_shown(columns['query'][row])} with itself; remove it.")
    weight = _weights(columns["weight"], rows.tolist(), what, at) if "weight" in columns else None
    relation = Relation(query[rows], target[rows], len(queries), None if targets is None else len(targets), weight)
    if labels:  # a negative by label is one of all pairs of its query
        zeros = (~positive).nonzero().flatten()
        pair, ptr = group(relation.query, relation.num_queries)
        first, counts = ptr[query[zeros]], ptr.diff()[query[zeros]]
        if unused := int((counts == 0).sum()):
            warn(f"{what}: {unused} rows with label 0 are left out, as their query has no row with label 1")
        pair, negative = pair[ranges(first, counts)], repeat(target[zeros], counts)
        negative_rows = repeat(zeros, counts)
    else:
        keys = filter(_NEGATIVE, columns)
        listed = {key: [row for row, cell in enumerate(columns[key]) if not _is_empty(cell)] for key in keys}
        pair = negative_rows = torch.tensor([row for rows in listed.values() for row in rows], dtype=torch.long)
        negative = torch.cat([query[:0], *(graphs(key, target_ids, rows) for key, rows in listed.items())])
    if not len(pair):  # no negative, empty cells only, or no label 0
        return relation
    itself = (relation.query[pair] == negative) & shared
    place, node = relation.positives(relation.query[pair])
    is_positive = torch.zeros_like(itself).index_fill(0, place[node == negative[place] + relation.shift], True)
    for mask, role in ((itself, "its query itself"), (is_positive, "a positive of its query")):
        for row in negative_rows[mask][:1].tolist():
            raise InputError(f"{what}: a negative of {at(row)} is {role}; remove one of the two.")
    return replace(relation, negatives=torch.stack([pair, negative]))


def _columns(pairs: Any, what: str) -> Mapping[str, Sequence[Any]]:
    """Return the columns of a list of pairs; raise InputError if one is unknown, missing, or of another length."""
    columns = pairs
    if not isinstance(pairs, Mapping):
        if isinstance(pairs, np.ndarray | Tensor) and pairs.ndim == 2 and len(pairs) == 2 and pairs.shape[1] > 2:
            raise InputError(f"{what} of shape {[*pairs.shape]} has two rows; give a row for each pair: transpose it.")
        rows = [tuple(pair) if isinstance(pair, list | tuple | np.ndarray | Tensor) else (pair,) for pair in pairs]
        for number, row in enumerate(rows):
            if len(row) < 2:
                raise InputError(f"{what}: pair {number} must be (query, target[, negative, ...]), got {_shown(row)}.")
        width = max(map(len, rows), default=2)
        names = ["query", "target", *(f"negative {number}" for number in range(1, width - 1))]
        columns = {name: [row[k] if k < len(row) else None for row in rows] for k, name in enumerate(names)}
    negatives = [str(key) for key in columns if _NEGATIVE(str(key))]
    if unknown := [str(key) for key in columns if key not in _COLUMNS and str(key) not in negatives]:
        names = [*dict.fromkeys(name for key in unknown for name in resembling(key, _COLUMNS)[:1])]
        shown = ", ".join(one_line(repr(key), 40) for key in unknown[:8])
        advice = f"{did_you_mean(names)}the columns of pairs are {', '.join(_COLUMNS)}, negative_2, ...; rename it"
        raise InputError(f"{what} has the unknown column {shown}; {advice} or leave it out.")
    if missing := [key for key in ("query", "target") if key not in columns]:
        raise InputError(f"{what} has no column {missing[0]!r}; its columns are {', '.join(columns)}.")
    if "label" in columns and negatives:
        raise InputError(f"{what} has the columns 'label' and {negatives[0]!r}; write known negatives in one way.")
    lengths = {len(cells) for cells in columns.values()}
    if len(lengths) > 1:
        raise InputError(f"{what}: the columns must have equal lengths, got {sorted(lengths)}.")
    return columns


def _indices(ids: Sequence[Any]) -> dict[Any, int]:
    """Return the index of each id; -1 for an id that several graphs have.

    Beside strings, each index is an id too, unless a string has its digits.
    """
    texts, digits = all(isinstance(key, str) for key in ids), {*map(str, ids)}
    indices: dict[Any, int] = {number: number for number in range(len(ids)) if texts and str(number) not in digits}
    for number, key in enumerate(map(_plain, ids)):
        indices[key] = -1 if key in indices else number
    return indices


def _weights(cells: Sequence[Any], rows: Sequence[int], what: str, at: Callable[[int], str]) -> Tensor | None:
    """Return the weights of the pairs in these rows; None if all are missing."""
    weights = torch.tensor([1.0 if cells[row] is None or cells[row] == "" else _number(cells[row]) for row in rows])
    wrong = ~((weights > 0) & weights.isfinite())  # as float32, which holds no 1e300
    if bool(wrong.any()):
        row = rows[int(wrong.int().argmax())]
        rule = "must be a positive number or empty"
        raise InputError(f"{what}: the weight of {at(row)} {rule}, got {_shown(cells[row])}.")
    return None if all(_is_empty(cells[row]) for row in rows) else weights


def _number(cell: Any) -> float:
    """Return a cell as a number; NaN if it is none."""
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def _is_empty(cell: Any) -> bool:
    return cell is None or cell == "" or cell != cell


def _plain(cell: Any) -> Any:
    """Return an id as a Python value: NumPy and torch scalars as the numbers they hold."""
    return cell.item() if isinstance(cell, np.generic | Tensor) else cell


def _shown(cell: Any) -> str:
    return one_line(repr(_plain(cell)), 40)
