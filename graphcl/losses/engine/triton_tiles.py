"""The tiles of the tiled engine as Triton kernels: on CUDA, in float32.

A program owns some rows and goes through all columns, forward (logsumexps of the rows' anchors) and backward (the
gradient of the rows, as anchors and as keys). No two programs write to one place, so results are deterministic; the
price is that each of two directions makes its own tiles. Nothing is held beyond results and O(N K).

Products are made in full float32 where `torch.get_float32_matmul_precision()` is "highest" (torch's default), in three
passes of TF32 with "high", which loses next to nothing, and in one of TF32 with "medium".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphcl.losses.engine.comparison import LeftOut
from graphcl.losses.engine.exponent import Coefficients, Exponent
from graphcl.losses.engine.tiled import Sums

jit: Callable[[Any], Any]
try:
    import triton
    import triton.language as tl

    jit = triton.jit
except ImportError:  # on builds of torch without CUDA, where `graphcl.losses.engine.tiled.tiles` does not come here

    def jit(function: Any) -> Any:
        """Leave a kernel as it is: it can be read, not run."""
        return function


LOWEST = torch.finfo(torch.float32).min
"""Below every exponent; -inf less itself would be NaN."""
PRECISIONS = {"highest": "ieee", "high": "tf32x3", "medium": "tf32"}
"""How products are made, by `torch.get_float32_matmul_precision()`."""
LEAVE_OUT: dict[LeftOut | None, int] = {None: 0, "diagonal": 1, "ids": 2}


@dataclass(frozen=True)
class Blocks:
    """Sizes of a kernel's tiles, powers of 2 from 16 on.

    Args:
        rows: rows that a program owns.
        columns: columns that it goes through at a time.
        depth: coordinates that a product takes at a time.
        width: coordinates of the gradient that a program makes at most; for more of them, tiles are made again.
        warps: of 32 threads each.
        stages: loads under way at a time.
    """

    rows: int
    columns: int
    depth: int
    width: int = 128
    warps: int = 4
    stages: int = 2

    def options(self) -> dict[str, int]:
        """As the kernels take them, without the width."""
        sizes = {"ROWS": self.rows, "COLUMNS": self.columns, "DEPTH": self.depth}
        return sizes | {"num_warps": self.warps, "num_stages": self.stages}


# Chosen by what the compiler reports for Hopper and Ampere: next to no spilled registers, and shared memory within the
# 99 KB that smaller chips have too. Products in full float32 use no tensor core and unroll their depth, which is short
# therefore.
FORWARD = {
    "ieee": Blocks(64, 64, 16, stages=3),
    "tf32x3": Blocks(64, 64, 32),
    "tf32": Blocks(128, 128, 32, warps=8, stages=3),
}
BACKWARD = {
    "ieee": Blocks(64, 32, 16),
    "tf32x3": Blocks(64, 32, 32),
    "tf32": Blocks(64, 64, 32, warps=8),
}


def forward(sums: Sums) -> tuple[list[Tensor], list[Tensor]]:
    """See `graphcl.losses.engine.tiled.Tiles`."""
    precision = PRECISIONS[torch.get_float32_matmul_precision()]
    blocks = FORWARD[precision]
    sets = [each.contiguous() for each in sums.comparison.sets]
    totals, expected = [], []
    for anchors, against in enumerate(sums.comparison.against):
        x = sets[anchors]
        # For each anchor the highest exponent so far, the sum of the weights e^(P - highest), and that of the weighted
        # similarities: one set of keys after the other goes on with them.
        highest = x.new_full((len(sums.exponents), x.size(0)), LOWEST)
        total, moment = torch.zeros_like(highest), torch.zeros_like(highest)
        for keys, left_out in against:
            for two in _twos(range(len(sums.exponents))):
                exponents = [sums.exponents[k] for k in two]
                with torch.cuda.device_of(x):
                    _forward[(triton.cdiv(x.size(0), blocks.rows),)](
                        x,
                        sets[keys],
                        *_ids(sums, anchors, keys, left_out, x),
                        *(each[two[0] :] for each in (highest, total, moment)),
                        x.size(0),
                        sets[keys].size(0),
                        *_scalars(exponents),
                        K=len(two),
                        TERMS=_terms(exponent.total for exponent in exponents),
                        EXPECTED=sums.expected,
                        LEAVE_OUT=LEAVE_OUT[left_out],
                        PRECISION=precision,
                        WIDTH=x.size(1),
                        **blocks.options(),
                    )
        totals.append(total.log() + highest)
        expected.append(torch.where(total > 0, moment / total, 0.0))
    return totals, expected


def backward(
    sums: Sums, totals: list[Tensor], grad_totals: list[Tensor], grad_expected: list[Tensor], wanted: list[bool]
) -> list[Tensor | None]:
    """See `graphcl.losses.engine.tiled.Tiles`."""
    precision = PRECISIONS[torch.get_float32_matmul_precision()]
    blocks = BACKWARD[precision]
    sets = [each.contiguous() for each in sums.comparison.sets]
    gradients = [torch.zeros_like(each) if want else None for each, want in zip(sets, wanted, strict=True)]
    # d total_i / d c_ij = e^(P - total_i) P', and d expected_i / d c_ij = e^(P - total_i), the weights being constants.
    upstream = grad_expected if sums.expected else grad_totals
    slopes = [(1.0,) if sums.expected else exponent.slope for exponent in sums.exponents]
    for two in _twos([k for k, slope in enumerate(slopes) if any(slope)]):
        exponents, own_slopes = [sums.exponents[k] for k in two], [slopes[k] for k in two]
        anchored = [
            (torch.stack([total[k] for k in two]), torch.stack([gradient[k] for k in two]))
            for total, gradient in zip(totals, upstream, strict=True)
        ]
        for number, (x, into) in enumerate(zip(sets, gradients, strict=True)):
            if into is None:
                continue
            width = min(blocks.width, max(16, triton.next_power_of_2(x.size(1))))
            for other, left_out, as_anchor, as_key in _roles(sums, number):
                with torch.cuda.device_of(x):
                    _backward[(triton.cdiv(x.size(0), blocks.rows), triton.cdiv(x.size(1), width))](
                        x,
                        sets[other],
                        *_ids(sums, number, other, left_out, x),
                        *(anchored[number] if as_anchor else (x, x)),
                        *(anchored[other] if as_key else (x, x)),
                        into,
                        x.size(0),
                        sets[other].size(0),
                        *_scalars(exponents),
                        *_padded(own_slopes, 4),
                        K=len(two),
                        TERMS=_terms(exponent.total for exponent in exponents),
                        SLOPE_TERMS=_terms(own_slopes),
                        AS_ANCHOR=as_anchor,
                        AS_KEY=as_key,
                        LEAVE_OUT=LEAVE_OUT[left_out],
                        PRECISION=precision,
                        WIDTH=x.size(1),
                        OUT=width,
                        **blocks.options(),
                    )
    return gradients


def _twos(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Two at a time: what a kernel takes, and all that any loss asks for."""
    for start in range(0, len(numbers), 2):
        yield numbers[start : start + 2]


def _roles(sums: Sums, number: int) -> list[tuple[int, LeftOut | None, bool, bool]]:
    """The sets that a set is compared with, what is left out, and whether it is their anchors, their keys or both."""
    against = sums.comparison.against
    as_anchor = set(against[number]) if number < len(against) else set()
    as_key = {(anchors, left_out) for anchors, of in enumerate(against) for keys, left_out in of if keys == number}
    # In a fixed order, which is that of the gradient's summands.
    both = sorted(as_anchor | as_key, key=str)
    return [(*each, each in as_anchor, each in as_key) for each in both]


def _ids(sums: Sums, rows: int, columns: int, left_out: LeftOut | None, stand_in: Tensor) -> tuple[Tensor, Tensor]:
    """Ids of the rows and of the columns, where a kernel needs them."""
    if left_out != "ids":
        return stand_in, stand_in
    assert sums.comparison.ids is not None
    of_views, of_queue = (each.contiguous() for each in sums.comparison.ids)
    return of_queue if rows == 2 else of_views, of_queue if columns == 2 else of_views


def _terms(coefficients: Iterable[Coefficients]) -> int:
    """How many coefficients the longest polynomial has."""
    return max(1, *map(len, coefficients))


def _padded(coefficients: Iterable[Coefficients], length: int) -> list[float]:
    """Two polynomials as arguments of a kernel: numbers, not a tensor, whose copy would have to wait for the device."""
    rows = [[float(value) for value in (*each, *[0.0] * (length - len(each)))] for each in coefficients]
    return [*rows[0], *(rows[1] if len(rows) > 1 else [0.0] * length)]


def _scalars(exponents: list[Exponent]) -> list[float]:
    """Center and coefficients of two exponents."""
    return _padded([(exponent.center, *exponent.total) for exponent in exponents], 6)


# -- kernels -----------------------------------------------------------------------------------------------------------


@jit
def _polynomial(
    x: tl.tensor, c0: tl.tensor, c1: tl.tensor, c2: tl.tensor, c3: tl.tensor, c4: tl.tensor, TERMS: tl.constexpr
) -> tl.tensor:
    if TERMS == 1:
        value = c0
    else:
        value = c1
        if TERMS == 5:
            value = ((c4 * x + c3) * x + c2) * x + c1
        if TERMS == 4:
            value = (c3 * x + c2) * x + c1
        if TERMS == 3:
            value = c2 * x + c1
        value = value * x + c0
    return value


@jit
def _similarities(
    x: tl.tensor,
    y: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    PRECISION: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
) -> tl.tensor:
    """Tile of similarities; rows and columns out of range count as zeros."""
    result = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    x_row = x + row.to(tl.int64)[:, None] * WIDTH
    y_row = y + column.to(tl.int64)[None, :] * WIDTH
    for start in range(0, WIDTH, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        a = tl.load(x_row + depth[None, :], mask=(row < rows)[:, None] & (depth < WIDTH)[None, :], other=0.0)
        b = tl.load(y_row + depth[:, None], mask=(column < columns)[None, :] & (depth < WIDTH)[:, None], other=0.0)
        result = tl.dot(a, b, result, input_precision=PRECISION)
    return result


@jit
def _negatives(
    row: tl.tensor,
    column: tl.tensor,
    columns: tl.tensor,
    row_id: tl.tensor,
    column_ids: tl.tensor,
    LEAVE_OUT: tl.constexpr,
) -> tl.tensor:
    """Which pairs of a tile count."""
    kept = (column < columns)[None, :]
    if LEAVE_OUT == 1:
        kept = kept & (row[:, None] != column[None, :])
    if LEAVE_OUT == 2:
        column_id = tl.load(column_ids + column, mask=column < columns, other=0)
        kept = kept & (row_id[:, None] != column_id[None, :])
    return kept


@jit
def _add(
    highest: tl.tensor,
    total: tl.tensor,
    moment: tl.tensor,
    value: tl.tensor,
    similarity: tl.tensor,
    EXPECTED: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """One more tile of exponents in the sums about a running maximum."""
    now = tl.maximum(highest, tl.max(value, 1))
    weight = tl.exp(value - now[:, None])
    shrink = tl.exp(highest - now)
    total = total * shrink + tl.sum(weight, 1)
    if EXPECTED:
        moment = moment * shrink + tl.sum(weight * similarity, 1)
    return now, total, moment


@jit
def _forward(
    x: tl.tensor,
    y: tl.tensor,
    x_ids: tl.tensor,
    y_ids: tl.tensor,
    highest: tl.tensor,
    total: tl.tensor,
    moment: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    p_center: tl.tensor,
    p0: tl.tensor,
    p1: tl.tensor,
    p2: tl.tensor,
    p3: tl.tensor,
    p4: tl.tensor,
    q_center: tl.tensor,
    q0: tl.tensor,
    q1: tl.tensor,
    q2: tl.tensor,
    q3: tl.tensor,
    q4: tl.tensor,
    K: tl.constexpr,
    TERMS: tl.constexpr,
    EXPECTED: tl.constexpr,
    LEAVE_OUT: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
) -> None:
    """Sums of the anchors `x` over the keys `y`, for one exponent P or two, P and Q."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    row_id = row
    if LEAVE_OUT == 2:
        row_id = tl.load(x_ids + row, mask=inside, other=0)
    p_highest = tl.load(highest + row, mask=inside, other=0.0)
    p_total = tl.load(total + row, mask=inside, other=0.0)
    p_moment = tl.load(moment + row, mask=inside, other=0.0)
    if K == 2:
        q_highest = tl.load(highest + rows + row, mask=inside, other=0.0)
        q_total = tl.load(total + rows + row, mask=inside, other=0.0)
        q_moment = tl.load(moment + rows + row, mask=inside, other=0.0)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        c = _similarities(x, y, row, column, rows, columns, PRECISION, WIDTH, ROWS, COLUMNS, DEPTH)
        kept = _negatives(row, column, columns, row_id, y_ids, LEAVE_OUT)
        value = tl.where(kept, _polynomial(c - p_center, p0, p1, p2, p3, p4, TERMS), -float("inf"))
        p_highest, p_total, p_moment = _add(p_highest, p_total, p_moment, value, c, EXPECTED)
        if K == 2:
            value = tl.where(kept, _polynomial(c - q_center, q0, q1, q2, q3, q4, TERMS), -float("inf"))
            q_highest, q_total, q_moment = _add(q_highest, q_total, q_moment, value, c, EXPECTED)
    tl.store(highest + row, p_highest, mask=inside)
    tl.store(total + row, p_total, mask=inside)
    tl.store(moment + row, p_moment, mask=inside)
    if K == 2:
        tl.store(highest + rows + row, q_highest, mask=inside)
        tl.store(total + rows + row, q_total, mask=inside)
        tl.store(moment + rows + row, q_moment, mask=inside)


@jit
def _share(
    value: tl.tensor,
    x_total: tl.tensor,
    x_gradient: tl.tensor,
    y_totals: tl.tensor,
    y_gradients: tl.tensor,
    column: tl.tensor,
    columns: tl.tensor,
    AS_ANCHOR: tl.constexpr,
    AS_KEY: tl.constexpr,
) -> tl.tensor:
    """Derivative of the loss by a tile of exponents: through the anchors of its rows, of its columns or of both."""
    share = tl.zeros_like(value)
    if AS_ANCHOR:
        share += tl.exp(value - x_total[:, None]) * x_gradient[:, None]
    if AS_KEY:
        y_total = tl.load(y_totals + column, mask=column < columns, other=0.0)
        y_gradient = tl.load(y_gradients + column, mask=column < columns, other=0.0)
        share += tl.exp(value - y_total[None, :]) * y_gradient[None, :]
    return share


@jit
def _backward(
    x: tl.tensor,
    y: tl.tensor,
    x_ids: tl.tensor,
    y_ids: tl.tensor,
    x_totals: tl.tensor,
    x_gradients: tl.tensor,
    y_totals: tl.tensor,
    y_gradients: tl.tensor,
    into: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    p_center: tl.tensor,
    p0: tl.tensor,
    p1: tl.tensor,
    p2: tl.tensor,
    p3: tl.tensor,
    p4: tl.tensor,
    q_center: tl.tensor,
    q0: tl.tensor,
    q1: tl.tensor,
    q2: tl.tensor,
    q3: tl.tensor,
    q4: tl.tensor,
    dp0: tl.tensor,
    dp1: tl.tensor,
    dp2: tl.tensor,
    dp3: tl.tensor,
    dq0: tl.tensor,
    dq1: tl.tensor,
    dq2: tl.tensor,
    dq3: tl.tensor,
    K: tl.constexpr,
    TERMS: tl.constexpr,
    SLOPE_TERMS: tl.constexpr,
    AS_ANCHOR: tl.constexpr,
    AS_KEY: tl.constexpr,
    LEAVE_OUT: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDTH: tl.constexpr,
    OUT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
) -> None:
    """Add to `into`, the gradient of `x`, what it gets from being compared with `y`: `OUT` coordinates of it."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    row_id = row
    if LEAVE_OUT == 2:
        row_id = tl.load(x_ids + row, mask=inside, other=0)
    p_total = row
    p_gradient = row
    q_total = row
    q_gradient = row
    if AS_ANCHOR:
        p_total = tl.load(x_totals + row, mask=inside, other=0.0)
        p_gradient = tl.load(x_gradients + row, mask=inside, other=0.0)
        if K == 2:
            q_total = tl.load(x_totals + rows + row, mask=inside, other=0.0)
            q_gradient = tl.load(x_gradients + rows + row, mask=inside, other=0.0)
    out = tl.program_id(1) * OUT + tl.arange(0, OUT)
    result = tl.zeros([ROWS, OUT], dtype=tl.float32)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        c = _similarities(x, y, row, column, rows, columns, PRECISION, WIDTH, ROWS, COLUMNS, DEPTH)
        value = _polynomial(c - p_center, p0, p1, p2, p3, p4, TERMS)
        share = _share(value, p_total, p_gradient, y_totals, y_gradients, column, columns, AS_ANCHOR, AS_KEY)
        weight = share * _polynomial(c - p_center, dp0, dp1, dp2, dp3, 0.0, SLOPE_TERMS)
        if K == 2:
            value = _polynomial(c - q_center, q0, q1, q2, q3, q4, TERMS)
            share = _share(
                value,
                q_total,
                q_gradient,
                y_totals + columns,
                y_gradients + columns,
                column,
                columns,
                AS_ANCHOR,
                AS_KEY,
            )
            weight += share * _polynomial(c - q_center, dq0, dq1, dq2, dq3, 0.0, SLOPE_TERMS)
        # After the products: weights of pairs that are left out may be infinite, and those of an anchor without a
        # negative, whose total is -inf, are.
        weight = tl.where(_negatives(row, column, columns, row_id, y_ids, LEAVE_OUT), weight, 0.0)
        place = column.to(tl.int64)[:, None] * WIDTH + out[None, :]
        values = tl.load(y + place, mask=(column < columns)[:, None] & (out < WIDTH)[None, :], other=0.0)
        result = tl.dot(weight, values, result, input_precision=PRECISION)
    place = row.to(tl.int64)[:, None] * WIDTH + out[None, :]
    mask = inside[:, None] & (out < WIDTH)[None, :]
    tl.store(into + place, tl.load(into + place, mask=mask, other=0.0) + result, mask=mask)
