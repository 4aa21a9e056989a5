"""The tiled engine across ranks: keys travel round the ring, so that a rank holds O(N D / R).

Gathered keys take O(N D) on every rank, and their gradients as much again. Here a rank compares its anchors with its
own keys, then with those of the rank before it, then with those of the one before that, while the next ones are under
way; sums over keys are merged as those of tiles are. In the backward pass keys go round again, and their gradients
behind them: each rank adds its anchors' part, and the last one hands them to their owner.

A rank sends and receives, of K sets of keys (both views', or one's) `[n, D]` each,

| form            | forward          | backward           | holds of the others' keys and gradients |
|-----------------|------------------|--------------------|-----------------------------------------|
| gathered        | (R - 1) K n D    | (R - 1) K n D      | 2 (R - 1) K n D                         |
| ring            | (R - 1) K n D    | 2 (R - 1) K n D    | 6 K n D at most                         |
| ring, `moments` | 2 D (D + 2)      | 2 D (D + 2)        | nothing                                 |

numbers (`benchmarks/ranks.py` measures them). Moments need the sums of keys alone; reductions of whole rows
(`Pairs.rows`) gather the keys. On the CPU the ranks' sizes are compared first, a few bytes.

References:
    Liu, Zaharia and Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2023 (arXiv
    2310.01889), for attention. Cheng et al., "Breaking the Memory Barrier: Near Infinite Batch Size Scaling for
    Contrastive Loss", 2024 (arXiv 2410.17243).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import torch
import torch.distributed as dist
from torch import Tensor

from graphcl.distributed import ranks
from graphcl.losses.engine.checks import NonFiniteInputError, check_finite, check_size
from graphcl.losses.engine.comparison import Comparison, Reduction
from graphcl.losses.engine.tiled import Sums, TiledPairs, Tiles

_KEYS, _GRADIENTS = 1, 2
"""Tags, where messages of both kinds are under way between two ranks."""


def rows_of_others(comparison: Comparison) -> dict[int, Tensor]:
    """The other ranks' rows `[(R - 1) n, D]` of each set of the batch that gives keys, with their gradients."""
    numbers = comparison.of_batch
    rows = ranks.others(torch.stack([comparison.sets[number] for number in numbers], dim=1))
    return dict(zip(numbers, rows.unbind(dim=1), strict=True))


class RingPairs(TiledPairs):
    """A comparison with the keys of all ranks, which are never held at once.

    Args:
        comparison: who is compared with whom on this rank.
        tiles: the module that does the work.

    Raises:
        InputError: ranks have batches of different sizes or widths.
        NonFiniteInputError: NaN or infinity on any rank (looked for on the CPU only).
    """

    def __init__(self, comparison: Comparison, tiles: Tiles) -> None:
        found = ranks.current()
        assert found is not None
        super().__init__(comparison, _Ring(tiles, found))
        self._ranks, self._alone = found, tiles
        _check(comparison.sets[0], comparison.sets[1], found)

    def rows(self, function: Reduction, *per_anchor: Tensor) -> Tensor:
        """See `Pairs`; of gathered keys."""
        return TiledPairs(self._gathered, self._alone).rows(function, *per_anchor)

    @cached_property
    def _gathered(self) -> Comparison:
        return self.comparison.joined(rows_of_others(self.comparison))

    def _count_of(self, anchors: int) -> Tensor:
        comparison = self.comparison
        visits = sum(left_out == "diagonal" for _, left_out in comparison.against[anchors])
        return comparison.count(anchors) + (self._ranks.size - 1) * visits * comparison.sets[anchors].size(0)

    def _moments_of_keys(self, sets: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        of_batch, everywhere = self.comparison.of_batch, ranks.sum_over_ranks
        batch = torch.cat([self.comparison.sets[number] for number in sets if number in of_batch])
        rest = [self.comparison.sets[number] for number in sets if number not in of_batch]
        queue = torch.cat(rest) if rest else batch[:0]
        count = self._ranks.size * batch.size(0) + queue.size(0)
        center = (everywhere(batch.sum(dim=0)) + queue.sum(dim=0)) / count
        batch, queue = batch - center, queue - center
        both = everywhere(torch.cat([batch.sum(dim=0)[None], batch.T @ batch]))
        return center, both[0] + queue.sum(dim=0), both[1:] + queue.T @ queue


class _Ring:
    """`Tiles` over the keys of all ranks."""

    def __init__(self, tiles: Tiles, there: ranks.Ranks) -> None:
        self._tiles, self._ranks = tiles, there

    def forward(self, sums: Sums) -> tuple[list[Tensor], list[Tensor]]:
        """See `graphcl.losses.engine.tiled.Tiles`."""
        totals, expected = self._tiles.forward(sums)
        for visiting in self._visits(sums):
            more, means = self._tiles.forward(visiting)
            for number, (one, other) in enumerate(zip(totals, more, strict=True)):
                totals[number] = total = torch.logaddexp(one, other)
                one, other = (one - total).exp(), (other - total).exp()
                expected[number] = one * expected[number] + other * means[number]
        return totals, expected

    def backward(
        self,
        sums: Sums,
        totals: list[Tensor],
        grad_totals: list[Tensor],
        grad_expected: list[Tensor],
        wanted: list[bool],
    ) -> list[Tensor | None]:
        """See `graphcl.losses.engine.tiled.Tiles`."""
        given = totals, grad_totals, grad_expected
        gradients = self._tiles.backward(sums, *given, wanted)
        batch = sums.comparison.of_batch
        views = len(sums.comparison.sets)
        arriving: _Arriving | None = None
        for visiting in self._visits(sums):
            found = self._tiles.backward(visiting, *given, [*wanted, *(True for _ in batch)])
            for so_far, more in zip(gradients, found[:views], strict=True):
                if so_far is not None and more is not None:
                    so_far += more
            theirs = torch.stack([each for each in found[views:] if each is not None])
            if arriving is not None:
                theirs += arriving.wait()
            arriving = _Arriving(theirs, self._ranks, _GRADIENTS)
        assert arriving is not None
        for number, more in zip(batch, arriving.wait(), strict=True):
            if (so_far := gradients[number]) is not None:
                so_far += more
        return gradients

    def _visits(self, sums: Sums) -> Iterator[Sums]:
        """The sums over each other rank's keys in turn, the next ones under way while these are used."""
        comparison = sums.comparison
        numbers = comparison.of_batch
        keys = torch.stack([comparison.sets[number] for number in numbers])
        arriving = _Arriving(keys, self._ranks, _KEYS)
        for step in range(1, self._ranks.size):
            keys = arriving.wait()
            if step + 1 < self._ranks.size:
                arriving = _Arriving(keys, self._ranks, _KEYS)
            yield replace(sums, comparison=comparison.joined(dict(zip(numbers, keys, strict=True)), own=False))


class _Arriving:
    """What the rank before this one sends, while this one's goes to the next.

    Args:
        leaving: what is sent, of the shape of what arrives.
        there: the ring.
        tag: which kind it is.
    """

    def __init__(self, leaving: Tensor, there: ranks.Ranks, tag: int) -> None:
        self.tag, self._leaving, self._arriving = tag, leaving, torch.empty_like(leaving)
        before, after = (dist.get_global_rank(there.group, (there.rank + step) % there.size) for step in (-1, 1))
        self._under_way = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, leaving, after, there.group, tag),
                dist.P2POp(dist.irecv, self._arriving, before, there.group, tag),
            ]
        )

    def wait(self) -> Tensor:
        """It, when it is there and the other is gone."""
        for each in self._under_way:
            each.wait()
        return self._arriving


def _check(z1: Tensor, z2: Tensor, there: ranks.Ranks) -> None:
    """Refuse on all ranks what any of them cannot use."""
    there.agree(z1)
    if z1.device.type != "cpu":
        return
    sums = [float(each.detach().square().sum()) for each in (z1, z2)]
    told = there.exchange(torch.tensor([z1.size(0), all(map(math.isfinite, sums))])).tolist()
    there.check_sizes([size for size, _ in told])
    for name, each in (("z1", z1), ("z2", z2)):
        check_finite(name, each)
        check_size(name, each)
    for rank, (_, finite) in enumerate(told):
        if not finite:
            raise NonFiniteInputError(f"`z1` or `z2` is not finite, or too large, on rank {rank}.")
