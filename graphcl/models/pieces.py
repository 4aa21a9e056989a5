"""Encode a batch piece by piece, so that the memory of a training step does not grow with the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Batch

from graphcl.graphs.batching import split


def encode_pieces(module: nn.Module, encode: Callable[[Batch], Tensor], batch: Batch, size: int) -> Tensor:
    r"""Return the rows `encode(piece)` of all pieces of a batch, without keeping what their gradients need.

    The forward pass keeps the rows only. The backward pass encodes each piece again, with the same random numbers, and
    adds its gradient. So the gradient is that of the whole batch, for about a third more time. A module without
    statistics of the batch gives the same rows as in one pass. BatchNorm normalises each piece by itself, and its
    running statistics move by the mean of the pieces' statistics, as with one rank per piece.

    Args:
        module: module whose BatchNorm layers `encode` uses.
        encode: function from a batch of P graphs to rows `[P, H]`.
        batch: B graphs.
        size: largest number of graphs in a piece; the pieces are of nearly equal size.

    References:
        Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", RepL4NLP 2021
        (arXiv 2101.06983). Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016 (arXiv 1604.06174).
    """
    number = -(-batch.num_graphs // size)
    sizes = [(batch.num_graphs + place) // number for place in range(number)]
    statistics = _RunningStatistics(module)
    rows = []
    with statistics.averaged():
        for piece in split(batch, sizes):
            with statistics.of_piece():
                rows.append(
                    checkpoint(
                        encode, piece, use_reentrant=False, context_fn=lambda: (nullcontext(), statistics.kept())
                    )
                    if torch.is_grad_enabled()
                    else encode(piece)
                )
    return torch.cat(rows)


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

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """At the end, set the statistics to the mean of those that the calls of `of_piece` left."""
        self._pieces: list[list[Tensor]] = []
        yield
        self._set([torch.stack(each).mean(0, dtype=torch.float64) for each in zip(*self._pieces, strict=True)])

    @contextmanager
    def of_piece(self) -> Iterator[None]:
        """Start from the statistics before the batch."""
        with self.kept():
            yield
            self._pieces.append([each.clone() for each in self._buffers])

    @torch.no_grad()
    def _set(self, values: list[Tensor]) -> None:
        for buffer, value in zip(self._buffers, values, strict=True):
            buffer.copy_(value)
