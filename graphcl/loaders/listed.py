"""Define the batches of a list of pairs: no graph in a batch is a positive of a pair that it is not in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from graphcl.arguments import named_arguments
from graphcl.datasets.relation import Relation
from graphcl.errors import InputError
from graphcl.graphs.segment import group
from graphcl.loaders.order import WHOLE, EpochBatches, Shard, check_shard

_ROUNDS = 8
"""Attempts of an epoch to find another batch for a pair that conflicts with its batch."""


class ListedPairs(EpochBatches):
    """Batch sampler of listed pairs; each iteration is one epoch, in which every pair occurs at most once.

    Two pairs conflict if they share a graph, or if a graph of one is a positive of a graph of the other. Conflicting
    pairs are never in one batch, so that no anchor has a known positive among its negatives. A pair that conflicts with
    an earlier pair of its batch changes places with another such pair. If there is no place, it is left out of the
    epoch.

    With `place`, a batch consists of blocks of pairs from one place, as far as places are large enough; the remaining
    pairs are mixed. So negatives come from the anchor's place.

    Of each pair with known negatives, one is drawn and becomes a negative of all anchors of the batch, unless it is in
    the batch or is a positive of a graph in the batch.

    Args:
        relation: the pairs.
        batch_size: number of pairs in a batch over all ranks, >= 2.
        shuffle: whether each epoch draws a new order.
        generator: CPU generator that draws the order and the negatives; default: torch's global one.
        shard: see `EpochBatches`.
        place: place of each query `[num_queries]`, whole numbers; default: batches are drawn from all pairs.
        place_share: fraction of a batch that comes from one place, in (0, 1].
        several: whether pairs of a query may share a batch, for a loss of several positives: `supcon` with the labels
            `ids`. They follow each other in the order, so that most batches have all pairs of their queries. Targets of
            one query then count as positives of each other.

    Attributes:
        current: this rank's batches of the current epoch, `(queries [B], targets [B + M])`; the last M targets are
            negatives.
        ids: the component of each pair, index tensors `[B]`, see `Relation`; with `several`, its query.

    Raises:
        InputError: no two pairs can share a batch, `place_share` is out of range, or see `EpochBatches`.

    Example:
        >>> relation = Relation(torch.tensor([0, 0, 3]), torch.tensor([1, 2, 4]), num_queries=5)
        >>> ListedPairs(relation, batch_size=2).draw()  # the first two pairs share graph 0
        [(tensor([0, 3]), tensor([1, 4]))]
    """

    rows = "pairs"

    @named_arguments
    def __init__(
        self,
        relation: Relation,
        batch_size: int,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
        shard: Shard = WHOLE,
        place: Tensor | None = None,
        place_share: float = 1.0,
        several: bool = False,
    ) -> None:
        if not 0 < place_share <= 1:
            raise InputError(f"`place_share` must be in (0, 1], got {place_share}.")
        self.relation, self._place, self._share, self._several = relation, place, place_share, several
        super().__init__(len(relation.query), batch_size, shuffle, generator, None, shard)
        self.total = relation.num_queries

    def restrict_to(self, graphs: Tensor) -> None:
        """Draw only the pairs whose query is one of `graphs`, from the next epoch on; see `EpochBatches`."""
        pairs = torch.isin(self.relation.query, graphs).nonzero().flatten()
        check_shard(self.shard, self.batch_size, len(pairs), self.rows)
        self.relation, self.num_graphs = self.relation.of_pairs(pairs), len(pairs)

    def __iter__(self) -> Iterator[Any]:
        for queries, targets in self.draw():
            yield queries.tolist(), targets.tolist()

    def draw(self) -> list[tuple[Tensor, Tensor]]:
        """Draw a new epoch and return this rank's batches, see `current`."""
        bounds = torch.tensor(self._bounds())
        order = self._order() if self._place is None or not self.shuffle else self._by_place(self._place)
        order, number = order[: bounds[-1]], torch.bucketize(torch.arange(int(bounds[-1])), bounds[1:], right=True)
        for _ in range(_ROUNDS):
            losers = self._losers(order, number).nonzero().flatten()
            if len(losers) < 2:
                break
            order[losers] = order[losers[torch.randperm(len(losers), generator=self.generator)]]
        lost = self._losers(order, number)
        order, number = order[~lost], number[~lost]
        pairs = order.split(torch.bincount(number, minlength=len(bounds) - 1).tolist())
        negatives = self._negatives(order, number, len(pairs))
        (rank, ranks), relation = self.shard, self.relation
        self.current, self.ids, weights = [], [], list[Tensor]()
        for batch, others in zip(pairs, negatives, strict=True):
            size = len(batch) // ranks
            if size < 2:
                continue
            batch = batch[rank * size : (rank + 1) * size]
            query, target = relation.query[batch], relation.target[batch]
            self.current.append((query, torch.cat([target, others])))
            self.ids.append(query if self._several else relation.component[query])
            weights += [] if relation.weight is None else [relation.weight[batch]]
        if not self.current:
            raise InputError("no batch has two pairs per rank that share no positive; list more pairs of other graphs.")
        self.weights = weights or None
        return self.current

    def _order(self) -> Tensor:
        """Return the order of the pairs; with `several`, the pairs of a query follow each other."""
        order = super()._order()
        if not self._several:
            return order
        query = self.relation.query[order]
        place = torch.zeros(self.relation.num_queries, dtype=torch.long).index_copy_(0, query, torch.arange(len(order)))
        return order[place[query].argsort(stable=True)]

    def _by_place(self, place: Tensor) -> Tensor:
        """Return a random order of the pairs, in blocks of one place; batches of full blocks are shuffled."""
        size = max(1, round(self._share * self.batch_size))
        order = self._order()
        places, number = place[self.relation.query[order]].unique(return_inverse=True)
        members, ptr = group(number, len(places))
        rank = torch.empty_like(number).index_copy_(0, members, torch.arange(len(members)) - ptr[number[members]])
        full = rank < (ptr.diff() // size * size)[number]
        _, block = (number * (self.num_graphs + 1) + rank // size).unique(return_inverse=True)
        draws = torch.rand(int(block.max()) + 1, generator=self.generator, dtype=torch.float64)
        order = order[(draws[block] + (~full)).argsort(stable=True)]  # draws of blocks are different
        whole = self.num_graphs // self.batch_size * self.batch_size
        batches = order[:whole].view(-1, self.batch_size)
        batches = batches[torch.randperm(len(batches), generator=self.generator)]
        return torch.cat([batches.flatten(), order[whole:]])

    def _losers(self, order: Tensor, number: Tensor) -> Tensor:
        """Return a mask of the pairs that conflict with an earlier pair of their batch.

        `number` is the batch of each pair in `order`.
        """
        ends, n = self.relation.nodes[:, order].flatten(), self.relation.num_nodes
        pair = torch.arange(len(order)).repeat(2)
        keys, place = (number[pair] * n + ends).unique(return_inverse=True)
        first = torch.full((len(keys),), len(order)).scatter_reduce_(0, place, pair, "amin")
        lost = torch.zeros(len(order), dtype=torch.bool)
        unit = self.relation.query[order] if self._several else torch.arange(len(order))
        lost[pair[unit[first[place]] != unit[pair]]] = True  # a graph that an earlier pair has
        entry, positive = self.relation.positives(ends)
        at, in_batch = _find(keys, number[pair[entry]] * n + positive)
        one, two = pair[entry[in_batch]], first[at[in_batch]]
        lost[torch.maximum(one, two)[unit[one] != unit[two]]] = True
        return lost

    def _negatives(self, order: Tensor, number: Tensor, batches: int) -> list[Tensor]:
        """Return the targets that are negatives of all anchors of each batch."""
        if self.relation.negatives is None:
            return [order.new_empty(0)] * batches
        pair, target = self.relation.negatives
        targets, ptr = group(pair, len(self.relation.query), target)
        count = ptr.diff()[order]
        some = count > 0
        drawn = torch.rand(len(order), generator=self.generator, dtype=torch.float64)
        target = targets[(ptr[order] + (drawn * count).long())[some]]
        number_of, n = number[some], self.relation.num_nodes
        codes = (number_of * n + target).unique()
        number_of, node = codes // n, codes % n + self.relation.shift
        keys = (number * n + self.relation.nodes[:, order]).flatten().unique()
        taken = _find(keys, number_of * n + node)[1]
        entry, positive = self.relation.positives(node)
        taken[entry[_find(keys, number_of[entry] * n + positive)[1]]] = True
        kept, number_of = node[~taken] - self.relation.shift, number_of[~taken]
        return list(kept.split(torch.bincount(number_of, minlength=batches).tolist()))


def _find(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the place of each value in the ascending `keys`, and a mask of the values that are in it."""
    at = torch.searchsorted(keys, values).clamp(max=len(keys) - 1)
    return at, keys[at] == values
