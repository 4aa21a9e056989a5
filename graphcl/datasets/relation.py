"""Define which graphs belong together: pairs of a query and a target, with weights and known negatives; groups."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.errors import InputError, one_line
from graphcl.graphs.segment import group, ranges, repeat

NO_GROUP = -1
"""Number of a graph without a group."""
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
            pair = place[negatives[0]]
            negatives = torch.stack([pair, negatives[1]])[:, pair >= 0]
        weight = None if self.weight is None else self.weight[pairs]
        return self._changed(query=self.query[pairs], target=self.target[pairs], weight=weight, negatives=negatives)

    def with_negatives(self, negatives: Tensor | None) -> Relation:
        """Return the relation with other negatives, see `Relation`."""
        return self._changed(negatives=negatives)

    def _changed(self, **fields: Tensor | None) -> Relation:
        """Return a relation with other fields, where all positives and components of this one stay known."""
        changed = replace(self, **fields)  # type: ignore[arg-type]
        changed.__dict__.update(_adjacency=self._adjacency, component=self.component)
        return changed


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


class GroupNumbers:
    """Converter of groups to int64; one converter gives the pieces of a data set the same numbers.

    Whole numbers are kept; strings are numbered from 0 in order of first occurrence. None, NaN, -1 and a blank string
    mean no group.

    Example:
        >>> numbers = GroupNumbers()
        >>> numbers(["b", "a", None, "b"]), numbers(["c", "a"])
        (tensor([ 0,  1, -1,  0]), tensor([2, 1]))
    """

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._kind: type | None = None

    def __call__(self, groups: Sequence[Any] | Tensor, what: str = "own") -> Tensor:
        """Return the number of each graph's group, `[n]`; `what` names the graphs in messages.

        Raises:
            InputError: a group is neither a whole number from 0 on nor a string, or the groups mix both.
        """
        if not isinstance(groups, Tensor) or groups.is_floating_point():
            return torch.tensor([self._number(value, graph, what) for graph, value in enumerate(groups)]).long()
        numbers = groups.detach().cpu().flatten().long()
        for graph in [*(numbers < NO_GROUP).nonzero()[:1], *(numbers > NO_GROUP).nonzero()[:1]]:
            self._number(int(numbers[graph]), int(graph), what)  # raises, or records the kind
        return numbers

    def _number(self, value: Any, graph: int, what: str) -> int:
        if isinstance(value, Tensor | np.generic | np.ndarray):
            entries = value.reshape(-1).tolist()
            value = entries[0] if len(entries) == 1 else value
        text = isinstance(value, str)
        if value is None or (isinstance(value, float) and value != value) or (text and not value.strip()):
            return NO_GROUP
        if not text and not (isinstance(value, int | float) and value == value // 1 and NO_GROUP <= value < 2**63):
            rule = "a string or a whole number from 0 on (-1, None or '': no group)"
            raise InputError(f"{what}: `group` of graph {graph} must be {rule}, got {one_line(repr(value), 40)}.")
        if text or value != NO_GROUP:
            if self._kind is not None and text != (self._kind is str):
                raise InputError(f"{what}: `group` mixes numbers and strings; use one kind, or None for no group.")
            self._kind = str if text else int
        return self._names.setdefault(value, len(self._names)) if text else int(value)


def describe_groups(groups: Tensor) -> str:
    """Return the numbers of groups, members and single graphs in words; `groups [n]` has -1 for no group.

    Example:
        >>> describe_groups(torch.tensor([0, 0, 1, 1, 1, 2, -1]))
        '2 groups of 2 to 3 members (5 graphs), 2 graphs without a partner; groups are positives, not labels'
    """
    sizes = groups[groups != NO_GROUP].unique(return_counts=True)[1]
    sizes = sizes[sizes > 1]
    members = int(sizes.sum())
    low, high = (int(sizes.min()), int(sizes.max())) if len(sizes) else (0, 0)
    of = f" of {low}{f' to {high}' * (high > low)} members ({members} graphs)" if members else ""
    alone = f"{len(groups) - members} graphs without a partner"
    return f"{len(sizes)} groups{of}, {alone}; groups are positives, not labels"
