"""The tiles of the tiled engine with PyTorch's operations: on the CPU, and where there is no Triton."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcl.losses.engine.exponent import Coefficients
from graphcl.losses.engine.tiled import LeftOut, Sums

TILE = 512
"""Rows and columns of a tile: 1 MB in float32, so that a few of them stay in a CPU's second-level cache."""


@dataclass(frozen=True)
class Tile:
    """Some rows of one set with some columns of another, and the anchors that it serves.

    Args:
        rows: the set that gives the rows, and which of them.
        columns: likewise.
        both: whether the columns are anchors too.
        left_out: which pairs are no negatives.
    """

    rows: tuple[int, slice]
    columns: tuple[int, slice]
    both: bool
    left_out: LeftOut | None

    @property
    def sides(self) -> list[tuple[int, slice, int]]:
        """The anchors: their set, which of them, and the axis along which their negatives lie."""
        return [(*self.rows, 1), (*self.columns, 0)] if self.both else [(*self.rows, 1)]

    def leave_out(self, sums: Sums, values: Tensor, filler: float) -> None:
        """Overwrite the pairs that are no negatives."""
        rows, columns = self.rows[1], self.columns[1]
        if self.left_out == "diagonal" and rows.start < columns.stop and columns.start < rows.stop:
            values.diagonal(rows.start - columns.start).fill_(filler)
        elif self.left_out == "ids":
            values.masked_fill_(sums.comparison.same_ids(rows, columns), filler)


def forward(sums: Sums) -> tuple[list[Tensor], list[Tensor]]:
    """See `graphcl.losses.engine.tiled.Tiles`."""
    some = sums.comparison.sets[0]
    shape = len(sums.exponents), some.size(0)
    anchors = range(len(sums.comparison.against))
    # For each anchor the highest exponent so far (or 0 where exponents are small), the sum of the weights
    # e^(P - highest), and that of the weighted similarities.
    lowest = torch.finfo(some.dtype).min  # not -inf, which less itself would be NaN
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
            tile.leave_out(sums, value.exp_() if small else value, 0.0 if small else -torch.inf)
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
    """See `graphcl.losses.engine.tiled.Tiles`."""
    sets = sums.comparison.sets
    gradients = [torch.zeros_like(each) if want else None for each, want in zip(sets, wanted, strict=True)]
    # d total_i / d c_ij = e^(P - total_i) P', and d expected_i / d c_ij = e^(P - total_i), the weights being constants.
    upstream = grad_expected if sums.expected else grad_totals
    # Anchors without a negative have a total of -inf and no gradient.
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
            share = work.like(similarity, 3).zero_()
            if sums.small(exponent):
                for number, part, axis in tile.sides:
                    share += (upstream[number][k, part] * (-totals[number][k, part]).exp()).unsqueeze(axis)
                share *= value.exp_()
            else:
                for number, part, axis in tile.sides:
                    weight = torch.sub(value, totals[number][k, part].unsqueeze(axis), out=work.like(value, 4))
                    share.addcmul_(weight.exp_(), upstream[number][k, part].unsqueeze(axis))
            if len(slope) == 1:
                gradient.add_(share, alpha=slope[0])
            else:
                gradient.addcmul_(share, _evaluate(slope, exponent.center, similarity, out=value))
        tile.leave_out(sums, gradient, 0.0)
        (rows, row_part), (columns, column_part) = tile.rows, tile.columns
        if (into := gradients[rows]) is not None:
            into[row_part].addmm_(gradient, sets[columns][column_part])
        if (into := gradients[columns]) is not None:
            into[column_part].addmm_(gradient.T, sets[rows][row_part])
    return gradients


class _Workspace:
    """Tiles that are used again and again: memory that stays in the cache."""

    def __init__(self, some: Tensor) -> None:
        self._some = some
        self._buffers: dict[int, Tensor] = {}

    def take(self, number: int, rows: int, columns: int) -> Tensor:
        """Buffer `number` as a tile `[rows, columns]`, with whatever it holds."""
        if number not in self._buffers:
            self._buffers[number] = self._some.new_empty(TILE * TILE)
        return self._buffers[number][: rows * columns].view(rows, columns)

    def like(self, tile: Tensor, number: int) -> Tensor:
        """Buffer `number` in the shape of a tile."""
        return self.take(number, *tile.shape)


def _tiles(sums: Sums) -> Iterator[Tile]:
    sizes = [each.size(0) for each in sums.comparison.sets]
    for block in sums.blocks:
        own = block.rows == block.columns
        for top in range(0, sizes[block.rows], TILE):
            rows = slice(top, min(top + TILE, sizes[block.rows]))
            # Within one set the matrix is symmetric: what lies below the diagonal lies above it too.
            for left in range(top if own else 0, sizes[block.columns], TILE):
                columns = slice(left, min(left + TILE, sizes[block.columns]))
                both = block.both and not (own and left == top)
                yield Tile((block.rows, rows), (block.columns, columns), both, block.left_out)


def _similarity(sums: Sums, tile: Tile, work: _Workspace) -> Tensor:
    (rows, row_part), (columns, column_part) = tile.rows, tile.columns
    x, y = sums.comparison.sets[rows][row_part], sums.comparison.sets[columns][column_part]
    return torch.mm(x, y.T, out=work.take(0, x.size(0), y.size(0)))


def _evaluate(coefficients: Coefficients, center: float, c: Tensor, out: Tensor) -> Tensor:
    """The polynomial about `center`, written into `out`."""
    if len(coefficients) < 3:
        low, factor = (*coefficients, 0.0, 0.0)[:2]
        torch.mul(c, factor, out=out)
        return out.add_(low - factor * center) if low or center else out
    offset = c - center if center else c
    torch.mul(offset, coefficients[-1], out=out)
    for coefficient in coefficients[-2:0:-1]:
        out.add_(coefficient).mul_(offset)
    return out.add_(coefficients[0]) if coefficients[0] else out
