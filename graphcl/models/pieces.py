"""Encode a batch piece by piece, so that the memory of a training step does not grow with the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
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
            parts = [piece().get(key) for piece in self.pieces]
            self._entries[key] = None if parts[0] is None else torch.cat(parts)
        return self._entries[key]

    @property
    def y(self) -> Tensor | None:
        """Labels `[B]`."""
        return self.get("y")


def piece_sizes(count: int, size: int) -> list[int]:
    """Return sizes of at most `size` that differ by at most one and add up to `count`."""
    number = -(-count // size)
    return [(count + place) // number for place in range(number)]


def lazy(batch: Batch | LazyBatch, size: int) -> LazyBatch:
    """Return a batch in pieces of at most `size` graphs, of nearly equal size; a `LazyBatch` has its own."""
    if isinstance(batch, LazyBatch):
        return batch
    pieces = split(batch, piece_sizes(batch.num_graphs, size))
    return LazyBatch([partial(_identity, piece) for piece in pieces], batch.num_graphs)


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
    batch = lazy(batch, size)
    norms = [layer for layer in module.modules() if isinstance(layer, _BatchNorm) and layer.training]
    statistics = [buffer for norm in norms for buffer in norm.buffers(recurse=False)]
    sums = [torch.zeros_like(buffer, dtype=torch.float64) for buffer in statistics]

    def make_and_encode(make: Callable[[], Batch]) -> Tensor:
        return encode(make())

    encode_piece: Any = make_and_encode
    if torch.is_grad_enabled() and len(batch.pieces) > 1:
        encode_piece = partial(
            checkpoint,
            make_and_encode,
            use_reentrant=False,
            context_fn=lambda: (nullcontext(), _restored(statistics)),
        )
    rows = []
    for make in batch.pieces:
        with _restored(statistics):
            rows.append(encode_piece(make))
            for total, buffer in zip(sums, statistics, strict=True):
                total += buffer.detach()
    for total, buffer in zip(sums, statistics, strict=True):
        buffer.data.copy_(total / len(batch.pieces))
    return torch.cat(rows)


def _identity(piece: Batch) -> Batch:
    return piece


@contextmanager
def _restored(buffers: Sequence[Tensor]) -> Iterator[None]:
    """Restore `buffers` at the end, unseen by autograd, which saves them but does not use them."""
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        for buffer, value in zip(buffers, before, strict=True):
            buffer.data.copy_(value)
