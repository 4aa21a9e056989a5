"""The engine `tiled`: reductions over negatives in memory O(N D), forward and backward.

A tile (a block of the matrix of similarities) is computed, reduced and discarded; the backward pass recomputes it.
Sums of exponentials are kept as a running maximum and a sum (online logsumexp), or as a plain sum if the exponent is
small on all cosines. One tile serves the anchors of its rows and, if its columns are anchors too, the anchors of its
columns. The two directions of a symmetric loss thus take one pass, and negatives from an anchor's own view half a pass.

Float32 on CUDA uses Triton kernels (`graphcl.losses.triton_tiles`) if Triton is installed. Otherwise the tiles fit the
CPU cache. Their products are PyTorch operations; the rest is in compiled loops (`graphcl.losses.native`) for float32 on
the CPU, and PyTorch operations otherwise.

References:
    Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018 (arXiv 1805.02867). Cheng et al.,
    "Breaking the Memory Barrier: Near Infinite Batch Size Scaling for Contrastive Loss", 2024 (arXiv 2410.17243).
"""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from graphcl.losses import native
from graphcl.losses.pairs import (
    Coefficients,
    Comparison,
    Exponent,
    Mask,
    Pairs,
    Row,
    RowFunction,
    Sums,
    off_diagonal,
    without_autocast,
)

TILE = 512
"""Number of rows and of columns of a tile: 1 MB in float32, so that a few tiles fit the L2 cache of a CPU."""
ROW_ELEMENTS = 2**23
"""Largest number of similarities that `TiledPairs.rows` holds at once."""


class TiledPairs(Pairs):
    """`Pairs` that compute similarities tile by tile, in memory O(N D)."""

    def logsumexp(self, *exponents: Exponent) -> tuple[Tensor, ...]:
        """Return the logsumexps of the negatives, see `Pairs`."""
        if self.comparison.similarity == "squared_distance":
            return super().logsumexp(*exponents)
        constant = tuple(exponent.constant() for exponent in exponents)
        totals = sum_negatives(self, constant, expected=False)[0]
        if not any(exponent.is_learned for exponent in exponents):
            return tuple(totals)
        with torch.no_grad():
            means = sum_negatives(self, constant, expected=True)[1]
        return tuple(exponent.varied(*sums) for exponent, *sums in zip(exponents, totals, means, strict=True))

    def expectation(self, exponent: Exponent) -> tuple[Tensor, Tensor]:
        """Return weighted means and logs of the sums of weights, see `Pairs.expectation`."""
        (total,), (mean,) = sum_negatives(self, (exponent,), expected=True)
        return mean, total

    def rows(self, function: RowFunction, *per_anchor: Tensor) -> Tensor:
        """Apply `function` to chunks of anchors, see `Pairs.rows`. The backward pass recomputes each chunk."""
        sets, results = self.comparison.sets, []
        n = sets[0].size(0)
        for anchors, key_sets in enumerate(self.comparison.key_sets):
            step = max(1, ROW_ELEMENTS // sum(sets[keys].size(0) for keys, _ in key_sets))
            for start in range(0, n, step):
                rows = slice(start, min(start + step, n))
                chunk = partial(_reduce_chunk, function, self.comparison, anchors, rows)
                entries = [values[anchors * n + start : anchors * n + rows.stop] for values in per_anchor]
                results.append(checkpoint(chunk, *sets, *entries, use_reentrant=False))
        return torch.cat(results)


def _reduce_chunk(function: RowFunction, comparison: Comparison, anchors: int, rows: slice, *tensors: Tensor) -> Tensor:
    """Return `function` of a slice `rows` of the anchors in set `anchors`; `tensors` are all sets and its arguments."""
    sets, per_anchor = tensors[: len(comparison.sets)], tensors[len(comparison.sets) :]
    x, start = sets[anchors][rows], rows.start
    values: list[Tensor] = []
    earlier: list[Tensor] = []
    kept = None
    for keys, mask in comparison.key_sets[anchors]:
        y = sets[keys]
        if mask == "diagonal" and start:
            # Start with the key at `start`, so that the excluded pairs lie on the diagonal. The earlier keys are
            # appended at the end, which keeps the cyclic order.
            earlier.append(comparison.similarities(x, y[:start]))
            y = y[start:]
        block = comparison.similarities(x, y)
        values.append(off_diagonal(block) if mask == "diagonal" else block)
        if mask == "ids":
            before, after = (sum(value.size(1) for value in blocks) for blocks in (values[:-1], earlier))
            kept = torch.nn.functional.pad(~comparison.same_ids(rows), (before, after), value=True)
    values += earlier
    return function(Row(torch.cat(values, dim=1) if len(values) > 1 else values[0], kept), *per_anchor)


# -- sums over tiles ---------------------------------------------------------------------------------------------------


def sum_negatives(
    pairs: Pairs, exponents: tuple[Exponent, ...], expected: bool, dense: bool = False
) -> tuple[Tensor, Tensor]:
    """Return logsumexps over the negatives and, if `expected`, mean similarities, `[K, A]` each; see `Sums`.

    With `dense`, the similarities are kept for the gradient, and there are second derivatives.
    """
    if expected:
        exponents = tuple(Exponent((), exponent.total, exponent.center) for exponent in exponents)
    apply: Callable[..., tuple[Tensor, Tensor]] = _TiledSums.apply
    totals, means = apply(Sums(pairs.comparison, exponents, expected, [] if dense else None), *pairs.comparison.sets)
    return totals if pairs.comparison.ids is None else totals.masked_fill(pairs.isolated, 0.0), means


class _TiledSums(torch.autograd.Function):
    """Autograd function for logsumexps and mean similarities, `[K, A]` each, of K exponents and A anchors."""

    @staticmethod
    def forward(ctx: Any, sums: Sums, *sets: Tensor) -> tuple[Tensor, Tensor]:
        sum_tiles, ctx.differentiate_tiles = tiles(sums.comparison)
        totals, means = sum_tiles(sums)
        ctx.save_for_backward(totals, *sets, *(sums.held or ()))
        # Drop the sets, which are saved above: keeping them here would create a reference cycle.
        ctx.sums = replace(sums, comparison=replace(sums.comparison, sets=(), positive=None), held=None)
        ctx.dense = sums.held is not None
        return totals, means

    @staticmethod
    def backward(ctx: Any, grad_totals: Tensor, grad_means: Tensor) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[1:]
        totals, *others = ctx.saved_tensors
        sets, held = tuple(others[: len(needed)]), others[len(needed) :] if ctx.dense else None
        sums = replace(ctx.sums, comparison=replace(ctx.sums.comparison, sets=sets), held=held)
        upstream = grad_means if sums.expected else grad_totals
        with without_autocast(totals):
            batched = ctx.dense and native.is_batched(upstream)
            if not torch.is_grad_enabled() and not batched:
                return None, *ctx.differentiate_tiles(sums, totals, upstream, needed)
            if not ctx.dense:  # `create_graph=True` would return a constant
                raise RuntimeError("the tiled engine has no second derivative; pass `engine='dense'` to the loss.")
            with torch.enable_grad():
                row, exponents = sums.comparison.row(), sums.exponents
                outputs = [row.expectation(p)[0] if sums.expected else row.logsumexp(p(row.value)) for p in exponents]
            sources = [rows for rows, wanted in zip(sets, needed, strict=True) if wanted]
            # The sum of an exponent without a differentiated part is a constant.
            terms = [(out, up) for out, up in zip(outputs, upstream, strict=True) if out.requires_grad]
            of_terms, gradients = zip(*terms, strict=True)
            more = {"create_graph": torch.is_grad_enabled(), "allow_unused": True}
            slopes = iter(torch.autograd.grad(of_terms, sources, gradients, **more))
            return None, *(next(slopes) if wanted else None for wanted in needed)


def tiles(comparison: Comparison) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the passes to use: those of Triton for float32 on CUDA, of compiled loops, or `forward` and `backward`."""
    some = comparison.sets[0]
    if some.is_cuda and some.dtype == torch.float32 and importlib.util.find_spec("triton") is not None:
        from graphcl.losses import triton_tiles  # imports Triton, which takes time

        return triton_tiles.forward, triton_tiles.backward
    return (compiled_forward, compiled_backward) if compiled(comparison) else (forward, backward)


# -- tiles in compiled loops: for float32 on the CPU -------------------------------------------------------------------


def compiled(comparison: Comparison) -> bool:
    """Return whether compiled loops can sum over the negatives."""
    sets = comparison.sets
    return comparison.similarity != "squared_distance" and native.takes(*sets) and all(z.dim() == 2 for z in sets)


def compiled_forward(sums: Sums) -> tuple[Tensor, Tensor]:
    """Return the results of `forward`."""
    some, kinds = sums.comparison.sets[0], len(sums.exponents)
    n, anchors = some.size(0), some.size(0) * len(sums.comparison.key_sets)
    state = some.new_zeros(3, kinds, anchors)
    for k, exponent in enumerate(sums.exponents):
        if not _small(sums, exponent):
            state[1, k] = torch.finfo(some.dtype).min
    at = state.data_ptr()
    for tile, similarity, _ in _tiles(sums, 1):
        for k, exponent in enumerate(sums.exponents):
            places = [at + 4 * (k * anchors + number * n + part.start) for number, part, _ in tile.sides]
            native.loops.sums(tile.form(sums, exponent, similarity), places[0], places[-1], kinds * anchors)
    native.loops.finish(at, kinds * anchors)
    return state[0], state[2]


def compiled_backward(sums: Sums, totals: Tensor, upstream: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
    """Return the results of `backward`."""
    sets, n, anchors = sums.comparison.sets, sums.comparison.sets[0].size(0), totals.size(1)
    gradients = [torch.zeros_like(rows) if want else None for rows, want in zip(sets, wanted, strict=True)]
    anchored = (totals := totals.contiguous()).data_ptr(), (upstream := upstream.contiguous()).data_ptr()
    sloping = [k for k, slope in enumerate(sums.slopes) if any(slope)]
    for tile, similarity, (gradient,) in _tiles(sums, 2):
        for k in sloping:
            offsets = [4 * (k * anchors + number * n + part.start) for number, part, _ in tile.sides]
            places = [at + offset for offset in (offsets[0], offsets[-1]) for at in anchored]
            form, slope = tile.form(sums, sums.exponents[k], similarity), (*sums.slopes[k], 0.0, 0.0, 0.0)[:4]
            native.loops.slopes(form, slope, *places, gradient.data_ptr(), k == sloping[0])
        tile.add_products(sets, gradient, gradients)
    return gradients


# -- tiles in PyTorch operations: for float64, and where there are no other kernels -----------------------------------


def forward(sums: Sums) -> tuple[Tensor, Tensor]:
    """Return two sums over the negatives of each of the A anchors, for each of the K exponents P of `sums`.

    Returns:
        The logs of the sums of e^P, and the means of the similarities with weights e^P, `[K, A]` each. The means are
        valid only if `sums.expected`.
    """
    some = sums.comparison.sets[0]
    shape = len(sums.exponents), some.size(0)
    anchors = range(len(sums.comparison.key_sets))
    # Online logsumexp: for each anchor, `highest` is the running maximum of P (0 for small exponents), `total` the sum
    # of the weights e^(P - highest) and `moment` the sum of the weighted similarities.
    lowest = torch.finfo(some.dtype).min  # finite, as -inf minus itself would be NaN
    starts = [0.0 if _small(sums, exponent) else lowest for exponent in sums.exponents]
    highest = [torch.stack([some.new_full(shape[1:], start) for start in starts]) for _ in anchors]
    total = [some.new_zeros(shape) for _ in anchors]
    moment = [some.new_zeros(shape) for _ in anchors]
    for tile, similarity, (first, second, third) in _tiles(sums, 4):
        for k, exponent in enumerate(sums.exponents):
            value = _evaluate(exponent.total, exponent.center, similarity, out=first)
            small = _small(sums, exponent)
            tile.fill_masked(sums, value.exp_() if small else value, 0.0 if small else -torch.inf)
            for number, part, axis in tile.sides:
                weight = value
                if not small:
                    before = highest[number][k, part]
                    now = torch.maximum(before, value.amax(dim=axis))
                    shrink = (before - now).exp()
                    total[number][k, part] *= shrink
                    moment[number][k, part] *= shrink
                    highest[number][k, part] = now
                    weight = torch.sub(value, now.unsqueeze(axis), out=second).exp_()
                total[number][k, part] += weight.sum(dim=axis)
                if sums.expected:
                    moment[number][k, part] += torch.mul(weight, similarity, out=third).sum(dim=axis)
    weights = torch.cat(total, dim=1)
    means = torch.where(weights > 0, torch.cat(moment, dim=1) / weights, 0.0)
    return weights.log() + torch.cat(highest, dim=1), means


def backward(sums: Sums, totals: Tensor, upstream: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
    """Return the gradient with respect to each set of rows.

    Args:
        sums: sums to differentiate.
        totals: logsumexps returned by `forward`.
        upstream: gradients with respect to the means if `sums.expected`, else to the logsumexps, `[K, A]`.
        wanted: whether the gradient of each set is needed; the result is None if not.
    """
    sets = sums.comparison.sets
    gradients = [torch.zeros_like(rows) if want else None for rows, want in zip(sets, wanted, strict=True)]
    # The total of an anchor without negatives is -inf; replace it by 0 so that its gradient is 0 instead of NaN.
    total = totals.masked_fill(totals.isinf(), 0.0).split(sets[0].size(0), dim=1)
    up = upstream.split(sets[0].size(0), dim=1)
    for tile, similarity, (gradient, first, weights, third) in _tiles(sums, 5):
        gradient.zero_()
        for k, (exponent, slope) in enumerate(zip(sums.exponents, sums.slopes, strict=True)):
            if not any(slope):
                continue
            value = _evaluate(exponent.total, exponent.center, similarity, out=first)
            weights.zero_()
            if _small(sums, exponent):
                for number, part, axis in tile.sides:
                    weights += (up[number][k, part] * (-total[number][k, part]).exp()).unsqueeze(axis)
                weights *= value.exp_()
            else:
                for number, part, axis in tile.sides:
                    weight = torch.sub(value, total[number][k, part].unsqueeze(axis), out=third)
                    weights.addcmul_(weight.exp_(), up[number][k, part].unsqueeze(axis))
            if len(slope) == 1:
                gradient.add_(weights, alpha=slope[0])
            else:
                gradient.addcmul_(weights, _evaluate(slope, exponent.center, similarity, out=value))
        tile.fill_masked(sums, gradient, 0.0)
        tile.add_products(sets, gradient, gradients)
    return gradients


@dataclass(frozen=True)
class _Tile:
    """One tile: the similarities of a slice of one set (the rows) and a slice of another set (the columns).

    Rows and columns are an index of a set and a slice of this set. With `both`, the columns are anchors too.
    """

    rows: tuple[int, slice]
    columns: tuple[int, slice]
    both: bool
    mask: Mask | None

    @property
    def sides(self) -> list[tuple[int, slice, int]]:
        """Index and slice of each set of anchors in the tile, and the tile's axis of their negatives."""
        return [(*self.rows, 1), (*self.columns, 0)] if self.both else [(*self.rows, 1)]

    def form(self, sums: Sums, exponent: Exponent, similarity: Tensor) -> tuple[float, ...]:
        """Return the tile as the compiled loops take it."""
        rows, columns = self.rows[1], self.columns[1]
        ids, diagonal = (0, 0), self.mask == "diagonal" and rows == columns
        if self.mask == "ids" and sums.comparison.ids is not None:
            ids = sums.comparison.ids[0][rows].data_ptr(), sums.comparison.ids[1][columns].data_ptr()
        total, flags = exponent.total, (diagonal, _small(sums, exponent), self.both)
        form = similarity.data_ptr(), *similarity.shape, *ids, *flags, exponent.center, *total
        return *form, *[0.0] * (5 - len(total))

    def add_products(self, sets: Sequence[Tensor], gradient: Tensor, into: Sequence[Tensor | None]) -> None:
        """Add the gradients by the tile's rows and columns; `gradient` is that by the similarities."""
        (rows, row_part), (columns, column_part) = self.rows, self.columns
        if (of_rows := into[rows]) is not None:
            of_rows[row_part].addmm_(gradient, sets[columns][column_part])
        if (of_columns := into[columns]) is not None:
            of_columns[column_part].addmm_(gradient.T, sets[rows][row_part])

    def fill_masked(self, sums: Sums, values: Tensor, filler: float) -> None:
        """Set the entries of `values` that are not negatives to `filler`, in place."""
        rows, columns = self.rows[1], self.columns[1]
        if self.mask == "diagonal" and rows == columns:
            values.fill_diagonal_(filler)
        elif self.mask == "ids":
            values.masked_fill_(sums.comparison.same_ids(rows, columns), filler)


def _tiles(sums: Sums, count: int) -> Iterator[tuple[_Tile, Tensor, list[Tensor]]]:
    """Yield each tile with its similarities, and `count` - 1 uninitialised tensors of this size.

    All tiles share the memory of these tensors, which thus stays in the CPU cache, except similarities that are held.
    """
    sets, key_sets, held = sums.comparison.sets, sums.comparison.key_sets, sums.held
    some, kept = sets[0], iter(held or ())
    elements = TILE * TILE if held is None else min(TILE, some.size(0)) * min(TILE, max(map(len, sets)))
    buffers = [some.new_empty(elements) for _ in range(count - (held is not None))]
    for anchors, (keys, mask) in ((anchors, key_set) for anchors, of in enumerate(key_sets) for key_set in of):
        both = keys < len(key_sets) and (anchors, mask) in key_sets[keys]
        if both and keys < anchors:
            continue  # the other direction of the same matrix
        within = anchors == keys
        for top in range(0, some.size(0), TILE):
            rows, x = slice(top, top + TILE), sets[anchors][top : top + TILE]
            # Within one set the matrix is symmetric, so the tiles of the upper triangle suffice.
            for left in range(top if within else 0, sets[keys].size(0), TILE):
                columns, y = slice(left, left + TILE), sets[keys][left : left + TILE]
                tile = _Tile((anchors, rows), (keys, columns), both and not (within and left == top), mask)
                size = x.size(0), y.size(0)
                work = [buffer[: size[0] * size[1]].view(size) for buffer in buffers]
                if held is None:
                    similarity = torch.mm(x, y.T, out=work.pop())
                elif (before := next(kept, None)) is not None:
                    similarity = before
                else:
                    similarity = x @ y.T
                    held.append(similarity)
                yield tile, similarity, work


def _small(sums: Sums, exponent: Exponent) -> bool:
    """Return whether e^P, with P = `exponent`, can neither overflow nor underflow and needs no running maximum."""
    return sums.comparison.similarity == "cosine" and exponent.is_small


def _evaluate(coefficients: Coefficients, center: float, c: Tensor, out: Tensor) -> Tensor:
    """Write to `out` the polynomial in powers of c - `center`, evaluated at `c`, and return `out`."""
    if len(coefficients) < 3:
        low, factor = (*coefficients, 0.0, 0.0)[:2]
        torch.mul(c, factor, out=out)
        return out.add_(low - factor * center) if low or center else out
    offset = c - center if center else c
    torch.mul(offset, coefficients[-1], out=out)
    for coefficient in coefficients[-2:0:-1]:
        out.add_(coefficient).mul_(offset)
    return out.add_(coefficients[0]) if coefficients[0] else out
