"""Define which graphs belong together: a list of pairs of a query and a target, with weights and known negatives."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.errors import InputError, one_line
from graphcl.graphs.segment import group, ranges, repeat

_MOST_PAIRS = 10**8
"""Largest number of pairs that groups are listed as."""


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
) -> Relation:
    """Return the relation of a list of pairs.

    Args:
        pairs: tuples `(query, target)` or `(query, target, negative, ...)` of ids, or of indices if the ids are
            strings; or columns: `query`, `target`, and if wanted `weight` and columns whose name starts with
            `negative`, with None or "" for none.
        queries: id of each graph of the data set of queries, such as 0, 1, 2, ...
        targets: the same for the data set of targets; None if it is the data set of queries.
        what: name of the list in messages.

    Raises:
        InputError: an id belongs to no graph or to several, a pair is a graph with itself, a weight is not a positive
            number, a negative is a positive, or there are fewer than two pairs.

    Example:
        >>> make_relation([("a", "b"), ("c", "a")], ["a", "b", "c"]).nodes
        tensor([[0, 2],
                [1, 0]])
    """
    columns = pairs if isinstance(pairs, Mapping) else _columns(pairs, what)
    if missing := [key for key in ("query", "target") if key not in columns]:
        raise InputError(f"{what} has no column {missing[0]!r}; its columns are {', '.join(map(str, columns))}.")
    if len(lengths := {len(each) for each in columns.values()}) > 1:
        raise InputError(f"{what}: the columns must have equal lengths, got {sorted(lengths)}.")
    of_query = _numbers(queries)
    of_target = of_query if targets is None else _numbers(targets)
    query, target = (
        _lookup(columns[key], known, key, what) for key, known in (("query", of_query), ("target", of_target))
    )
    if len(query) < 2:
        raise InputError(f"{what} has {len(query)} pairs; contrasting needs at least two.")
    shared = targets is None
    for row in (query == target).nonzero().flatten()[:1].tolist() if shared else ():
        raise InputError(f"{what}: pair {row} is graph {_shown(columns['query'][row])} with itself; remove it.")
    weight = _weights(columns["weight"], what) if "weight" in columns else None
    relation = Relation(query, target, len(queries), None if shared else len(targets or ()), weight)
    found = [_negatives(columns[key], of_target, key, what) for key in columns if str(key).startswith("negative")]
    if not found:
        return relation
    negatives = torch.cat(found, dim=1)
    place, positive = relation.positives(query[negatives[0]])
    for entry in (positive == negatives[1][place] + relation.shift).nonzero().flatten()[:1].tolist():
        row = int(negatives[0][place[entry]])
        raise InputError(f"{what}: a negative of pair {row} is a positive of its query; remove one of the two.")
    return replace(relation, negatives=negatives)


def _columns(pairs: Sequence[Sequence[Any]], what: str) -> dict[str, list[Any]]:
    """Return the columns of a list of tuples."""
    rows = [tuple(pair) if isinstance(pair, list | tuple | np.ndarray | Tensor) else (pair,) for pair in pairs]
    for row, pair in enumerate(rows):
        if len(pair) < 2:
            raise InputError(f"{what}: pair {row} must be (query, target[, negative, ...]), got {_shown(pair)}.")
    width = max(map(len, rows), default=2)
    names = ["query", "target", *(f"negative {number}" for number in range(1, width - 1))]
    return {name: [row[k] if k < len(row) else None for row in rows] for k, name in enumerate(names)}


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


def _lookup(values: Sequence[Any], known: Mapping[Any, int], key: str, what: str) -> Tensor:
    numbers = [known.get(_key(each)) for each in values]
    for row, number in enumerate(numbers):
        if number is None or number < 0:
            why = "several graphs have" if number else "no graph has"
            raise InputError(f"{what}: {why} the id {_shown(values[row])} of `{key}` in pair {row}.")
    return torch.tensor(numbers, dtype=torch.long)


def _negatives(values: Sequence[Any], known: Mapping[Any, int], key: str, what: str) -> Tensor:
    """Return the pair and the target of each negative in a column, `[2, M]`."""
    rows = [row for row, each in enumerate(values) if each is not None and each != "" and each == each]
    return torch.stack([torch.tensor(rows, dtype=torch.long), _lookup([values[row] for row in rows], known, key, what)])


def _weights(values: Sequence[Any], what: str) -> Tensor:
    try:
        weight = torch.tensor([float(each) for each in values])
    except (TypeError, ValueError):
        weight = torch.full((len(values),), torch.nan)
    for row in (~(weight.isfinite() & (weight > 0))).nonzero().flatten()[:1].tolist():
        raise InputError(f"{what}: the weight of pair {row} must be a positive number, got {_shown(values[row])}.")
    return weight


def _shown(value: Any) -> str:
    return one_line(repr(_key(value)), 40)
