"""Define which graphs belong together: a list of pairs of a query and a target, with weights and known negatives."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.arguments import did_you_mean, resembling
from graphcl.errors import InputError, InputTypeError, one_line, warn
from graphcl.graphs.segment import group, ranges, repeat

_MOST_PAIRS = 10**8
"""Largest number of pairs that groups are listed as."""
_KNOWN = ("query", "target", "weight", "label", "negative")
"""Columns of pairs; more columns of negatives have a number: `negative_2`."""
_NEGATIVE = re.compile(r"negative[ _]?\d*").fullmatch
_LABELS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


@dataclass(frozen=True)
class Relation:
    """Pairs of graphs that are positives of each other. A graph may be in any number of pairs.

    Queries and targets are graphs of one data set, or of two. Nodes number both: query i is node i, and target j is
    node j of one data set, or node `num_queries` + j of two.

    Args:
        query: index of each pair's query `[P]`.
        target: index of each pair's target `[P]`.
        num_queries: number of graphs in the data set of queries.
        num_targets: number of graphs in the data set of targets; None if it is the data set of queries.
        weight: weight of each pair in the loss `[P]`, > 0; default: all equal.
        negatives: pair and target of each known negative, `[2, M]`: the target is a negative of the pair's query.

    Example:
        >>> relation = Relation(torch.tensor([0, 0]), torch.tensor([1, 2]), num_queries=4)
        >>> relation.component
        tensor([0, 0, 0, 1])
    """

    query: Tensor
    target: Tensor
    num_queries: int
    num_targets: int | None = None
    weight: Tensor | None = None
    negatives: Tensor | None = None

    @property
    def nodes(self) -> Tensor:
        """Nodes of both graphs of each pair, `[2, P]`."""
        return torch.stack([self.query, self.target + self.shift])

    @property
    def shift(self) -> int:
        """Node of target 0."""
        return 0 if self.num_targets is None else self.num_queries

    @functools.cached_property
    def targets(self) -> Tensor:
        """Nodes that are searched for a query's targets: the data set of targets, or the targets of all pairs."""
        if self.num_targets is None:
            return self.target.unique()
        return torch.arange(self.num_queries, self.num_nodes)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.num_queries + (self.num_targets or 0)

    @functools.cached_property
    def _adjacency(self) -> tuple[Tensor, Tensor]:
        """Return the nodes that are positives of each node, sorted by node, and the boundaries `[num_nodes + 1]`."""
        nodes = self.nodes
        codes = torch.cat([nodes[0] * self.num_nodes + nodes[1], nodes[1] * self.num_nodes + nodes[0]]).unique()
        return group(codes // self.num_nodes, self.num_nodes, codes % self.num_nodes)

    def positives(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positives of `nodes [m]` as two flat lists: the place in `nodes`, and the positive's node."""
        values, ptr = self._adjacency
        first, counts = ptr[nodes], ptr[nodes + 1] - ptr[nodes]
        return repeat(torch.arange(len(nodes)), counts), values[ranges(first, counts)]

    @functools.cached_property
    def component(self) -> Tensor:
        """Connected component of each node, `[num_nodes]`: graphs of different components are never positives."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        rows, columns = self.nodes.numpy().astype(np.int32)
        joined = csr_array((np.ones(len(rows), np.int8), (rows, columns)), shape=(self.num_nodes,) * 2)
        return torch.from_numpy(connected_components(joined, directed=False)[1].astype(np.int64))

    def of_pairs(self, pairs: Tensor) -> Relation:
        """Return the relation of the pairs with the indices `pairs` only; all positives stay known."""
        place = torch.full((len(self.query),), -1).index_copy_(0, pairs, torch.arange(len(pairs)))
        negatives = self.negatives
        if negatives is not None:
            own = place[negatives[0]]
            negatives = torch.stack([own, negatives[1]])[:, own >= 0]
        weight = None if self.weight is None else self.weight[pairs]
        found = replace(self, query=self.query[pairs], target=self.target[pairs], weight=weight, negatives=negatives)
        return self._kept(found)

    def with_negatives(self, negatives: Tensor | None) -> Relation:
        """Return the relation with other negatives, see `Relation`."""
        return self._kept(replace(self, negatives=negatives))

    def _kept(self, found: Relation) -> Relation:
        """Return `found`, where all positives and components of this relation stay known."""
        found.__dict__.update(_adjacency=self._adjacency, component=self.component)
        return found


def relation_of_groups(groups: Tensor) -> Relation:
    """Return all pairs of graphs of the same group; `groups [n]` has -1 for no group.

    Raises:
        InputError: there are more than 10^8 pairs, as of groups that are classes.

    Example:
        >>> relation_of_groups(torch.tensor([4, 4, -1, 7, 4])).nodes
        tensor([[0, 0, 1],
                [1, 4, 4]])
    """
    order = groups.argsort(stable=True)
    order = order[groups[order] >= 0]
    sizes = groups[order].unique_consecutive(return_counts=True)[1]
    after = repeat(sizes.cumsum(0), sizes) - torch.arange(len(order)) - 1  # later members of the same group
    if int(after.sum()) > _MOST_PAIRS:
        raise InputError(f"the groups have {int(after.sum())} pairs; list those to train on, or leave out `batch_by`.")
    first = torch.arange(len(order))
    return Relation(order[repeat(first, after)], order[ranges(first + 1, after)], len(groups))


def make_relation(
    pairs: Sequence[Sequence[Any]] | Mapping[str, Sequence[Any]],
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
    if not isinstance(pairs, Iterable) or (isinstance(pairs, Mapping) and not all(map(_is_list, pairs.values()))):
        raise InputTypeError(f"{what} must be a list of tuples, or lists as columns, got {_shown(pairs)}.")
    columns = pairs if isinstance(pairs, Mapping) else _columns(pairs, what)
    _check_columns(columns, what)
    lengths = {len(cells) for cells in columns.values()}
    if len(lengths) > 1:
        raise InputError(f"{what}: the columns must have equal lengths, got {sorted(lengths)}.")
    of_query = _numbers(queries)
    of_target = of_query if targets is None else _numbers(targets)
    ends = {"query": of_query, "target": of_target}
    query, target = (_lookup(columns[key], ids, key, what, at) for key, ids in ends.items())
    labelled = "label" in columns
    positive = _labels(columns["label"], what, at) if labelled else torch.ones_like(query, dtype=torch.bool)
    rows = positive.nonzero().flatten()
    if len(rows) < 2:
        raise InputError(f"{what} has {len(rows)} pairs; contrasting needs at least two.")
    shared = targets is None
    for row in (query == target).nonzero().flatten()[:1].tolist() if shared else ():
        raise InputError(f"{what}: {at(row)} is graph {_shown(columns['query'][row])} with itself; remove it.")
    weight = _weights(columns["weight"], rows.tolist(), what, at) if "weight" in columns else None
    relation = Relation(query[rows], target[rows], len(queries), None if shared else len(targets or ()), weight)
    entries = [_negatives(cells, of_target, key, what, at) for key, cells in columns.items() if _NEGATIVE(str(key))]
    if labelled:
        entries.append(_of_label(relation, query, target, ~positive, what))
    if not entries:
        return relation
    pair, negative, row = torch.cat(entries, dim=1)
    if not len(pair):  # empty cells only, or no label 0
        return relation
    itself = (relation.query[pair] == negative) & shared
    place, node = relation.positives(relation.query[pair])
    known = torch.zeros_like(itself).index_fill(0, place[node == negative[place] + relation.shift], True)
    for mask, role in ((itself, "its query itself"), (known, "a positive of its query")):
        for entry in mask.nonzero().flatten()[:1].tolist():
            raise InputError(f"{what}: a negative of {at(int(row[entry]))} is {role}; remove one of the two.")
    return replace(relation, negatives=torch.stack([pair, negative]))


def _columns(pairs: Sequence[Sequence[Any]], what: str) -> dict[str, list[Any]]:
    """Return the columns of a list of tuples."""
    if isinstance(pairs, np.ndarray | Tensor) and len(pairs) == 2 and np.ndim(pairs) == 2 and pairs.shape[1] > 2:
        raise InputError(f"{what} of shape {[*pairs.shape]} has two rows; give a row for each pair: transpose it.")
    rows = [tuple(pair) if isinstance(pair, list | tuple | np.ndarray | Tensor) else (pair,) for pair in pairs]
    for row, pair in enumerate(rows):
        if len(pair) < 2:
            raise InputError(f"{what}: pair {row} must be (query, target[, negative, ...]), got {_shown(pair)}.")
    width = max(map(len, rows), default=2)
    names = ["query", "target", *(f"negative {number}" for number in range(1, width - 1))]
    return {name: [row[k] if k < len(row) else None for row in rows] for k, name in enumerate(names)}


def _check_columns(columns: Mapping[str, Any], what: str) -> None:
    """Raise InputError for unknown columns, as what they mean would be lost, and for missing ones."""
    listed = ", ".join(map(str, columns))
    if unknown := [str(key) for key in columns if key not in _KNOWN and not _NEGATIVE(str(key))]:
        names = dict.fromkeys(name for key in unknown for name in resembling(key, _KNOWN)[:1])
        shown = ", ".join(one_line(repr(key), 40) for key in unknown[:8])
        advice = f"{did_you_mean([*names])}the columns of pairs are {', '.join(_KNOWN)}, negative_2, ...; rename it"
        raise InputError(f"{what} has the unknown column {shown}; {advice} or leave it out.")
    if missing := [key for key in ("query", "target") if key not in columns]:
        raise InputError(f"{what} has no column {missing[0]!r}; its columns are {listed}.")
    if "label" in columns and (negative := [str(key) for key in columns if _NEGATIVE(str(key))]):
        raise InputError(f"{what} has the columns 'label' and {negative[0]!r}; write known negatives in one way.")


def _numbers(ids: Sequence[Any]) -> dict[Any, int]:
    """Return the index of each id; -1 for an id that several graphs have.

    Beside strings, each index is known too, unless a string has its digits.
    """
    texts, digits = all(isinstance(each, str) for each in ids), {*map(str, ids)}
    found: dict[Any, int] = {number: number for number in range(len(ids)) if texts and str(number) not in digits}
    for number, each in enumerate(ids):
        key = _key(each)
        found[key] = -1 if key in found else number
    return found


def _key(value: Any) -> Any:
    """Return an id as a Python value: NumPy and torch scalars as the numbers they hold."""
    return value.item() if isinstance(value, np.generic | Tensor) else value


def _lookup(
    values: Sequence[Any],
    ids: Mapping[Any, int],
    key: str,
    what: str,
    at: Callable[[int], str],
    rows: Sequence[int] = (),
) -> Tensor:
    """Return the graphs with the ids `values`, by default of all rows."""
    rows = rows or range(len(values))
    numbers = [ids.get(_key(values[row])) for row in rows]
    for row, number in zip(rows, numbers, strict=True):
        if number is None or number < 0:
            why = "several graphs have" if number else "no graph has"
            raise InputError(f"{what}: {why} the id {_shown(values[row])} of `{key}` in {at(row)}.")
    return torch.tensor(numbers, dtype=torch.long)


def _negatives(values: Sequence[Any], ids: Mapping[Any, int], key: str, what: str, at: Callable[[int], str]) -> Tensor:
    """Return the pair, the target and the row of each negative in a column, `[3, M]`; pairs and rows are the same."""
    rows = [row for row, value in enumerate(values) if not _is_empty(value)]
    if not rows:
        return torch.empty(3, 0, dtype=torch.long)
    row = torch.tensor(rows)
    return torch.stack([row, _lookup(values, ids, key, what, at, rows), row])


def _of_label(relation: Relation, query: Tensor, target: Tensor, negative: Tensor, what: str) -> Tensor:
    """Return the pair, the target and the row of each negative by its label, `[3, M]`.

    Args:
        relation: the pairs.
        query: index of the query of each row.
        target: index of the target of each row.
        negative: mask of the rows that are known negatives, of all pairs of their query.
        what: name of the list, for the warning of rows that are of no use.
    """
    rows = negative.nonzero().flatten()
    pairs, ptr = group(relation.query, relation.num_queries)
    first, counts = ptr[query[rows]], ptr.diff()[query[rows]]
    if unused := int((counts == 0).sum()):
        warn(f"{what}: {unused} rows with label 0 are left out, as their query has no row with label 1")
    return torch.stack([pairs[ranges(first, counts)], repeat(target[rows], counts), repeat(rows, counts)])


def _labels(values: Sequence[Any], what: str, at: Callable[[int], str]) -> Tensor:
    """Return a mask of the rows with label 1."""
    labels = [_LABELS.get(str(_key(value)).strip().lower()) for value in values]
    for row, label in enumerate(labels):
        if label is None:
            rule = "must be 1, for a pair, or 0, for a known negative"
            raise InputError(f"{what}: the `label` of {at(row)} {rule}, got {_shown(values[row])}.")
    return torch.tensor(labels)


def _weights(values: Sequence[Any], rows: Sequence[int], what: str, at: Callable[[int], str]) -> Tensor | None:
    """Return the weights of the pairs in these rows; None if all are missing."""
    weights = torch.tensor([1.0 if values[row] is None or values[row] == "" else _number(values[row]) for row in rows])
    for row, weight in zip(rows, weights.tolist(), strict=True):
        if not 0 < weight < float("inf"):  # as float32, which holds no 1e300
            rule = "must be a positive number or empty"
            raise InputError(f"{what}: the weight of {at(row)} {rule}, got {_shown(values[row])}.")
    weighted = sum(not _is_empty(values[row]) for row in rows)
    if sum(not _is_empty(value) for value in values) > weighted:
        warn(f"{what}: weights of rows with label 0 have no effect; only pairs have a weight")
    return weights if weighted else None


def _is_list(cells: Any) -> bool:
    return hasattr(cells, "__len__") and not isinstance(cells, str | bytes)


def _number(value: Any) -> float:
    """Return a cell as a number; NaN if it is none, as 1_0, which Python reads as 10."""
    try:
        return float("nan" if "_" in str(value) else value)
    except (TypeError, ValueError):
        return float("nan")


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or value != value


def _shown(value: Any) -> str:
    return one_line(repr(_key(value)), 40)
