"""Tiles of the tiled engine as Triton kernels, for float32 on CUDA.

A program handles a block of rows and loops over all columns. The forward kernel treats the rows as anchors and computes
their logsumexps. The backward kernel computes the gradient of the rows, both as anchors and as keys. No two programs
write to the same address, so results are deterministic; the cost is that each direction computes its own tiles. Memory
beyond the results is O(N K) for N anchors and K exponents.

`torch.get_float32_matmul_precision()` selects the precision of products. "highest" (the default of PyTorch) is full
float32. "high" is three passes of TF32, which is nearly as exact. "medium" is one pass of TF32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from graphcl.losses.engine.base import Mask, Sums
from graphcl.losses.engine.exponent import Coefficients

jit: Callable[[Any], Any]
try:
    import triton
    import triton.language as tl

    jit = triton.jit
except ImportError:  # PyTorch without CUDA: the module must be importable; its kernels are never called

    def jit(function: Any) -> Any:
        """Return `function` unchanged."""
        return function


LOWEST = torch.finfo(torch.float32).min
"""Initial value of a running maximum; finite, as -inf minus itself would be NaN."""
LEAVE_OUT: dict[Mask | None, int] = {None: 0, "diagonal": 1, "ids": 2}
WIDEST = 128
"""Largest number of gradient coordinates per program; for wider rows, more programs recompute the tiles."""


def blocks(precision: str, rows: int, columns: int, depth: int, warps: int = 4, stages: int = 2) -> dict[str, Any]:
    """Return the options of a kernel: rows per program, columns per iteration, coordinates per product, and launch."""
    sizes = {"PRECISION": precision, "ROWS": rows, "COLUMNS": columns, "DEPTH": depth}
    # FP fusion: one instruction and one rounding for a product and a sum. From Triton 3.10 on, it is off by default.
    return sizes | {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}


# Chosen from compiler reports, so that few registers spill and shared memory stays within the 99 KB of smaller chips;
# tests/losses/test_compiled.py repeats them. Products in full float32 unroll the depth instead of using tensor cores,
# so their depth is short.
FORWARD = {
    "highest": blocks("ieee", 64, 64, 16, stages=3),
    "high": blocks("tf32x3", 64, 64, 32),
    "medium": blocks("tf32", 128, 128, 32, warps=8, stages=3),
}
"""Options of the forward kernel for each value of `torch.get_float32_matmul_precision()`."""
BACKWARD = {
    "highest": blocks("ieee", 64, 32, 16),
    "high": blocks("tf32x3", 64, 32, 32),
    "medium": blocks("tf32", 64, 64, 32, warps=8),
}


def forward(sums: Sums) -> tuple[list[Tensor], list[Tensor]]:
    """Return logsumexps and mean similarities, see `Tiles`."""
    options = FORWARD[torch.get_float32_matmul_precision()]
    sets = [each.contiguous() for each in sums.comparison.sets]
    totals, expected = [], []
    for anchors, key_sets in enumerate(sums.comparison.key_sets):
        x = sets[anchors]
        grid = (triton.cdiv(x.size(0), options["ROWS"]),)
        # Online logsumexp: for each anchor, `highest` is the running maximum of P, `total` the sum of the weights
        # e^(P - highest) and `moment` the sum of the weighted similarities. Each set of keys updates them.
        highest = x.new_full((len(sums.exponents), x.size(0)), LOWEST)
        total, moment = torch.zeros_like(highest), torch.zeros_like(highest)
        for keys, mask in key_sets:
            for two in _twos(range(len(sums.exponents))):
                state = [each[two[0] :] for each in (highest, total, moment)]
                rows, scalars, constants = _arguments(sums, sets, anchors, keys, mask, two)
                with torch.cuda.device_of(x):
                    _forward[grid](*rows, *state, *scalars, EXPECTED=sums.expected, **constants, **options)
        totals.append(total.log() + highest)
        expected.append(torch.where(total > 0, moment / total, 0.0))
    return totals, expected


def backward(sums: Sums, totals: list[Tensor], upstream: list[Tensor], wanted: list[bool]) -> list[Tensor | None]:
    """Return the gradients of the sets, see `Tiles`."""
    options = BACKWARD[torch.get_float32_matmul_precision()]
    sets = [each.contiguous() for each in sums.comparison.sets]
    gradients = [torch.zeros_like(each) if want else None for each, want in zip(sets, wanted, strict=True)]
    for two in _twos([k for k, slope in enumerate(sums.slopes) if any(slope)]):
        slopes = [sums.slopes[k] for k in two]
        anchored = [
            (torch.stack([total[k] for k in two]), torch.stack([gradient[k] for k in two]))
            for total, gradient in zip(totals, upstream, strict=True)
        ]
        for number, (x, into) in enumerate(zip(sets, gradients, strict=True)):
            if into is None:
                continue
            width = min(WIDEST, max(16, triton.next_power_of_2(x.size(1))))
            grid = triton.cdiv(x.size(0), options["ROWS"]), triton.cdiv(x.size(1), width)
            for other, mask, as_anchor, as_key in _roles(sums, number):
                of_rows = anchored[number] if as_anchor else (x, x)
                of_columns = anchored[other] if as_key else (x, x)
                rows, scalars, constants = _arguments(sums, sets, number, other, mask, two)
                constants |= {"SLOPE_TERMS": _terms(slopes), "AS_ANCHOR": as_anchor, "AS_KEY": as_key, "OUT": width}
                with torch.cuda.device_of(x):
                    _backward[grid](
                        *rows, *of_rows, *of_columns, into, *scalars, *_padded(slopes, 4), **constants, **options
                    )
    return gradients


def _twos(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield `numbers` in groups of two, and a last group of one if their count is odd. A kernel takes two exponents."""
    for start in range(0, len(numbers), 2):
        yield numbers[start : start + 2]


def _roles(sums: Sums, number: int) -> list[tuple[int, Mask | None, bool, bool]]:
    """Return for each comparison of set `number`: the other set, the mask, whether `number` has anchors, and keys."""
    key_sets = sums.comparison.key_sets
    as_anchor = set(key_sets[number]) if number < len(key_sets) else set()
    as_key = {(anchors, mask) for anchors, of in enumerate(key_sets) for keys, mask in of if keys == number}
    # Sort, so that the gradient is summed in a fixed order and is deterministic.
    both = sorted(as_anchor | as_key, key=str)
    return [(*each, each in as_anchor, each in as_key) for each in both]


def _arguments(
    sums: Sums, sets: list[Tensor], rows: int, columns: int, mask: Mask | None, two: Sequence[int]
) -> tuple[list[Tensor], list[float], dict[str, Any]]:
    """Return what both kernels take: two sets of rows and their ids; sizes, centers and coefficients; constants."""
    x, y, exponents = sets[rows], sets[columns], [sums.exponents[k] for k in two]
    ids = [x, x]  # read only with the mask `ids`
    if mask == "ids":
        assert sums.comparison.ids is not None
        of_views, of_queue = (each.contiguous() for each in sums.comparison.ids)
        ids = [of_queue if each == 2 else of_views for each in (rows, columns)]
    scalars = _padded([(each.center, *each.total) for each in exponents], 6)
    terms = _terms(each.total for each in exponents)
    constants = {"K": len(two), "TERMS": terms, "LEAVE_OUT": LEAVE_OUT[mask], "WIDTH": x.size(1)}
    return [x, y, *ids], [x.size(0), y.size(0), *scalars], constants


def _terms(coefficients: Iterable[Coefficients]) -> int:
    """Return the number of coefficients of the longest polynomial, at least 1."""
    return max(1, *map(len, coefficients))


def _padded(coefficients: Iterable[Coefficients], length: int) -> list[float]:
    """Return the coefficients of two polynomials as one list, with zeros appended to each up to `length`.

    The numbers are passed as kernel arguments; a tensor would need a copy that synchronises the device.
    """
    rows = [[float(value) for value in (*each, *[0.0] * (length - len(each)))] for each in coefficients]
    return [*rows[0], *(rows[1] if len(rows) > 1 else [0.0] * length)]


# -- kernels -----------------------------------------------------------------------------------------------------------


@jit
def _polynomial(
    x: tl.tensor, c0: tl.tensor, c1: tl.tensor, c2: tl.tensor, c3: tl.tensor, c4: tl.tensor,
    TERMS: tl.constexpr,
) -> tl.tensor:  # fmt: skip
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
    x: tl.tensor, y: tl.tensor, row: tl.tensor, column: tl.tensor, rows: tl.tensor, columns: tl.tensor,
    PRECISION: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Return the similarities of the rows `row` of `x` and the rows `column` of `y`; 0 for indices out of range."""
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
    row: tl.tensor, column: tl.tensor, columns: tl.tensor, row_id: tl.tensor, column_ids: tl.tensor,
    LEAVE_OUT: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Return the mask that is True where the pair of `row` and `column` is a negative."""
    kept = (column < columns)[None, :]
    if LEAVE_OUT == 1:
        kept = kept & (row[:, None] != column[None, :])
    if LEAVE_OUT == 2:
        column_id = tl.load(column_ids + column, mask=column < columns, other=0)
        kept = kept & (row_id[:, None] != column_id[None, :])
    return kept


@jit
def _add(
    highest: tl.tensor, total: tl.tensor, moment: tl.tensor, value: tl.tensor, similarity: tl.tensor,
    EXPECTED: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:  # fmt: skip
    """Return running maximum, sum of weights and sum of weighted similarities after adding one tile."""
    now = tl.maximum(highest, tl.max(value, 1))
    weight = tl.exp(value - now[:, None])
    shrink = tl.exp(highest - now)
    total = total * shrink + tl.sum(weight, 1)
    if EXPECTED:
        moment = moment * shrink + tl.sum(weight * similarity, 1)
    return now, total, moment


@jit
def _forward(
    x: tl.tensor, y: tl.tensor, x_ids: tl.tensor, y_ids: tl.tensor, highest: tl.tensor, total: tl.tensor,
    moment: tl.tensor, rows: tl.tensor, columns: tl.tensor, p_center: tl.tensor, p0: tl.tensor, p1: tl.tensor,
    p2: tl.tensor, p3: tl.tensor, p4: tl.tensor, q_center: tl.tensor, q0: tl.tensor, q1: tl.tensor, q2: tl.tensor,
    q3: tl.tensor, q4: tl.tensor,
    K: tl.constexpr, TERMS: tl.constexpr, EXPECTED: tl.constexpr, LEAVE_OUT: tl.constexpr, PRECISION: tl.constexpr,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
) -> None:  # fmt: skip
    """Update the running sums of the anchors `x` by the keys `y`, for exponent P, and for exponent Q if K is 2."""
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
def _derivative(
    value: tl.tensor, x_total: tl.tensor, x_gradient: tl.tensor, y_totals: tl.tensor, y_gradients: tl.tensor,
    column: tl.tensor, columns: tl.tensor,
    AS_ANCHOR: tl.constexpr, AS_KEY: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Return the derivative of the loss with respect to a tile `value` of exponents.

    With `AS_ANCHOR`, the tile's rows are anchors and contribute their sums; with `AS_KEY`, its columns are anchors.
    """
    derivative = tl.zeros_like(value)
    if AS_ANCHOR:
        derivative += tl.exp(value - x_total[:, None]) * x_gradient[:, None]
    if AS_KEY:
        y_total = tl.load(y_totals + column, mask=column < columns, other=0.0)
        y_gradient = tl.load(y_gradients + column, mask=column < columns, other=0.0)
        derivative += tl.exp(value - y_total[None, :]) * y_gradient[None, :]
    return derivative


@jit
def _backward(
    x: tl.tensor, y: tl.tensor, x_ids: tl.tensor, y_ids: tl.tensor, x_totals: tl.tensor, x_gradients: tl.tensor,
    y_totals: tl.tensor, y_gradients: tl.tensor, into: tl.tensor, rows: tl.tensor, columns: tl.tensor,
    p_center: tl.tensor, p0: tl.tensor, p1: tl.tensor, p2: tl.tensor, p3: tl.tensor, p4: tl.tensor,
    q_center: tl.tensor, q0: tl.tensor, q1: tl.tensor, q2: tl.tensor, q3: tl.tensor, q4: tl.tensor, dp0: tl.tensor,
    dp1: tl.tensor, dp2: tl.tensor, dp3: tl.tensor, dq0: tl.tensor, dq1: tl.tensor, dq2: tl.tensor, dq3: tl.tensor,
    K: tl.constexpr, TERMS: tl.constexpr, SLOPE_TERMS: tl.constexpr, AS_ANCHOR: tl.constexpr, AS_KEY: tl.constexpr,
    LEAVE_OUT: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
) -> None:  # fmt: skip
    """Add to `into` the gradient with respect to `x` from its comparison with `y`, for `OUT` coordinates."""
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
    q_totals = y_totals + columns
    q_gradients = y_gradients + columns
    out = tl.program_id(1) * OUT + tl.arange(0, OUT)
    result = tl.zeros([ROWS, OUT], dtype=tl.float32)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        c = _similarities(x, y, row, column, rows, columns, PRECISION, WIDTH, ROWS, COLUMNS, DEPTH)
        value = _polynomial(c - p_center, p0, p1, p2, p3, p4, TERMS)
        derivative = _derivative(value, p_total, p_gradient, y_totals, y_gradients, column, columns, AS_ANCHOR, AS_KEY)
        weight = derivative * _polynomial(c - p_center, dp0, dp1, dp2, dp3, 0.0, SLOPE_TERMS)
        if K == 2:
            value = _polynomial(c - q_center, q0, q1, q2, q3, q4, TERMS)
            derivative = _derivative(
                value, q_total, q_gradient, q_totals, q_gradients, column, columns, AS_ANCHOR, AS_KEY
            )
            weight += derivative * _polynomial(c - q_center, dq0, dq1, dq2, dq3, 0.0, SLOPE_TERMS)
        # Mask after the products, as weights of masked pairs and of anchors without negatives can be infinite.
        weight = tl.where(_negatives(row, column, columns, row_id, y_ids, LEAVE_OUT), weight, 0.0)
        place = column.to(tl.int64)[:, None] * WIDTH + out[None, :]
        values = tl.load(y + place, mask=(column < columns)[:, None] & (out < WIDTH)[None, :], other=0.0)
        result = tl.dot(weight, values, result, input_precision=PRECISION)
    place = row.to(tl.int64)[:, None] * WIDTH + out[None, :]
    mask = inside[:, None] & (out < WIDTH)[None, :]
    tl.store(into + place, tl.load(into + place, mask=mask, other=0.0) + result, mask=mask)
