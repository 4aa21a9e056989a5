"""Tiles of the tiled engine in PyTorch operations, for the CPU, for float64 and for devices without Triton."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcl.losses.engine.base import Comparison, Mask, Sums
from graphcl.losses.engine.exponent import Coefficients, Exponent

TILE = 512
"""Number of rows and of columns of a tile: 1 MB in float32, so that a few tiles fit the L2 cache of a CPU."""


@dataclass(frozen=True)
class Tile:
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

    def fill_masked(self, sums: Sums, values: Tensor, filler: float) -> None:
        """Set the entries of `values` that are not negatives to `filler`, in place."""
        rows, columns = self.rows[1], self.columns[1]
        if self.mask == "diagonal" and rows == columns:
            values.fill_diagonal_(filler)
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
    starts = [0.0 if _small(sums, exponent) else lowest for exponent in sums.exponents]
    highest = [torch.stack([some.new_full(shape[1:], start) for start in starts]) for _ in anchors]
    total = [some.new_zeros(shape) for _ in anchors]
    moment = [some.new_zeros(shape) for _ in anchors]
    work = _Workspace(some)
    for tile, similarity in _tiles(sums.comparison, work):
        for k, exponent in enumerate(sums.exponents):
            value = _evaluate(exponent.total, exponent.center, similarity, out=work.take(1, *similarity.shape))
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
                    weight = torch.sub(value, now.unsqueeze(axis), out=work.take(2, *value.shape)).exp_()
                total[number][k, part] += weight.sum(dim=axis)
                if sums.expected:
                    product = torch.mul(weight, similarity, out=work.take(3, *value.shape))
                    moment[number][k, part] += product.sum(dim=axis)
    expected = [torch.where(each > 0, of_set / each, 0.0) for of_set, each in zip(moment, total, strict=True)]
    return [each.log() + of_set for each, of_set in zip(total, highest, strict=True)], expected


def backward(sums: Sums, totals: list[Tensor], upstream: list[Tensor], wanted: list[bool]) -> list[Tensor | None]:
    """Return the gradients of the sets, see `Tiles`."""
    sets = sums.comparison.sets
    gradients = [torch.zeros_like(each) if want else None for each, want in zip(sets, wanted, strict=True)]
    # The total of an anchor without negatives is -inf; replace it by 0 so that its gradient is 0 instead of NaN.
    totals = [total.masked_fill(total.isinf(), 0.0) for total in totals]
    work = _Workspace(sets[0])
    for tile, similarity in _tiles(sums.comparison, work):
        gradient = work.take(1, *similarity.shape).zero_()
        for k, (exponent, slope) in enumerate(zip(sums.exponents, sums.slopes, strict=True)):
            if not any(slope):
                continue
            value = _evaluate(exponent.total, exponent.center, similarity, out=work.take(2, *similarity.shape))
            weights = work.take(3, *similarity.shape).zero_()
            if _small(sums, exponent):
                for number, part, axis in tile.sides:
                    weights += (upstream[number][k, part] * (-totals[number][k, part]).exp()).unsqueeze(axis)
                weights *= value.exp_()
            else:
                for number, part, axis in tile.sides:
                    weight = torch.sub(value, totals[number][k, part].unsqueeze(axis), out=work.take(4, *value.shape))
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


def _tiles(comparison: Comparison, work: _Workspace) -> Iterator[tuple[Tile, Tensor]]:
    """Yield each tile and its similarities, in buffer 0."""
    sets, key_sets = comparison.sets, comparison.key_sets
    for anchors, (keys, mask) in ((anchors, each) for anchors, of in enumerate(key_sets) for each in of):
        both = keys < len(key_sets) and (anchors, mask) in key_sets[keys]
        if both and keys < anchors:
            continue  # the other direction of the same matrix
        own = anchors == keys
        for top in range(0, sets[anchors].size(0), TILE):
            rows, x = slice(top, top + TILE), sets[anchors][top : top + TILE]
            # Within one set the matrix is symmetric, so the tiles of the upper triangle suffice.
            for left in range(top if own else 0, sets[keys].size(0), TILE):
                columns, y = slice(left, left + TILE), sets[keys][left : left + TILE]
                tile = Tile((anchors, rows), (keys, columns), both and not (own and left == top), mask)
                yield tile, torch.mm(x, y.T, out=work.take(0, x.size(0), y.size(0)))


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
