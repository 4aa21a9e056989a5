"""Read a list of pairs from a table, and give a data set its pairs."""

from __future__ import annotations

import copy
import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.groups import with_groups
from graphcl.datasets.relation import make_relation
from graphcl.errors import InputError, reason
from graphcl.system.files import check_regular
from graphcl.system.optional import optional

PairList = Sequence[Sequence[Any]] | Mapping[str, Sequence[Any]] | str | os.PathLike[str]
"""Pairs of ids, see `graphcl.datasets.relation.make_relation`, or the path of a table with these columns."""


def with_pairs(dataset: GraphDataset, pairs: PairList, targets: GraphDataset | None = None) -> GraphDataset:
    """Return a copy of a data set of queries with the attributes `relation` and `targets`; all tensors are shared.

    The groups of the copy are the connected components of the pairs, so that a split by group keeps pairs together.

    Args:
        dataset: the queries.
        pairs: pairs of ids: the attribute `id` of the graphs, else their index. Or the path of a table, `.csv`, `.tsv`
            or `.parquet`, with the columns `query` and `target`, and if wanted `weight`, `negative`, `negative_2`, ...
        targets: data set of the targets; default: `dataset`.

    Raises:
        InputError: the table cannot be read, or see `make_relation`.
    """
    what = "`pairs`"
    ids = [each.ids.tolist() for each in (dataset, targets) if each is not None]
    if isinstance(pairs, str | os.PathLike):
        what, pairs = str(pairs), read_pairs(Path(pairs).expanduser())
        ids = [list(map(str, each)) for each in ids]
    queries, *others = ids
    relation = make_relation(pairs, queries, others[0] if others else None, what)
    found = with_groups(dataset, relation.component[: len(dataset)])
    found.relation = relation
    if targets is not None:
        found.targets = copy.copy(targets)
    return found


def read_pairs(path: Path) -> dict[str, list[str]]:
    """Return the columns of a table of pairs as texts; an empty text is a missing value."""
    check_regular(path)
    try:
        if path.suffix == ".parquet":
            parquet: Any = optional("pyarrow.parquet", "a .parquet file needs pyarrow", "parquet")
            columns = parquet.read_table(path).to_pydict()
            return {key: ["" if each is None else str(each) for each in values] for key, values in columns.items()}
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
            rows, names = list(reader), list(reader.fieldnames or [])
    except (OSError, UnicodeError, csv.Error, ValueError) as error:
        raise InputError(f"cannot read the pairs in {str(path)!r}: {reason(error)}.") from None
    if not rows:
        raise InputError(f"{path} lists no pair; write a header `query,target` and one pair per line.")
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{path} has {names.count(twice[0])} columns {twice[0]!r}; keep one of them.")
    for number, row in enumerate(rows):
        if None in row or None in row.values():
            raise InputError(f"{path}: pair {number} has another number of cells than the header; correct the line.")
    return {key: [row[key] for row in rows] for key in rows[0]}
