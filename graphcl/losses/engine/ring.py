"""The tiled engine across ranks: keys circulate in a ring, so that each of R ranks holds O(N D / R) numbers.

In the ring, a rank compares its anchors with its own keys, then with the keys of each preceding rank in turn. The next
keys are in transit meanwhile, and the partial sums are merged. In the backward pass the keys circulate again, followed
by their gradients: each rank adds the contribution of its anchors, and the last rank returns the gradient to the owner
of the keys.

With K sets of keys `[n, D]` (one view or both) on each rank, a rank sends (R - 1) K n D numbers forward and twice as
many backward, and holds at most 6 K n D of other ranks. Gathered keys take (R - 1) K n D numbers either way, and twice
as many in memory. `Pairs.moments` sends only 2 D (D + 2) numbers either way. `Pairs.rows` gathers the keys. On the CPU,
ranks compare their batch sizes first.

References:
    Liu, Zaharia and Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2023 (arXiv
    2310.01889), for attention. Cheng et al., "Breaking the Memory Barrier: Near Infinite Batch Size Scaling for
    Contrastive Loss", 2024 (arXiv 2410.17243).
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import torch
import torch.distributed as dist
from torch import Tensor

from graphcl.distributed import ranks
from graphcl.losses.engine.base import Comparison, RowFunction, Sums, Tiles
from graphcl.losses.engine.checks import NonFiniteInputError, check_finite
from graphcl.losses.engine.tiled import TiledPairs

_KEYS, _GRADIENTS = 1, 2
"""Message tags for keys and gradients, as both can be in transit between two ranks at the same time."""


def rows_of_others(comparison: Comparison) -> dict[int, Tensor]:
    """Return, for each set in `batch_sets`, index -> rows of the other ranks, `[(R - 1) n, D]`, with gradients."""
    numbers = comparison.batch_sets
    rows = ranks.others(torch.stack([comparison.sets[number] for number in numbers], dim=1))
    return dict(zip(numbers, rows.unbind(dim=1), strict=True))


class RingPairs(TiledPairs):
    """`Pairs` of this rank's anchors and the keys of all ranks. The keys of other ranks arrive one rank at a time.

    Args:
        comparison: comparison of this rank's rows.
        tiles: implementation of the tiles.

    Raises:
        InputError: batches of different shapes on different ranks.
        NonFiniteInputError: NaN or infinity on any rank (checked on the CPU only).
    """

    def __init__(self, comparison: Comparison, tiles: Tiles) -> None:
        found = ranks.current()
        assert found is not None
        super().__init__(comparison, _Ring(tiles, found))
        self._ranks, self._tiles_of_rank = found, tiles
        _check(comparison, found)

    def rows(self, function: RowFunction, *per_anchor: Tensor) -> Tensor:
        """Gather the keys of all ranks and apply `function`, see `Pairs`."""
        return TiledPairs(self._gathered, self._tiles_of_rank).rows(function, *per_anchor)

    @cached_property
    def _gathered(self) -> Comparison:
        return self.comparison.with_keys(rows_of_others(self.comparison))

    def _count_of(self, anchors: int) -> Tensor:
        visits = sum(mask == "diagonal" for _, mask in self.comparison.key_sets[anchors])
        return super()._count_of(anchors) + (self._ranks.size - 1) * visits * self.comparison.sets[anchors].size(0)

    def _moments_of_keys(self, sets: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        batch_sets, everywhere = self.comparison.batch_sets, ranks.sum_over_ranks
        batch = torch.cat([self.comparison.sets[number] for number in sets if number in batch_sets])
        rest = [self.comparison.sets[number] for number in sets if number not in batch_sets]
        queue = torch.cat(rest) if rest else batch[:0]
        count = self._ranks.size * batch.size(0) + queue.size(0)
        center = (everywhere(batch.sum(dim=0)) + queue.sum(dim=0)) / count
        batch, queue = batch - center, queue - center
        both = everywhere(torch.cat([batch.sum(dim=0)[None], batch.T @ batch]))
        return center, both[0] + queue.sum(dim=0), both[1:] + queue.T @ queue


class _Ring:
    """Implementation of `Tiles` that merges the results over the keys of all ranks."""

    def __init__(self, tiles: Tiles, group: ranks.Collectives) -> None:
        self._tiles, self._ranks = tiles, group

    def forward(self, sums: Sums) -> tuple[list[Tensor], list[Tensor]]:
        """Return logsumexps and mean similarities, see `Tiles`."""
        totals, expected = self._tiles.forward(sums)
        for visiting in self._visits(sums):
            more, means = self._tiles.forward(visiting)
            for number, (one, other) in enumerate(zip(totals, more, strict=True)):
                totals[number] = total = torch.logaddexp(one, other)
                one, other = (one - total).exp(), (other - total).exp()
                expected[number] = one * expected[number] + other * means[number]
        return totals, expected

    def backward(
        self, sums: Sums, totals: list[Tensor], upstream: list[Tensor], wanted: list[bool]
    ) -> list[Tensor | None]:
        """Return the gradients of the sets, see `Tiles`."""
        gradients = self._tiles.backward(sums, totals, upstream, wanted)
        batch = sums.comparison.batch_sets
        views = len(sums.comparison.sets)
        arriving: _Transfer | None = None
        for visiting in self._visits(sums):
            found = self._tiles.backward(visiting, totals, upstream, [*wanted, *(True for _ in batch)])
            for so_far, more in zip(gradients, found[:views], strict=True):
                if so_far is not None and more is not None:
                    so_far += more
            theirs = torch.stack([each for each in found[views:] if each is not None])
            if arriving is not None:
                theirs += arriving.wait()
            arriving = _Transfer(theirs, self._ranks, _GRADIENTS)
        assert arriving is not None
        for number, more in zip(batch, arriving.wait(), strict=True):
            if (so_far := gradients[number]) is not None:
                so_far += more
        return gradients

    def _visits(self, sums: Sums) -> Iterator[Sums]:
        """Yield `sums` over the keys of each other rank in turn, while the next keys are in transit."""
        comparison = sums.comparison
        numbers = comparison.batch_sets
        keys = torch.stack([comparison.sets[number] for number in numbers])
        arriving = _Transfer(keys, self._ranks, _KEYS)
        for step in range(1, self._ranks.size):
            keys = arriving.wait()
            if step + 1 < self._ranks.size:
                arriving = _Transfer(keys, self._ranks, _KEYS)
            yield replace(sums, comparison=comparison.with_keys(dict(zip(numbers, keys, strict=True)), own=False))


class _Transfer:
    """A transfer in progress: sends `leaving` to the next rank, and receives as much from the preceding rank."""

    def __init__(self, leaving: Tensor, group: ranks.Collectives, tag: int) -> None:
        self.tag, self._sent, self._received = tag, leaving, torch.empty_like(leaving)
        before, after = (dist.get_global_rank(group.group, (group.rank + step) % group.size) for step in (-1, 1))
        self._requests = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, leaving, after, group.group, tag),
                dist.P2POp(dist.irecv, self._received, before, group.group, tag),
            ]
        )

    def wait(self) -> Tensor:
        """Wait until both directions are complete and return the received tensor."""
        for each in self._requests:
            each.wait()
        return self._received


def _check(comparison: Comparison, group: ranks.Collectives) -> None:
    """Raise an InputError on all ranks if batch sizes differ or if a view of any rank is not finite, or too large."""
    (z1, z2), bound = comparison.sets[:2], comparison.bound
    group.agree(z1)
    if z1.device.type != "cpu":
        return
    finite = all(bool((each.abs() < bound).all()) for each in (z1, z2))
    statistics = group.exchange(torch.tensor([z1.size(0), finite])).tolist()
    group.check_sizes([size for size, _ in statistics])
    for name, each in (("z1", z1), ("z2", z2)):
        check_finite(name, each, most=bound)
    for rank, (_, finite) in enumerate(statistics):
        if not finite:
            raise NonFiniteInputError(f"`z1` or `z2` is not finite, or too large, on rank {rank}.")
