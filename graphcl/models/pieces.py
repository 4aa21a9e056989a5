"""Encode a batch piece by piece, so that the memory of a training step does not grow with the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Batch

from graphcl.graphs.batching import split


class LazyBatch:
    """A view of B graphs whose pieces are made whenever they are encoded, so that memory holds one at a time.

    Args:
        pieces: functions that return the pieces; each returns equal batches in all calls.
        num_graphs: B.
        entries: attributes with one entry per graph, or None, which are not collected from the pieces.
    """

    def __init__(self, pieces: Sequence[Callable[[], Batch]], num_graphs: int, **entries: Tensor | None) -> None:
        self.pieces, self.num_graphs, self._entries = pieces, num_graphs, entries

    def get(self, key: str) -> Tensor | None:
        """Return an attribute with one entry per graph, `[B]`; None if the graphs lack it."""
        if key not in self._entries:
            found = [piece().get(key) for piece in self.pieces]
            self._entries[key] = None if found[0] is None else torch.cat(found)
        return self._entries[key]

    @property
    def y(self) -> Tensor | None:
        """Labels `[B]`."""
        return self.get("y")


def piece_sizes(count: int, size: int) -> list[int]:
    """Return sizes of at most `size` that differ by at most one and add up to `count`."""
    number = -(-count // size)
    return [(count + place) // number for place in range(number)]


def in_pieces(module: nn.Module, encode: Callable[[Batch], Tensor], batch: Batch | LazyBatch, size: int) -> Tensor:
    r"""Return the rows `encode(piece)` of all pieces of a batch, without keeping what their gradients need.

    The forward pass keeps the rows only. The backward pass encodes each piece again, with the same random numbers, and
    adds its gradient. So the gradient is that of the whole batch, for about a third more time. A module without
    statistics of the batch gives the same rows as in one pass. BatchNorm normalises each piece by itself, and its
    running statistics move by the mean of the pieces' statistics, as with one rank per piece.

    Args:
        module: module whose BatchNorm layers `encode` uses.
        encode: function from a batch of P graphs to rows `[P, ...]`.
        batch: B graphs.
        size: largest number of graphs in a piece of a `Batch`; the pieces are of nearly equal size.

    References:
        Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", RepL4NLP 2021
        (arXiv 2101.06983). Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016 (arXiv 1604.06174).
    """
    if isinstance(batch, Batch):
        cut = split(batch, piece_sizes(batch.num_graphs, size))
        batch = LazyBatch([partial(_same, piece) for piece in cut], batch.num_graphs)
    statistics = _RunningStatistics(module)

    def make_and_encode(make: Callable[[], Batch]) -> Tensor:
        return encode(make())

    again: Any = partial(checkpoint, make_and_encode, use_reentrant=False, context_fn=statistics.only_before)
    again_needed = torch.is_grad_enabled() and len(batch.pieces) > 1
    rows = []
    with statistics.averaged():
        for make in batch.pieces:
            with statistics.of_piece():
                rows.append(again(make) if again_needed else make_and_encode(make))
    return torch.cat(rows)


def _same(piece: Batch) -> Batch:
    return piece


class _RunningStatistics:
    """The running statistics of all BatchNorm layers of a module that train."""

    def __init__(self, module: nn.Module) -> None:
        norms = [each for each in module.modules() if isinstance(each, _BatchNorm) and each.training]
        self._buffers = [each for norm in norms for each in norm.buffers(recurse=False)]

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Restore the statistics at the end."""
        before = [each.clone() for each in self._buffers]
        try:
            yield
        finally:
            self._set(before)

    def only_before(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return contexts of the first and the second forward pass; the second leaves the statistics as they are."""
        return nullcontext(), self.kept()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """At the end, set the statistics to the mean of those that the calls of `of_piece` left."""
        self._sums, self._count = [torch.zeros_like(each, dtype=torch.float64) for each in self._buffers], 0
        yield
        self._set([each / self._count for each in self._sums])

    @contextmanager
    def of_piece(self) -> Iterator[None]:
        """Start from the statistics before the batch."""
        with self.kept():
            yield
            self._count += 1
            for total, buffer in zip(self._sums, self._buffers, strict=True):
                total += buffer.detach()

    @torch.no_grad()
    def _set(self, values: list[Tensor]) -> None:
        for buffer, value in zip(self._buffers, values, strict=True):
            buffer.data.copy_(value)  # unseen by autograd, which saves the buffers but does not use them
