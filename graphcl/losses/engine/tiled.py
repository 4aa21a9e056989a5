"""The tiled engine: reductions over negatives in memory O(N D), forward and backward.

A tile (a block of the matrix of similarities) is computed, reduced and discarded; the backward pass recomputes it.
Sums of exponentials are kept as a running maximum and a sum (online logsumexp), or as a plain sum if the exponent is
small on all cosines. One tile serves the anchors of its rows and, if its columns are anchors too, the anchors of its
columns. The two directions of a symmetric loss thus take one pass, and negatives from an anchor's own view half a pass.

Float32 on CUDA uses Triton kernels (`graphcl.losses.engine.triton_tiles`) if Triton is installed. Otherwise the tiles
are computed by PyTorch operations and fit the CPU cache (`graphcl.losses.engine.torch_tiles`).

References:
    Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018 (arXiv 1805.02867). Cheng et al.,
    "Breaking the Memory Barrier: Near Infinite Batch Size Scaling for Contrastive Loss", 2024 (arXiv 2410.17243).
"""

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from graphcl.losses.engine import torch_tiles
from graphcl.losses.engine.base import Comparison, Pairs, RowFunction, Sums, Tiles
from graphcl.losses.engine.dense import similarity_rows
from graphcl.losses.engine.exponent import Exponent

ROW_ELEMENTS = 2**23
"""Largest number of similarities that `TiledPairs.rows` holds at once."""


class TiledPairs(Pairs):
    """`Pairs` that compute similarities tile by tile, in memory O(N D).

    Args:
        comparison: sets of anchors and keys to compare.
        tiles: implementation of the tiles.
    """

    def __init__(self, comparison: Comparison, tiles: Tiles) -> None:
        super().__init__(comparison)
        self._tiles = tiles

    @property
    def _count(self) -> Tensor:
        return torch.cat([self._count_of(anchors) for anchors in range(len(self.comparison.key_sets))])

    def _count_of(self, anchors: int) -> Tensor:
        comparison, rows = self.comparison, self.comparison.sets[anchors]
        total = sum(comparison.sets[keys].size(0) - (mask == "diagonal") for keys, mask in comparison.key_sets[anchors])
        count = rows.new_full((rows.size(0),), total)
        if comparison.ids is None:
            return count
        # Sort instead of comparing all pairs.
        ids, ordered = comparison.ids[0], comparison.ids[1].sort().values
        return count - (torch.searchsorted(ordered, ids, right=True) - torch.searchsorted(ordered, ids))

    def logsumexp(self, *exponents: Exponent) -> tuple[Tensor, ...]:
        """Return the logsumexps of the negatives, see `Pairs`."""
        if self.comparison.similarity == "squared_distance":
            return tuple(self.rows(lambda row, e=each: row.logsumexp(e(row.value))) for each in exponents)
        constant = tuple(each.constant() for each in exponents)
        totals = self._sums(constant, expected=False)[0]
        if not any(each.is_learned for each in exponents):
            return tuple(totals)
        with torch.no_grad():
            means = self._sums(constant, expected=True)[1]
        return tuple(each.varied(*sums) for each, *sums in zip(exponents, totals, means, strict=True))

    def expectation(self, exponent: Exponent) -> tuple[Tensor, Tensor]:
        """Return weighted means and logs of the sums of weights, see `Pairs.expectation`."""
        frozen = Exponent((), exponent.total, exponent.center)
        totals, expected = self._sums((frozen,), expected=True)
        return expected[0], totals[0]

    def rows(self, function: RowFunction, *per_anchor: Tensor) -> Tensor:
        """Apply `function` to chunks of anchors, see `Pairs.rows`. The backward pass recomputes each chunk."""
        comparison = self.comparison
        results = []
        n = comparison.sets[0].size(0)
        for anchors, key_sets in enumerate(comparison.key_sets):
            columns = sum(comparison.sets[keys].size(0) for keys, _ in key_sets)
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
        return totals if self.comparison.ids is None else totals.masked_fill(self.isolated, 0.0), means


def tiles(some: Tensor) -> Tiles:
    """Return the implementation for tensors like `some`: Triton for float32 on CUDA if installed, else PyTorch."""
    if some.is_cuda and some.dtype == torch.float32 and importlib.util.find_spec("triton") is not None:
        from graphcl.losses.engine import triton_tiles  # imports Triton, which takes time

        return triton_tiles
    return torch_tiles


class _TiledSums(torch.autograd.Function):
    """Autograd function for logsumexps and mean similarities, `[K, A]` each, of K exponents and A anchors."""

    @staticmethod
    def forward(ctx: Any, sums: Sums, tiles: Tiles, *sets: Tensor) -> tuple[Tensor, Tensor]:
        totals, expected = tiles.forward(sums)
        ctx.save_for_backward(*sets, *totals)
        # Drop the sets, which are saved above: keeping them here would create a reference cycle.
        ctx.sums = replace(sums, comparison=replace(sums.comparison, sets=()))
        ctx.tiles = tiles
        return torch.cat(totals, dim=1), torch.cat(expected, dim=1)

    @staticmethod
    def backward(ctx: Any, grad_totals: Tensor, grad_expected: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # `create_graph=True` would return a constant
            raise RuntimeError("the tiled engine has no second derivative; pass `engine='dense'` to the loss.")
        kinds = len(ctx.sums.comparison.key_sets)
        sets, totals = ctx.saved_tensors[:-kinds], list(ctx.saved_tensors[-kinds:])
        sums = replace(ctx.sums, comparison=replace(ctx.sums.comparison, sets=sets))
        n = sets[0].size(0)
        with torch.autocast(sets[0].device.type, enabled=False):
            upstream = (grad_expected if sums.expected else grad_totals).split(n, dim=1)
            gradients = ctx.tiles.backward(sums, totals, list(upstream), list(ctx.needs_input_grad[2:]))
        return None, None, *gradients


def _chunk(function: RowFunction, comparison: Comparison, anchors: int, rows: slice, *tensors: Tensor) -> Tensor:
    sets, per_anchor = tensors[: len(comparison.sets)], tensors[len(comparison.sets) :]
    return function(similarity_rows(replace(comparison, sets=sets), anchors, rows), *per_anchor)
