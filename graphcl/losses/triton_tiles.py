# mypy: allow-untyped-defs
"""Tiles of the tiled engine as Triton kernels, for float32 on CUDA.

A program handles a block of rows and loops over columns. The forward kernel treats the rows as anchors and computes
their logsumexps. The backward kernel computes the gradient of the rows, both as anchors and as keys. If there are fewer
blocks of rows than multiprocessors, several programs share the columns of a block, and their results are added
afterwards. No two programs write to the same address, so results are deterministic on a given device; the cost is that
each direction computes its own tiles. Memory beyond the results is O(N D).

Products use tensor cores: a float32 is the sum of three pieces in bfloat16 with 8 bits each, and the product of two
numbers is the sum of the products of their pieces. GPUs without tensor cores for bfloat16 use products in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphcl.losses.pairs import Coefficients, Mask, Sums
from graphcl.system.kernels import jit, tl, triton

LOG2_E = math.log2(math.e)
"""Factor of the exponents: the kernels compute powers of 2, which the hardware does."""
BITS = torch.bfloat16
"""Dtype of the pieces."""
LEAVE_OUT: dict[Mask | None, int] = {None: 0, "diagonal": 1, "ids": 2}
WIDEST = 128
"""Largest number of gradient coordinates per program; for wider rows, more programs recompute the tiles."""
MULTIPLE = 128
"""The number of rows is padded to a multiple, so that no block of rows needs a mask."""
PIECES = {"highest": 3, "high": 2, "medium": 1}
"""Number of pieces for each value of `torch.get_float32_matmul_precision()`."""


def blocks(rows: int, columns: int, depth: int, warps: int = 4, stages: int = 2) -> dict[str, Any]:
    """Return the options of a kernel: rows per program, columns per iteration, coordinates per product, and launch."""
    # FP fusion: one instruction and one rounding for a product and a sum. From Triton 3.10 on, it is off by default.
    sizes = {"ROWS": rows, "COLUMNS": columns, "DEPTH": depth}
    return sizes | {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}


FORWARD, BACKWARD = 0, 1
# Chosen from compiler reports, so that few registers spill and shared memory stays within the 99 KB of smaller chips;
# tests/losses/test_compiled.py repeats them. Products in float32 unroll the depth, so their depth is short.
SMALL = {
    0: (blocks(64, 64, 16, stages=3), blocks(64, 32, 16)),
    1: (blocks(128, 128, 32, warps=8, stages=3), blocks(64, 64, 32, warps=8)),
    2: (blocks(64, 64, 32), blocks(64, 32, 32)),
    3: (blocks(64, 64, 32), blocks(64, 32, 32)),
}
"""Options of the forward and backward kernel by the number of pieces; 0 stands for products in float32."""
LARGE = {
    1: (blocks(128, 64, 128, warps=8, stages=3), blocks(64, 128, 128)),
    2: (blocks(128, 64, 128, warps=8, stages=3), blocks(64, 64, 128)),
    3: (blocks(128, 64, 128, warps=8), blocks(128, 64, 128, warps=8)),
}
"""The fastest options on an H200, for chips with 227 KB: a program keeps its rows in shared memory, up to `WIDEST`."""


class Launch:
    """Options, rows and sizes of the launches of a pass, `FORWARD` or `BACKWARD`."""

    def __init__(self, sums: Sums, way: int) -> None:
        self.sums, sets = sums, sums.comparison.sets
        width = sets[0].size(1)
        capability, self.processors = _device(sets[0])
        pieces = PIECES[torch.get_float32_matmul_precision()] if capability >= 80 else 0
        options = (LARGE if pieces and capability in (90, 100) and width <= WIDEST else SMALL)[pieces][way]
        self.out = min(WIDEST, max(16, triton.next_power_of_2(width)))
        wide = triton.cdiv(width, self.out)
        self.outs = wide if way == BACKWARD else 1
        depth = min(self.out, options["DEPTH"])
        self.options = options | {"DEPTH": depth, "PIECES": max(1, pieces), "WIDTH": width, "STRIDE": wide * self.out}
        self.sets = [_pieces(rows, pieces, wide * self.out) for rows in sets]

    def grid(self, rows: Tensor) -> tuple[int, int, int]:
        """Return the numbers of blocks of rows, of blocks of coordinates and of programs that share the columns."""
        count = triton.cdiv(rows.size(0), self.options["ROWS"])
        programs, at_once = count * self.outs, self.processors * max(1, 8 // self.options["num_warps"])
        # Take the smallest number for which the last wave of programs is nearly as full as possible. Each program of
        # those that share columns has results of its own, so limit their number.
        waves = [shares * programs / at_once for shares in range(1, max(1, 4 * at_once // programs) + 1)]
        full = [wave / math.ceil(wave) for wave in waves]
        return count, self.outs, 1 + next(k for k, ratio in enumerate(full) if ratio >= 0.95 * max(full))

    def arguments(
        self, rows: int, columns: int, mask: Mask | None, two: Sequence[int]
    ) -> tuple[list[Tensor], list[float], dict[str, Any]]:
        """Return tensors, numbers and constants for kernels that compare two sets, for one or `two` exponents.

        The rows of the set with number `rows` are divided among the programs, which loop over the set `columns`.
        """
        comparison, exponents = self.sums.comparison, [self.sums.exponents[k] for k in two]
        ids = comparison.ids or self.sets  # read only with the mask `ids`
        pair = rows, columns
        tensors = [*(self.sets[number] for number in pair), *(ids[number == 2].contiguous() for number in pair)]
        polynomials = [(exponent.center, *(LOG2_E * value for value in exponent.total)) for exponent in exponents]
        constants = {"K": len(two), "TERMS": max(2, *map(len, polynomials)) - 1, "LEAVE_OUT": LEAVE_OUT[mask]}
        sizes = [comparison.sets[number].size(0) for number in pair]
        return tensors, [*sizes, *_padded(polynomials, 6)], constants | self.options


def forward(sums: Sums) -> tuple[Tensor, Tensor]:
    """Return logsumexps and mean similarities, see `graphcl.losses.tiled.forward`."""
    launch, numbers = Launch(sums, FORWARD), range(len(sums.exponents))
    totals, expected = [], []
    for anchors, key_sets in enumerate(sums.comparison.key_sets):
        x = sums.comparison.sets[anchors]
        grid = launch.grid(x)
        # One logsumexp and one mean for each set of keys, and each of the programs that share its columns.
        logs, means = x.new_zeros(2, len(key_sets), grid[2], len(numbers), x.size(0))
        for number, (keys, mask) in enumerate(key_sets):
            for k in numbers[::2]:  # a kernel takes two exponents
                tensors, scalars, constants = launch.arguments(anchors, keys, mask, numbers[k : k + 2])
                into = logs[number, :, k:], means[number, :, k:]
                with torch.cuda.device_of(x):
                    _forward[grid](*tensors, *into, logs.stride(1), *scalars, EXPECTED=sums.expected, **constants)
        logs, means = logs.flatten(0, 1) / LOG2_E, means.flatten(0, 1)
        totals.append(logs.logsumexp(dim=0))
        weights = torch.where(logs > -torch.inf, logs - totals[-1], -torch.inf).exp()
        expected.append((weights * means).sum(dim=0) if sums.expected else totals[-1])
    return torch.cat(totals, dim=1), torch.cat(expected, dim=1)


def backward(sums: Sums, totals: Tensor, upstream: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
    """Return the gradients of the sets, see `graphcl.losses.tiled.backward`."""
    launch = Launch(sums, BACKWARD)
    sets, key_sets = sums.comparison.sets, sums.comparison.key_sets
    # One gradient for each of the programs that share the columns.
    new = [x.new_zeros(launch.grid(x)[2], *x.shape) if want else None for x, want in zip(sets, wanted, strict=True)]
    numbers = [k for k, slope in enumerate(sums.slopes) if any(slope)]
    for first in range(0, len(numbers), 2):
        two = numbers[first : first + 2]
        slopes = [sums.slopes[k] for k in two]
        anchored = [
            (torch.stack([LOG2_E * total[k] for k in two]), torch.stack([gradient[k] for k in two]))
            for total, gradient in zip(*(z.split(sets[0].size(0), dim=1) for z in (totals, upstream)), strict=True)
        ]
        for number, (x, into) in enumerate(zip(sets, new, strict=True)):
            if into is None:
                continue
            as_anchor = set(key_sets[number]) if number < len(key_sets) else set()
            as_key = {(anchors, mask) for anchors, of in enumerate(key_sets) for keys, mask in of if keys == number}
            # Sort, so that the gradient is summed in a fixed order and is deterministic.
            for other, mask in sorted(as_anchor | as_key, key=str):
                tensors, scalars, constants = launch.arguments(number, other, mask, two)
                roles = {"AS_ANCHOR": (other, mask) in as_anchor, "AS_KEY": (other, mask) in as_key}
                tensors += anchored[number] if roles["AS_ANCHOR"] else (x, x)
                tensors += anchored[other] if roles["AS_KEY"] else (x, x)
                constants |= roles | {"SLOPE_TERMS": max(map(len, slopes)), "OUT": launch.out}
                with torch.cuda.device_of(x):
                    _backward[launch.grid(x)](*tensors, into, *scalars, *_padded(slopes, 4), **constants)
    return [None if gradient is None else gradient.sum(dim=0) for gradient in new]


def _device(some: Tensor) -> tuple[int, int]:
    """Return the compute capability, such as 90 for 9.0 and 0 for chips not by NVIDIA, and the number of processors."""
    with torch.cuda.device_of(some):
        target = triton.runtime.driver.active.get_current_target()
    capability = target.arch if target.backend == "cuda" else 0
    return capability, torch.cuda.get_device_properties(some.device).multi_processor_count


def _pieces(rows: Tensor, count: int, width: int) -> Tensor:
    """Return `rows` as a sum of `count` pieces in bfloat16, `[N, count, width]`; one piece in float32 if `count` is 0.

    Zeros pad the columns, and the rows to a multiple of `MULTIPLE`.
    """
    rest = torch.nn.functional.pad(rows, (0, width - rows.size(1), 0, -rows.size(0) % MULTIPLE))
    pieces = rest.new_empty(rest.size(0), max(1, count), width, dtype=BITS if count else rest.dtype)
    for number in range(pieces.size(1)):
        rest = rest - pieces[:, number - 1] if number else rest
        pieces[:, number] = rest
    return pieces


def _padded(coefficients: Sequence[Coefficients], length: int) -> list[float]:
    """Return the coefficients of two polynomials as one list, with zeros appended to each up to `length`.

    One polynomial is repeated. Kernels take numbers as arguments; a tensor would need a copy that waits for the device.
    """
    rows = [[float(value) for value in (*values, *[0.0] * (length - len(values)))] for values in coefficients]
    return rows[0] + rows[-1]


# -- kernels: names in upper case are constants ------------------------------------------------------------------------


@jit()
def _polynomial(x, c0, c1, c2, c3, c4, TERMS):
    if TERMS > 4:
        c3 = c4 * x + c3
    if TERMS > 3:
        c2 = c3 * x + c2
    if TERMS > 2:
        c1 = c2 * x + c1
    if TERMS > 1:
        c0 = c1 * x + c0
    return c0


@jit()
def _load(rows, row, depth, PIECES, STRIDE):
    """Return three pieces of the rows `row` at the coordinates `depth`; beyond `PIECES`, they are not used."""
    place = rows + row.to(tl.int64)[:, None] * (PIECES * STRIDE) + depth[None, :]
    first = tl.load(place)
    second = tl.load(place + STRIDE) if PIECES > 1 else first
    third = tl.load(place + 2 * STRIDE) if PIECES > 2 else first
    return first, second, third


@jit()
def _split(values, DTYPE):
    """Return the pieces of `values` in float32."""
    first = values.to(DTYPE)
    rest = values - first.to(tl.float32)
    second = rest.to(DTYPE)
    return first, second, (rest - second.to(tl.float32)).to(DTYPE)


@jit()
def _product(a0, a1, a2, b0, b1, b2, result, PIECES):
    """Add the product of two matrices, given by their pieces, to `result`; small products first, for rounding."""
    if PIECES > 2:
        result = tl.dot(a2, b0, result)
        result = tl.dot(a1, b1, result)
        result = tl.dot(a0, b2, result)
    if PIECES > 1:
        result = tl.dot(a1, b0, result)
        result = tl.dot(a0, b1, result)
    return tl.dot(a0, b0, result, input_precision="ieee")


@jit()
def _similarities(x, y, row, column, x0, x1, x2, PIECES, WIDTH, STRIDE, ROWS, COLUMNS, DEPTH):
    """Return the similarities of the rows `row` of `x` and the rows `column` of `y`.

    `x0`, `x1` and `x2` are the pieces of the rows of `x` at the first coordinates, loaded once for all columns.
    """
    result = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for start in range(0, WIDTH, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        if WIDTH > DEPTH:
            x0, x1, x2 = _load(x, row, depth, PIECES, STRIDE)
        y0, y1, y2 = _load(y, column, depth, PIECES, STRIDE)
        result = _product(x0, x1, x2, tl.trans(y0), tl.trans(y1), tl.trans(y2), result, PIECES)
    return result


@jit()
def _ids(ids, row, rows, LEAVE_OUT):
    return tl.load(ids + row, mask=row < rows, other=0) if LEAVE_OUT == 2 else row


@jit()
def _negatives(row, column, columns, row_id, column_ids, LEAVE_OUT):
    """Return the mask that is True where the pair of `row` and `column` is a negative."""
    kept = (column < columns)[None, :]
    if LEAVE_OUT == 1:
        kept = kept & (row[:, None] != column[None, :])
    if LEAVE_OUT == 2:
        column_id = _ids(column_ids, column, columns, LEAVE_OUT)
        kept = kept & (row_id[:, None] != column_id[None, :])
    return kept


@jit()
def _add(highest, total, moment, value, similarity, EXPECTED):
    """Return running maximum, sum of weights and sum of weighted similarities after adding one tile.

    The weight of a value is 2^(value - maximum), so that no weight is larger than 1.
    """
    now = tl.maximum(highest, tl.max(value, 1))
    weight = tl.exp2(value - now[:, None])
    shrink = tl.exp2(highest - now)
    total = total * shrink + tl.sum(weight, 1)
    if EXPECTED:
        moment = moment * shrink + tl.sum(weight * similarity, 1)
    return now, total, moment


@jit()
def _columns(columns, COLUMNS):
    """Return the first and last column of the program, of those that share the columns."""
    share = tl.cdiv(tl.cdiv(columns, COLUMNS), tl.num_programs(2)) * COLUMNS
    first = tl.program_id(2) * share
    return first, tl.minimum(first + share, columns)


@jit()
def _store(totals, means, inside, highest, total, moment):
    """Store the base-2 logsumexps and the mean similarities of running sums."""
    tl.store(totals, tl.log2(total) + highest, mask=inside)
    tl.store(means, moment / total, mask=inside & (total > 0))


@jit()
def _forward(
    x, y, x_ids, y_ids, totals, means, part, rows, columns, p_center, p0, p1, p2, p3, p4, q_center, q0, q1, q2, q3, q4,
    K: tl.constexpr, TERMS: tl.constexpr, EXPECTED: tl.constexpr, LEAVE_OUT: tl.constexpr, PIECES: tl.constexpr,
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Store the sums of the anchors `x` over the keys `y`, for exponent P, and for exponent Q if K is 2.

    The exponents are those of powers of 2. `part` is the distance of the results of programs that share the columns.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    row_id = _ids(x_ids, row, rows, LEAVE_OUT)
    p_highest = tl.full([ROWS], -3.4e38, dtype=tl.float32)  # -inf minus itself would be NaN
    p_total = tl.zeros([ROWS], dtype=tl.float32)
    q_highest, p_moment, q_total, q_moment = p_highest, p_total, p_total, p_total
    x0, x1, x2 = _load(x, row, tl.arange(0, DEPTH), PIECES, STRIDE)
    first, last = _columns(columns, COLUMNS)
    for start in range(first, last, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        c = _similarities(x, y, row, column, x0, x1, x2, PIECES, WIDTH, STRIDE, ROWS, COLUMNS, DEPTH)
        kept = _negatives(row, column, columns, row_id, y_ids, LEAVE_OUT)
        value = tl.where(kept, _polynomial(c - p_center, p0, p1, p2, p3, p4, TERMS), -float("inf"))
        p_highest, p_total, p_moment = _add(p_highest, p_total, p_moment, value, c, EXPECTED)
        if K == 2:
            value = tl.where(kept, _polynomial(c - q_center, q0, q1, q2, q3, q4, TERMS), -float("inf"))
            q_highest, q_total, q_moment = _add(q_highest, q_total, q_moment, value, c, EXPECTED)
    place = tl.program_id(2).to(tl.int64) * part + row
    _store(totals + place, means + place, inside, p_highest, p_total, p_moment)
    if K == 2:
        place += rows
        _store(totals + place, means + place, inside, q_highest, q_total, q_moment)


@jit()
def _weight(
    c, p0, p1, p2, p3, p4, dp0, dp1, dp2, dp3, x_total, x_gradient, y_totals, y_gradients, column, columns,
    TERMS, SLOPE_TERMS, AS_ANCHOR, AS_KEY,
):  # fmt: skip
    """Return the derivative of the loss with respect to a tile of similarities, through one exponent.

    `c` is the similarity minus the center of the exponent. With `AS_ANCHOR`, the tile's rows are anchors and contribute
    their sums; with `AS_KEY`, its columns are anchors.
    """
    value = _polynomial(c, p0, p1, p2, p3, p4, TERMS)
    derivative = tl.zeros_like(value)
    if AS_ANCHOR:
        derivative += tl.exp2(value - x_total[:, None]) * x_gradient[:, None]
    if AS_KEY:
        y_total = tl.load(y_totals + column, mask=column < columns, other=0.0)
        y_gradient = tl.load(y_gradients + column, mask=column < columns, other=0.0)
        derivative += tl.exp2(value - y_total[None, :]) * y_gradient[None, :]
    return derivative * _polynomial(c, dp0, dp1, dp2, dp3, 0.0, SLOPE_TERMS)


@jit()
def _backward(
    x, y, x_ids, y_ids, x_totals, x_gradients, y_totals, y_gradients, into, rows, columns,
    p_center, p0, p1, p2, p3, p4, q_center, q0, q1, q2, q3, q4, dp0, dp1, dp2, dp3, dq0, dq1, dq2, dq3,
    K: tl.constexpr, TERMS: tl.constexpr, SLOPE_TERMS: tl.constexpr, AS_ANCHOR: tl.constexpr, AS_KEY: tl.constexpr,
    LEAVE_OUT: tl.constexpr, PIECES: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr,
    OUT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Add to `into` the gradient with respect to `x` from its comparison with `y`, for `OUT` coordinates."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    row_id = _ids(x_ids, row, rows, LEAVE_OUT)
    p_total, p_gradient, q_total, q_gradient = row, row, row, row
    if AS_ANCHOR:
        p_total = tl.load(x_totals + row, mask=inside, other=0.0)
        p_gradient = tl.load(x_gradients + row, mask=inside, other=0.0)
        if K == 2:
            q_total = tl.load(x_totals + rows + row, mask=inside, other=0.0)
            q_gradient = tl.load(x_gradients + rows + row, mask=inside, other=0.0)
    out = tl.arange(0, OUT)
    if WIDTH > OUT:
        out += tl.program_id(1) * OUT
    result = tl.zeros([ROWS, OUT], dtype=tl.float32)
    x0, x1, x2 = _load(x, row, tl.arange(0, DEPTH), PIECES, STRIDE)
    first, last = _columns(columns, COLUMNS)
    for start in range(first, last, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        c = _similarities(x, y, row, column, x0, x1, x2, PIECES, WIDTH, STRIDE, ROWS, COLUMNS, DEPTH)
        weight = _weight(
            c - p_center, p0, p1, p2, p3, p4, dp0, dp1, dp2, dp3, p_total, p_gradient, y_totals, y_gradients,
            column, columns, TERMS, SLOPE_TERMS, AS_ANCHOR, AS_KEY)  # fmt: skip
        if K == 2:
            weight += _weight(
                c - q_center, q0, q1, q2, q3, q4, dq0, dq1, dq2, dq3, q_total, q_gradient, y_totals + columns,
                y_gradients + columns, column, columns, TERMS, SLOPE_TERMS, AS_ANCHOR, AS_KEY)  # fmt: skip
        # Mask after the products, as weights of masked pairs and of anchors without negatives can be infinite.
        weight = tl.where(_negatives(row, column, columns, row_id, y_ids, LEAVE_OUT), weight, 0.0)
        # Tensor cores truncate sums, so that an error of one sign would grow with the number of columns.
        y0, y1, y2 = _load(y, column, out, PIECES, STRIDE)
        w0, w1, w2 = _split(weight, y.dtype.element_ty)
        result += _product(w0, w1, w2, y0, y1, y2, tl.zeros([ROWS, OUT], dtype=tl.float32), PIECES)
    into += tl.program_id(2).to(tl.int64) * rows * WIDTH
    place = row.to(tl.int64)[:, None] * WIDTH + out[None, :]
    mask = inside[:, None] & (out < WIDTH)[None, :]
    tl.store(into + place, tl.load(into + place, mask=mask, other=0.0) + result, mask=mask)
