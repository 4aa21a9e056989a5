"""The order of an epoch: which graphs each batch holds, and which of them each rank takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from graphcl.errors import InputError
from graphcl.graphs.segment import ranges

Shard = tuple[int, int]
"""`(rank, ranks)`: the number of a process and the number of processes that share each batch."""
WHOLE: Shard = (0, 1)
_BLOCKS = 16
"""Number of blocks of consecutive graphs in a window."""


def batch_indices(
    num_graphs: int,
    batch_size: int,
    shuffle: bool = False,
    generator: torch.Generator | None = None,
    window: int | None = None,
) -> EpochOrder:
    """Return the graph indices of each batch of one epoch; every graph occurs once.

    A last batch of a single graph, which has no negatives, is merged into the batch before it.

    With a `window` the shuffle is only local, so that reads from disk stay close together: blocks of `window // 16`
    consecutive graphs are put into a random order, and graphs are shuffled within each run of 16 blocks. Each
    position is still equally likely for each graph (except in the last, shorter block). But neighbours in the file end
    up in the same batch of B graphs with probability about B / window instead of B / n, for n graphs in all. So shuffle
    sorted graphs once before writing the file.

    Args:
        num_graphs: number of graphs n in the data set.
        batch_size: number of graphs in a batch, >= 1.
        shuffle: whether to draw a new order.
        generator: CPU generator that draws the order; default: torch's global one.
        window: number of graphs that are shuffled together, >= 16; `None`: all graphs together.

    Raises:
        InputError: `batch_size` is below 1, or `window` is below 16.
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
        # window by window, so that no tensor but the order itself grows with the number of graphs
        for start in (block * torch.randperm(-(-num_graphs // block), generator=generator)).split(_BLOCKS):
            part = ranges(start, (num_graphs - start).clamp(max=block))
            part = part[torch.randperm(part.numel(), generator=generator)]
            order[done : done + part.numel()] = part
            done += part.numel()
    return EpochOrder(order, batch_size)


def num_batches(num_graphs: int, batch_size: int, ranks: int = 1) -> int:
    """Return the number of batches in an epoch, after the merging and dropping that `EpochOrder` describes."""
    batches = -(-num_graphs // batch_size)
    batches -= batches > 1 and batch_size > 1 and num_graphs % batch_size == 1
    last = num_graphs - (batches - 1) * batch_size
    return batches - (ranks > 1 and last < 2 * ranks)


def check_shard(shard: Shard, batch_size: int, num_graphs: int) -> None:
    """Raise InputError if `shard` is invalid, or if a rank would get fewer than two graphs of a batch."""
    rank, ranks = shard
    if not 0 <= rank < ranks:
        raise InputError(f"`shard` must be (rank, ranks) with 0 <= rank < ranks, got {shard}.")
    for name, size in (("batch_size", batch_size), ("num_graphs", num_graphs)) if ranks > 1 else ():
        if size < 2 * ranks:
            raise InputError(f"`{name}` must be at least 2 x {ranks} ranks = {2 * ranks}, two graphs each, got {size}.")


class EpochOrder(Sequence[Tensor]):
    """The batches of one epoch as a sequence of index tensors, slices of one tensor.

    Args:
        graphs: indices of all graphs, in the order of the epoch.
        batch_size: number of graphs in a batch; a last batch of a single graph is merged into the batch before it.
        shard: `(rank, ranks)`: the rank whose part of each batch to return, and the number of ranks. Parts have equal
            sizes: the remainder of a batch is dropped, as is a last batch of fewer than two graphs per rank.
    """

    def __init__(self, graphs: Tensor, batch_size: int, shard: Shard = WHOLE) -> None:
        self.graphs, self.batch_size, self.shard = graphs, batch_size, shard

    def __len__(self) -> int:
        return num_batches(self.graphs.numel(), self.batch_size, self.shard[1])

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        number %= len(self)
        rank, ranks = self.shard
        last = number + 1 == num_batches(self.graphs.numel(), self.batch_size)
        start, stop = number * self.batch_size, self.graphs.numel() if last else (number + 1) * self.batch_size
        part = (stop - start) // ranks
        return self.graphs[start + rank * part : start + (rank + 1) * part]


class EpochBatches:
    """The batch sampler of all loaders: each iteration is an epoch, in a newly drawn order of `batch_indices`.

    Every rank draws the same order, from a generator with the same seed, and takes its own shard of each batch.

    Attributes:
        current: the batches of the current epoch, as index tensors.
    """

    def __init__(
        self,
        num_graphs: int,
        batch_size: int,
        shuffle: bool,
        generator: torch.Generator | None,
        window: int | None = None,
        shard: Shard = WHOLE,
    ) -> None:
        _check_sizes(batch_size, window)
        check_shard(shard, batch_size, num_graphs)
        self.num_graphs, self.batch_size, self.shuffle, self.generator = num_graphs, batch_size, shuffle, generator
        self.window, self.shard = window, shard
        self.current = EpochOrder(torch.empty(0, dtype=torch.long), batch_size, shard)

    def __len__(self) -> int:
        return num_batches(self.num_graphs, self.batch_size, self.shard[1])

    def __iter__(self) -> Iterator[list[int]]:
        for graphs in self.draw():
            yield graphs.tolist()

    def draw(self) -> Sequence[Tensor]:
        """Draw the order of a new epoch and return the epoch's batches as index tensors."""
        order = batch_indices(self.num_graphs, self.batch_size, self.shuffle, self.generator, self.window)
        self.current = EpochOrder(order.graphs, self.batch_size, self.shard)
        return self.current


def _check_sizes(batch_size: int, window: int | None) -> None:
    if batch_size < 1:
        raise InputError(f"`batch_size` must be at least 1, got {batch_size}.")
    if window is not None and window < _BLOCKS:
        raise InputError(f"`window` must be at least {_BLOCKS}, got {window}.")
