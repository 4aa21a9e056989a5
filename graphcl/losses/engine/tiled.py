"""The tiled engine: reductions over negatives in memory O(N D), forward and backward.

A tile of similarities is made, used and forgotten; the backward pass makes it again. Sums of exponentials are kept as a
running maximum and a sum (online logsumexp), or, where the exponent's range on cosines is small, as a sum about a fixed
point. Each tile serves the anchors of its rows and, where those are keys of its columns, of its columns: the two
directions of a symmetric loss cost one pass, and negatives of an anchor's own view half a one.

On CUDA the tiles are Triton kernels (`engine.triton_tiles`), elsewhere PyTorch's operations on tiles that fit
the cache (`graphcl.losses.engine.torch_tiles`).

References:
    Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018 (arXiv 1805.02867). Cheng et al.,
    "Breaking the Memory Barrier: Near Infinite Batch Size Scaling for Contrastive Loss", 2024 (arXiv 2410.17243).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from graphcl.losses.engine.comparison import Comparison, LeftOut, Pairs, Reduction
from graphcl.losses.engine.dense import lay_out_rows
from graphcl.losses.engine.exponent import Exponent

ROW_ELEMENTS = 2**23
"""Similarities held at a time where whole rows are needed."""


@dataclass(frozen=True)
class Block:
    """Similarities between two sets, as the tiles go through them.

    Args:
        rows: number of the set that gives the rows.
        columns: number of the set that gives the columns.
        both: whether the columns are anchors too, with the rows as their keys.
        left_out: which pairs are no negatives, see `Comparison`.
    """

    rows: int
    columns: int
    both: bool
    left_out: LeftOut | None


@dataclass(frozen=True)
class Sums:
    """What the tiles have to compute.

    Args:
        comparison: who is compared with whom, its sets detached.
        exponents: one sum each.
        expected: whether the mean similarity under each sum's weights is wanted too.
    """

    comparison: Comparison
    exponents: tuple[Exponent, ...]
    expected: bool

    def small(self, exponent: Exponent) -> bool:
        """Whether e^P can be summed as it is: no overflow, and nothing lost in subnormal numbers."""
        return self.comparison.similarity == "cosine" and exponent.is_small

    @property
    def blocks(self) -> list[Block]:
        """The comparison's blocks, each pair of sets once."""
        against = self.comparison.against
        result = []
        for anchors, keys_of in enumerate(against):
            for keys, left_out in keys_of:
                back = keys < len(against) and (anchors, left_out) in against[keys]
                if not (back and keys < anchors):
                    result.append(Block(anchors, keys, back, left_out))
        return result


class Tiles(Protocol):
    """A module that computes sums and their gradients tile by tile."""

    def forward(self, sums: Sums) -> tuple[list[Tensor], list[Tensor]]:
        """For each set of anchors: logsumexps `[K, N]`, and expected similarities `[K, N]`."""

    def backward(
        self,
        sums: Sums,
        totals: list[Tensor],
        grad_totals: list[Tensor],
        grad_expected: list[Tensor],
        wanted: list[bool],
    ) -> list[Tensor | None]:
        """Gradients of the sets that are wanted."""


class TiledPairs(Pairs):
    """A comparison whose similarities are never held at once.

    Args:
        comparison: who is compared with whom.
        tiles: the module that does the work.
    """

    def __init__(self, comparison: Comparison, tiles: Tiles) -> None:
        super().__init__(comparison)
        self._tiles = tiles

    def logsumexp(self, *exponents: Exponent) -> tuple[Tensor, ...]:
        """See `Pairs`."""
        if self.comparison.similarity == "squared_distance":
            return tuple(self.rows(lambda row, e=each: row.logsumexp(e(row.value))) for each in exponents)
        return tuple(self._sums(exponents, expected=False)[0])

    def expectation(self, exponent: Exponent) -> tuple[Tensor, Tensor]:
        """See `Pairs`."""
        frozen = Exponent((), exponent.total, exponent.center)
        totals, expected = self._sums((frozen,), expected=True)
        return expected[0], totals[0]

    def moments(self) -> tuple[Tensor, Tensor]:
        """See `Pairs`; from sums over the keys alone, in O(N D^2) and without any tile.

        sum_j c_ij = a_i . sum_j k_j, and sum_j (c_ij - a_i . m)^2 = a_i' C a_i with the keys' mean m and scatter C.
        """
        comparison = self.comparison
        every = [self._moments_of(anchors) for anchors in range(len(comparison.against))]
        mean, variance = (torch.cat(each) for each in zip(*every, strict=True))
        return mean, variance

    def _moments_of(self, anchors: int) -> tuple[Tensor, Tensor]:
        comparison = self.comparison
        x = comparison.sets[anchors]
        center, total, scatter = self._moments_of_keys([number for number, _ in comparison.against[anchors]])
        # Of the similarities less a_i . center, which keeps the second moment from cancelling.
        first, second = x @ total, ((x @ scatter) * x).sum(dim=1)
        for number, left_out in comparison.against[anchors]:
            if left_out == "diagonal":
                own = (x * (comparison.sets[number] - center)).sum(dim=1)
                first, second = first - own, second - own.square()
            elif left_out == "ids":
                row, key = _same_pairs(comparison)
                own = (x[row] * (comparison.sets[number][key] - center)).sum(dim=1)
                first, second = first.index_add(0, row, -own), second.index_add(0, row, -own.square())
        count = self._count_of(anchors).clamp(min=1)
        mean = first / count
        return mean + x @ center, (second / count - mean.square()).clamp(min=0)

    def _moments_of_keys(self, sets: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Of all rows of some sets: a center `[D]`, and about it their sum `[D]` and scatter `[D, D]`."""
        keys = torch.cat([self.comparison.sets[number] for number in sets])
        center = keys.mean(dim=0)
        keys = keys - center
        return center, keys.sum(dim=0), keys.T @ keys

    def rows(self, function: Reduction, *per_anchor: Tensor) -> Tensor:
        """See `Pairs`; a chunk of whole rows at a time, made again in the backward pass."""
        comparison = self.comparison
        results = []
        n = comparison.sets[0].size(0)
        for anchors, against in enumerate(comparison.against):
            columns = sum(comparison.sets[keys].size(0) for keys, _ in against)
            step = max(1, ROW_ELEMENTS // columns)
            for start in range(0, n, step):
                rows = slice(start, min(start + step, n))
                mine = slice(anchors * n + rows.start, anchors * n + rows.stop)
                chunk = partial(_chunk, function, comparison, anchors, rows)
                given = [each[mine] for each in per_anchor]
                results.append(checkpoint(chunk, *comparison.sets, *given, use_reentrant=False))
        return torch.cat(results)

    def _sums(self, exponents: tuple[Exponent, ...], expected: bool) -> tuple[Tensor, Tensor]:
        sums = Sums(self.comparison, exponents, expected)
        apply: Callable[..., tuple[Tensor, Tensor]] = _TiledSums.apply
        totals, means = apply(sums, self._tiles, *self.comparison.sets)
        return totals if self.comparison.ids is None else totals.masked_fill(self.alone, 0.0), means


def tiles(some: Tensor) -> Tiles:
    """The tiles for a tensor: Triton kernels for float32 on CUDA if Triton is installed, else PyTorch's operations."""
    if some.is_cuda and some.dtype == torch.float32 and importlib.util.find_spec("triton") is not None:
        from graphcl.losses.engine import triton_tiles

        return triton_tiles
    from graphcl.losses.engine import torch_tiles

    return torch_tiles


class _TiledSums(torch.autograd.Function):
    """Logsumexps `[K, A]` and expected similarities `[K, A]` of all anchors."""

    @staticmethod
    def forward(ctx: Any, sums: Sums, tiles: Tiles, *sets: Tensor) -> tuple[Tensor, Tensor]:
        totals, expected = tiles.forward(sums)
        ctx.save_for_backward(*sets, *totals)
        # Without the sets, which are saved above: with their history, they would close a circle.
        ctx.sums = replace(sums, comparison=replace(sums.comparison, sets=()))
        ctx.tiles = tiles
        return torch.cat(totals, dim=1), torch.cat(expected, dim=1)

    @staticmethod
    def backward(ctx: Any, grad_totals: Tensor, grad_expected: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # `create_graph=True`; what follows would pass for constants, silently
            raise RuntimeError("the tiled engine has no second derivative; pass `engine='dense'` to the loss.")
        kinds = len(ctx.sums.comparison.against)
        sets, totals = ctx.saved_tensors[:-kinds], list(ctx.saved_tensors[-kinds:])
        sums = replace(ctx.sums, comparison=replace(ctx.sums.comparison, sets=sets))
        n = sets[0].size(0)
        with torch.autocast(sets[0].device.type, enabled=False):
            gradients = ctx.tiles.backward(
                sums,
                totals,
                list(grad_totals.split(n, dim=1)),
                list(grad_expected.split(n, dim=1)),
                list(ctx.needs_input_grad[2:]),
            )
        return None, None, *gradients


def _chunk(function: Reduction, comparison: Comparison, anchors: int, rows: slice, *tensors: Tensor) -> Tensor:
    sets, per_anchor = tensors[: len(comparison.sets)], tensors[len(comparison.sets) :]
    return function(lay_out_rows(replace(comparison, sets=sets), anchors, rows), *per_anchor)


def _same_pairs(comparison: Comparison) -> tuple[Tensor, Tensor]:
    """Positions (anchor, key) of equal ids, a few rows at a time."""
    assert comparison.ids is not None
    step = max(1, ROW_ELEMENTS // max(1, comparison.ids[1].numel()))
    starts = range(0, comparison.ids[0].numel(), step)
    found = [comparison.same_ids(slice(start, start + step)).nonzero() for start in starts]
    found = [torch.stack([each[:, 0] + start, each[:, 1]], dim=1) for start, each in zip(starts, found, strict=True)]
    row, key = torch.cat(found).unbind(dim=1)
    return row, key
