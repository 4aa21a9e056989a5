"""Tiles of the tiled engine in PyTorch operations, for the CPU, for float64 and for devices without Triton."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcl.losses.engine.comparison import Mask
from graphcl.losses.engine.exponent import Coefficients
from graphcl.losses.engine.sums import Sums

TILE = 512
"""Number of rows and of columns of a tile: 1 MB in float32, so that a few tiles fit the L2 cache of a CPU."""


@dataclass(frozen=True)
class Tile:
    """One tile: the similarities of a slice of one set (the rows) and a slice of another set (the columns).

    Args:
        rows: index of the set that gives the rows, and a slice of this set.
        columns: index of the set that gives the columns, and a slice of this set.
        both: whether the columns are anchors too.
        mask: pairs that are not negatives.
    """

    rows: tuple[int, slice]
    columns: tuple[int, slice]
    both: bool
    mask: Mask | None

    @property
    def sides(self) -> list[tuple[int, slice, int]]:
        """Sets of anchors in the tile: the rows, and also the columns if they are anchors.

        Each entry has three parts: the index of a set, a slice of this set, and the tile's axis of the negatives.
        """
        return [(*self.rows, 1), (*self.columns, 0)] if self.both else [(*self.rows, 1)]

    def fill_masked(self, sums: Sums, values: Tensor, filler: float) -> None:
        """Set the entries of `values` that are not negatives to `filler`, in place."""
        rows, columns = self.rows[1], self.columns[1]
        if self.mask == "diagonal" and rows.start < columns.stop and columns.start < rows.stop:
            values.diagonal(rows.start - columns.start).fill_(filler)
        elif self.mask == "ids":
            values.masked_fill_(sums.comparison.same_ids(rows, columns), filler)


def forward(sums: Sums) -> tuple[list[Tensor], list[Tensor]]:
    """Return logsumexps and mean similarities, see `Tiles`."""
    some = sums.comparison.sets[0]
    shape = len(sums.exponents), some.size(0)
    anchors = range(len(sums.comparison.key_sets))
    # Online logsumexp: for each anchor, `highest` is the running maximum of P (0 for small exponents), `total` the sum
    # of the weights e^(P - highest) and `moment` the sum of the weighted similarities.
    lowest = torch.finfo(some.dtype).min  # finite, as -inf minus itself would be NaN
    start = some.new_tensor([0.0 if sums.small(exponent) else lowest for exponent in sums.exponents])
    highest = [start[:, None].repeat(1, some.size(0)) for _ in anchors]
    total = [some.new_zeros(shape) for _ in anchors]
    moment = [some.new_zeros(shape) for _ in anchors]
    work = _Workspace(some)
    for tile in _tiles(sums):
        similarity = _similarity(sums, tile, work)
        for k, exponent in enumerate(sums.exponents):
            value = _evaluate(exponent.total, exponent.center, similarity, out=work.like(similarity, 1))
            small = sums.small(exponent)
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
                    weight = torch.sub(value, now.unsqueeze(axis), out=work.like(value, 2)).exp_()
                total[number][k, part] += weight.sum(dim=axis)
                if sums.expected:
                    product = torch.mul(weight, similarity, out=work.like(value, 3))
                    moment[number][k, part] += product.sum(dim=axis)
    expected = [torch.where(each > 0, of_set / each, 0.0) for of_set, each in zip(moment, total, strict=True)]
    return [each.log() + of_set for each, of_set in zip(total, highest, strict=True)], expected


def backward(
    sums: Sums, totals: list[Tensor], grad_totals: list[Tensor], grad_expected: list[Tensor], wanted: list[bool]
) -> list[Tensor | None]:
    """Return the gradients of the sets, see `Tiles`."""
    sets = sums.comparison.sets
    gradients = [torch.zeros_like(each) if want else None for each, want in zip(sets, wanted, strict=True)]
    # For anchor i and similarity c_ij, d total_i / d c_ij = e^(P - total_i) P', and d expected_i / d c_ij =
    # e^(P - total_i), as weights are constants.
    upstream = grad_expected if sums.expected else grad_totals
    # The total of an anchor without negatives is -inf; replace it by 0 so that its gradient is 0 instead of NaN.
    totals = [total.masked_fill(total.isinf(), 0.0) for total in totals]
    work = _Workspace(sets[0])
    for tile in _tiles(sums):
        similarity = _similarity(sums, tile, work)
        gradient = work.like(similarity, 1).zero_()
        for k, exponent in enumerate(sums.exponents):
            slope = (1.0,) if sums.expected else exponent.slope
            if not any(slope):
                continue
            value = _evaluate(exponent.total, exponent.center, similarity, out=work.like(similarity, 2))
            weights = work.like(similarity, 3).zero_()
            if sums.small(exponent):
                for number, part, axis in tile.sides:
                    weights += (upstream[number][k, part] * (-totals[number][k, part]).exp()).unsqueeze(axis)
                weights *= value.exp_()
            else:
                for number, part, axis in tile.sides:
                    weight = torch.sub(value, totals[number][k, part].unsqueeze(axis), out=work.like(value, 4))
                    weights.addcmul_(weight.exp_(), upstream[number][k, part].unsqueeze(axis))
            if len(slope) == 1:
                gradient.add_(weights, alpha=slope[0])
            else:
                gradient.addcmul_(weights, _evaluate(slope, exponent.center, similarity, out=value))
        tile.fill_masked(sums, gradient, 0.0)
        (rows, row_part), (columns, column_part) = tile.rows, tile.columns
        if (into := gradients[rows]) is not None:
            into[row_part].addmm_(gradient, sets[columns][column_part])
        if (into := gradients[columns]) is not None:
            into[column_part].addmm_(gradient.T, sets[rows][row_part])
    return gradients


class _Workspace:
    """Buffers that are reused for all tiles, so that they stay in the CPU cache."""

    def __init__(self, some: Tensor) -> None:
        self._some = some
        self._buffers: dict[int, Tensor] = {}

    def take(self, number: int, rows: int, columns: int) -> Tensor:
        """Return buffer `number` as an uninitialised tile `[rows, columns]`."""
        if number not in self._buffers:
            self._buffers[number] = self._some.new_empty(TILE * TILE)
        return self._buffers[number][: rows * columns].view(rows, columns)

    def like(self, tile: Tensor, number: int) -> Tensor:
        """Return buffer `number`, uninitialised, in the shape of `tile`."""
        return self.take(number, *tile.shape)


def _tiles(sums: Sums) -> Iterator[Tile]:
    sizes = [each.size(0) for each in sums.comparison.sets]
    for block in sums.blocks:
        own = block.rows == block.columns
        for top in range(0, sizes[block.rows], TILE):
            rows = slice(top, min(top + TILE, sizes[block.rows]))
            # Within one set the matrix is symmetric, so the tiles of the upper triangle suffice.
            for left in range(top if own else 0, sizes[block.columns], TILE):
                columns = slice(left, min(left + TILE, sizes[block.columns]))
                both = block.both and not (own and left == top)
                yield Tile((block.rows, rows), (block.columns, columns), both, block.mask)


def _similarity(sums: Sums, tile: Tile, work: _Workspace) -> Tensor:
    (rows, row_part), (columns, column_part) = tile.rows, tile.columns
    x, y = sums.comparison.sets[rows][row_part], sums.comparison.sets[columns][column_part]
    return torch.mm(x, y.T, out=work.take(0, x.size(0), y.size(0)))


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
