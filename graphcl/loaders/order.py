"""Define the batches of an epoch: the order of the graphs, and each rank's part of each batch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphcl.arguments import named_arguments
from graphcl.errors import InputError
from graphcl.graphs.segment import ranges

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
