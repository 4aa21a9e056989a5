"""Which graphs go into which batch of an epoch, on which rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from graphcl.errors import InputError
from graphcl.graphs.segment import ranges

Share = tuple[int, int]
"""`(rank, ranks)`: a rank's part of each batch."""
WHOLE: Share = (0, 1)
_BLOCKS = 16
"""Blocks of consecutive graphs in a window."""


def batch_indices(
    num_graphs: int,
    batch_size: int,
    shuffle: bool = False,
    generator: torch.Generator | None = None,
    window: int | None = None,
) -> EpochOrder:
    """Which graphs go into which batch of one epoch: every graph once.

    A last batch of a single graph, which has nothing to be contrasted with, joins the batch before it.

    With a `window` the order is random only roughly, but reads lie close together, as a set larger than the memory
    wants it: blocks of `window // 16` consecutive graphs are put into a random order, and graphs are shuffled within
    each run of 16 blocks. Each graph is still equally likely at each place (but for the last, shorter block), but two
    that are neighbours in the file share a batch with probability about B / window, not B / n, and a batch comes from
    16 places in the file. So a file sorted by anything that matters should be shuffled when it is written.

    Args:
        num_graphs: n.
        batch_size: graphs in a batch, >= 1.
        shuffle: whether to draw a new order.
        generator: source of the order, a CPU generator.
        window: graphs that are shuffled together, >= 16; `None` for all, each order equally likely.

    Raises:
        InputError: a batch size below 1, or a window below 16.
    """
    _check_sizes(batch_size, window)
    if not shuffle:
        order = torch.arange(num_graphs)
    elif window is None or window >= num_graphs:
        order = torch.randperm(num_graphs, generator=generator)
    else:
        block = window // _BLOCKS
        order = torch.empty(num_graphs, dtype=torch.long)
        done = 0
        # Window by window, so that nothing but the order itself grows with the number of graphs.
        for start in (block * torch.randperm(-(-num_graphs // block), generator=generator)).split(_BLOCKS):
            part = ranges(start, (num_graphs - start).clamp(max=block))
            part = part[torch.randperm(part.numel(), generator=generator)]
            order[done : done + part.numel()] = part
            done += part.numel()
    return EpochOrder(order, batch_size)


def _check_sizes(batch_size: int, window: int | None) -> None:
    if batch_size < 1:
        raise InputError(f"`batch_size` must be at least 1, got {batch_size}.")
    if window is not None and window < _BLOCKS:
        raise InputError(f"`window` must be at least {_BLOCKS}, got {window}.")


def check_share(share: Share, batch_size: int, num_graphs: int) -> None:
    """Refuse a share that is none, or of which some batch would give fewer than two graphs.

    Raises:
        InputError: of either kind.
    """
    rank, ranks = share
    if not 0 <= rank < ranks:
        raise InputError(f"`share` must be (rank, ranks) with 0 <= rank < ranks, got {share}.")
    for name, size in (("batch_size", batch_size), ("num_graphs", num_graphs)) if ranks > 1 else ():
        if size < 2 * ranks:
            raise InputError(f"`{name}` must be at least 2 x {ranks} ranks = {2 * ranks}, two graphs each, got {size}.")


class EpochOrder(Sequence[Tensor]):
    """The batches of one epoch as a sequence of index tensors, which share one: 8 bytes a graph.

    Args:
        graphs: all graphs, in order.
        batch_size: graphs in a batch; a last one of a single graph joins the one before it.
        share: `(rank, ranks)`, which part of each batch is wanted. Parts are equal; what is left over of a batch is in
            none, and so is a last batch of fewer than two graphs a rank.
    """

    def __init__(self, graphs: Tensor, batch_size: int, share: Share = WHOLE) -> None:
        self.graphs, self.batch_size, self.share = graphs, batch_size, share

    def __len__(self) -> int:
        return num_batches(self.graphs.numel(), self.batch_size, self.share[1])

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        number %= len(self)
        rank, ranks = self.share
        last = number + 1 == num_batches(self.graphs.numel(), self.batch_size)
        start, stop = number * self.batch_size, self.graphs.numel() if last else (number + 1) * self.batch_size
        part = (stop - start) // ranks
        return self.graphs[start + rank * part : start + (rank + 1) * part]


def num_batches(num_graphs: int, batch_size: int, ranks: int = 1) -> int:
    """How many batches an epoch has, see `batch_indices` and `EpochOrder`."""
    batches = -(-num_graphs // batch_size)
    batches -= batches > 1 and batch_size > 1 and num_graphs % batch_size == 1
    last = num_graphs - (batches - 1) * batch_size
    return batches - (ranks > 1 and last < 2 * ranks)


class EpochBatches:
    """`batch_indices` anew at each iteration: the batch sampler that all loaders share.

    Of several ranks each draws the same order, from a generator of the same seed, and takes its `share` of each batch.
    """

    def __init__(
        self,
        num_graphs: int,
        batch_size: int,
        shuffle: bool,
        generator: torch.Generator | None,
        window: int | None = None,
        share: Share = WHOLE,
    ) -> None:
        _check_sizes(batch_size, window)
        check_share(share, batch_size, num_graphs)
        self.num_graphs, self.batch_size, self.shuffle, self.generator = num_graphs, batch_size, shuffle, generator
        self.window, self.share = window, share
        self.current = EpochOrder(torch.empty(0, dtype=torch.long), batch_size, share)
        """The batches of the epoch under way, for messages."""
        self.skip = 0
        """How many of the next epoch's first batches are left out, once: those that a training has seen."""

    def __len__(self) -> int:
        return num_batches(self.num_graphs, self.batch_size, self.share[1])

    def __iter__(self) -> Iterator[list[int]]:
        for graphs in self.draw():
            yield graphs.tolist()

    def draw(self) -> Sequence[Tensor]:
        """The batches of a new epoch, but for the first `skip`."""
        order = batch_indices(self.num_graphs, self.batch_size, self.shuffle, self.generator, self.window)
        self.current = EpochOrder(order.graphs, self.batch_size, self.share)
        skip, self.skip = self.skip, 0
        return self.current[skip:] if skip else self.current
