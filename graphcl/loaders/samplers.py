"""Define the batches of an epoch, and each rank's part of them: single graphs, pairs of groups, and listed pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from graphcl.arguments import named_arguments
from graphcl.datasets.relation import NO_GROUP, GroupNumbers, Relation
from graphcl.errors import InputError
from graphcl.graphs.segment import group, ranges

Shard = tuple[int, int]
"""`(rank, ranks)`: the number of a process and the number of processes that share each batch."""
WHOLE: Shard = (0, 1)
_BLOCKS = 16
"""Number of blocks of consecutive graphs in a window."""


def check_shard(shard: Shard, batch_size: int, count: int, rows: str = "graphs") -> None:
    """Raise InputError if `shard` is invalid, or if a rank would get fewer than two `rows` of a batch.

    `rows` are graphs or groups, and `count` is their number in the data set.
    """
    rank, ranks = shard
    if not 0 <= rank < ranks:
        raise InputError(f"`shard` must be (rank, ranks) with 0 <= rank < ranks, got {shard}.")
    for name, size in (("batch_size", batch_size), (f"num_{rows}", count)):
        if ranks > 1 and size < 2 * ranks:
            raise InputError(f"`{name}` must be at least 2 x {ranks} ranks = {2 * ranks}, two {rows} each, got {size}.")


class EpochBatches:
    """Batch sampler of single graphs; each iteration is one epoch, in which every graph occurs once.

    A last batch of a single graph is merged into the batch before it. Several ranks draw the same order, from
    generators with the same seed. Each batch is divided into one part per rank, all of equal size; its remainder is
    dropped, and a last batch with fewer than two graphs per rank is dropped as a whole.

    A `window` restricts the shuffle, so that reads from disk stay close together. Blocks of `window // 16` consecutive
    graphs are put into a random order, and graphs are shuffled within every 16 blocks. Each graph is still equally
    likely at each position, except in the last, shorter block. But two neighbours in the file share a batch of B graphs
    with a probability of about B / window instead of B / n. So shuffle sorted graphs once before writing the file.

    Args:
        num_graphs: number of graphs n in the data set.
        batch_size: number of graphs in a batch over all ranks, >= 1.
        shuffle: whether each epoch draws a new order.
        generator: CPU generator that draws the order; default: torch's global one.
        window: number of graphs that are shuffled together, >= 16; `None`: all graphs together.
        shard: `(rank, ranks)`: the number of this process and the number of processes that share each batch.

    Attributes:
        current: this rank's parts of the batches of the current epoch, as index tensors.
        total: number of graphs in the data set.
        weights: weight of each row of these batches, `[B]` each; None without weights.
        ids: what methods know the rows of these batches by: the indices of the graphs.
    """

    rows: ClassVar[str] = "graphs"

    @named_arguments
    def __init__(
        self,
        num_graphs: int,
        batch_size: int,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
        window: int | None = None,
        shard: Shard = WHOLE,
    ) -> None:
        if batch_size < 1:
            raise InputError(f"`batch_size` must be at least 1, got {batch_size}.")
        if window is not None and window < _BLOCKS:
            raise InputError(f"`window` must be at least {_BLOCKS}, got {window}.")
        check_shard(shard, batch_size, num_graphs, self.rows)
        self.total = self.num_graphs = num_graphs
        self.batch_size, self.shuffle, self.generator = batch_size, shuffle, generator
        self.window, self.shard = window, shard
        self.current: list[Any] = []
        self.ids: list[Tensor] = self.current
        self.weights: list[Tensor] | None = None
        self._graphs: Tensor | None = None

    def restrict_to(self, graphs: Tensor) -> None:
        """Draw only the graphs with the indices `graphs`, from the next epoch on.

        Raises:
            InputError: a rank would get fewer than two graphs of a batch.
        """
        check_shard(self.shard, self.batch_size, len(graphs))
        self.num_graphs, self._graphs = len(graphs), graphs

    def __len__(self) -> int:
        return len(self._bounds()) - 1

    def __iter__(self) -> Iterator[list[Any]]:
        for graphs in self.draw():
            yield graphs.tolist()

    def draw(self) -> list[Any]:
        """Draw the order of a new epoch and return the epoch's batches as index tensors."""
        order, (rank, ranks), self.current = self._order(), self.shard, []
        self.ids = self.current
        order = order if self._graphs is None else self._graphs[order]
        for start, stop in pairwise(self._bounds()):
            size = (stop - start) // ranks
            self.current.append(order[start + rank * size : start + (rank + 1) * size])
        return self.current

    def _bounds(self) -> list[int]:
        """Return the boundaries of the batches of all ranks in the order of an epoch."""
        n, size, ranks = self.num_graphs, self.batch_size, self.shard[1]
        bounds = [*range(0, n, size), n]
        if len(bounds) > 2 and size > 1 and n - bounds[-2] == 1:
            del bounds[-2]
        if ranks > 1 and n - bounds[-2] < 2 * ranks:
            del bounds[-1]
        return bounds

    def _order(self) -> Tensor:
        n = self.num_graphs
        if not self.shuffle:
            return torch.arange(n)
        if self.window is None or self.window >= n:
            return torch.randperm(n, generator=self.generator)
        block = self.window // _BLOCKS
        order, done = torch.empty(n, dtype=torch.long), 0
        # window by window, so that no tensor but the order itself grows with the number of graphs
        for start in (block * torch.randperm(-(-n // block), generator=self.generator)).split(_BLOCKS):
            part = ranges(start, (n - start).clamp(max=block))
            part = part[torch.randperm(part.numel(), generator=self.generator)]
            order[done : done + part.numel()] = part
            done += part.numel()
        return order


Singles = Literal["drop", "views"]
"""What to do with a graph without a partner: leave it out, or pair it with itself, as two views of one graph."""


class EpochPairs(EpochBatches):
    """Batch sampler of pairs; in each epoch, every group gives one pair of different members, drawn uniformly.

    A group gives one pair per epoch, however many members it has. So no group occurs twice in a batch, no negative is
    of the anchor's group, and large groups do not dominate. Members that an epoch does not use occur in later epochs.
    Without `shuffle`, the pair is always that of the first two members.

    Batches, ranks and `window` are those of `EpochBatches`, for groups instead of graphs. Groups are ordered by their
    first graph, so write the members of a group next to each other in files that are read with a `window`.

    Args:
        groups: group of each graph, `[n]`: numbers, -1 for no group, or strings, see `GroupNumbers`.
        batch_size: number of groups in a batch over all ranks, >= 1.
        shuffle: whether each epoch draws a new order and new members.
        generator: CPU generator that draws the order and the members; default: torch's global one.
        window: see `EpochBatches`.
        shard: see `EpochBatches`.
        singles: graphs without a partner: "drop" leaves them out, "views" pairs each with itself. Such a pair needs an
            augmentation, as it would be two equal graphs otherwise.

    Attributes:
        current: this rank's batches of the current epoch, `(first members [B], second members [B])`.
        ids: the group of each pair, index tensors `[B]` from 0 to the number of groups.

    Raises:
        InputError: there are fewer than two groups, or see `EpochBatches`.

    Example:
        >>> EpochPairs(["a", "b", "b", "a", "c"], batch_size=2).draw()
        [(tensor([0, 1]), tensor([3, 2]))]
    """

    rows = "groups"

    @named_arguments
    def __init__(
        self,
        groups: Sequence[Any] | Tensor,
        batch_size: int,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
        window: int | None = None,
        shard: Shard = WHOLE,
        singles: Singles = "drop",
    ) -> None:
        self._groups, self._singles = GroupNumbers()(groups), singles
        super().__init__(self._use(torch.arange(len(self._groups))), batch_size, shuffle, generator, window, shard)
        self.total = len(self._groups)

    def restrict_to(self, graphs: Tensor) -> None:
        """Draw only pairs of the graphs with the indices `graphs`, from the next epoch on; see `EpochBatches`."""
        self.num_graphs = self._use(graphs)
        check_shard(self.shard, self.batch_size, self.num_graphs, self.rows)

    def _use(self, graphs: Tensor) -> int:
        """Prepare the groups of the graphs with these indices, and return their number."""
        members, self._start, self._sizes = segments(self._groups[graphs], self._singles)
        self._members = graphs[members]
        self._choices = torch.stack([self._sizes, self._sizes - 1])  # for the first and for the second member
        count = len(self._sizes)
        if count < 2:
            rule = "two or more graphs each" if self._singles == "drop" else "any size"
            raise InputError(f"training on pairs needs at least two groups of {rule}, got {count}; check `group`.")
        return count

    def __iter__(self) -> Iterator[list[Any]]:
        for one, two in self.draw():
            yield list(zip(one.tolist(), two.tolist(), strict=True))

    def draw(self) -> list[tuple[Tensor, Tensor]]:
        """Draw the order of a new epoch and its pairs, and return the epoch's batches, see `current`."""
        self.ids = super().draw()
        pairs = self._pairs()
        self.current = [(pairs[0, groups], pairs[1, groups]) for groups in self.ids]
        return self.current

    def _pairs(self) -> Tensor:
        """Return the indices of the first and the second member of every group, `[2, G]`; equal for a single."""
        place = torch.zeros(2, self.num_graphs, dtype=torch.long)  # of the member in its group
        if self.shuffle:
            drawn = torch.rand(2, self.num_graphs, generator=self.generator, dtype=torch.float64)
            place = drawn.mul_(self._choices).long()
        place[1].add_(place[0]).add_(1).remainder_(self._sizes)  # the second is 1 to size - 1 places after the first
        return self._members[place.add_(self._start)]


def segments(groups: Sequence[Any] | Tensor, singles: Singles) -> tuple[Tensor, Tensor, Tensor]:
    """Return the graphs sorted by group `[n]`, and the start and size of each group that gives pairs, `[G]`.

    Groups are in the order of their first graph; a graph without a group is a group of its own.
    """
    values, number = GroupNumbers()(groups).unique(return_inverse=True)
    alone = values[number] == NO_GROUP
    number[alone] = len(values) + torch.arange(int(alone.sum()))
    members, ptr = group(number, len(values) + int(alone.sum()))
    sizes = ptr.diff()
    kept = (sizes >= (2 if singles == "drop" else 1)).nonzero().flatten()
    kept = kept[members[ptr[kept]].argsort()]
    return members, ptr[kept], sizes[kept]


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
