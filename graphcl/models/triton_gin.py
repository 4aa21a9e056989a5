"""Run all layers of a GIN on CUDA in few Triton kernels, forward and backward.

A layer takes two kernels forward. One sums each row with its neighbours' rows, applies the perceptron and ReLU, and
computes the moments of its block; the other merges the moments of all blocks for BatchNorm. Normalised rows are never
stored: BatchNorm is an affine map, so the next layer applies it to the sums, and the readout to the pooled rows.
Backward, a layer takes three: the gradients of rows with BatchNorm's sums, their merging, and the perceptron's
gradients. No two programs write to the same address, so results are deterministic.

Blocks of rows belong to one or two views with statistics of their own. Only the first n rows of a view are read, where
n may be known to the device only; the rest is padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphcl.graphs import native
from graphcl.models.aggregate import CSRAdjacency, SegmentIndex
from graphcl.models.batchnorm import Padding, Parts, part_sizes
from graphcl.models.compiled import by_torch, plain_weights
from graphcl.system.kernels import jit, tl, triton

kernel = jit("first_blocks", "second_row", "blocks")

WIDEST_INPUT, WIDEST = 128, 32
"""Largest width of the input and of the layers; wider ones would not fit into registers and shared memory."""
ROWS = 32
"""Rows of a block: with more, registers spill (see the compiled kernels)."""
PRECISION = {"highest": "ieee", "high": "tf32x3", "medium": "tf32"}
"""Precision of products for each value of `torch.get_float32_matmul_precision()`."""


def fused_sums(
    x: Tensor, neighbours: CSRAdjacency, graphs: SegmentIndex, mlps: Sequence[Any], norms: Sequence[Any], parts: Parts
) -> Tensor | None:
    """Return the sum-pooled outputs of all L layers, concatenated to `[B, L * H]`; `parts` as in `GraphEncoder`.

    Return None if the kernels do not support the input, so that the caller uses the modules. They need Triton, float32
    and standard modules without hooks; with running statistics, they compute no gradients.
    """
    sizes = part_sizes(parts or [x.size(0)])
    if not (
        native.enabled
        and x.dtype == torch.float32
        and not x.requires_grad
        and x.size(1) <= WIDEST_INPUT
        and len(sizes) <= 2
        and min(sizes) > 1  # for one row, PyTorch's BatchNorm raises the usual error
        and graphs.ptr.numel() > 1
        and not torch.is_autocast_enabled(x.device.type)
        and (norms[0].training or not torch.is_grad_enabled())
        and torch.cuda.get_device_capability(x.device) >= (8, 0)
        and triton is not None
    ):
        return None
    weights = plain_weights(mlps, norms, x, WIDEST)
    with torch.cuda.device_of(x):  # Triton launches on the current device
        return None if weights is None else sums(x, neighbours, graphs, norms, weights, parts)


@dataclass(frozen=True)
class Views:
    """Division of N rows into one or two views, and of these into blocks of rows."""

    real: Tensor
    """Number of rows of each view, without padding, `[V]` in int32."""
    second_row: int
    """First row of the second view; N if there is one view."""
    first_blocks: int
    """Blocks of the first view."""
    blocks: int
    """Blocks of both."""

    @classmethod
    def of(cls, count: int, parts: Parts, device: torch.device) -> Views:
        """Return the views of `count` rows; `parts` as in `GraphEncoder.forward`, of one or two views."""
        parts = parts or [count]
        sizes = part_sizes(parts)
        real = [part.counts.sum()[None] for part in parts if isinstance(part, Padding)]
        counts = torch.cat(real).int() if real else torch.tensor(sizes, dtype=torch.int32).to(device, non_blocking=True)
        blocks = [triton.cdiv(size, ROWS) for size in sizes]
        return cls(counts, sizes[0], blocks[0], sum(blocks))

    @property
    def place(self) -> dict[str, Any]:
        """Arguments by which a kernel finds the rows of a block."""
        views = {"real": self.real, "first_blocks": self.first_blocks, "VIEWS": self.real.numel()}
        return {**views, "second_row": self.second_row, "ROWS": ROWS}

    @property
    def merging(self) -> dict[str, Any]:
        """Arguments by which a kernel merges all blocks; the last two are the blocks and warps at a time."""
        views = {"real": self.real, "first_blocks": self.first_blocks, "VIEWS": self.real.numel()}
        many = self.blocks > 1024
        return {**views, "blocks": self.blocks, "BLOCKS": 1024 if many else 128, "num_warps": 8 if many else 4}


def sums(
    x: Tensor, neighbours: CSRAdjacency, graphs: SegmentIndex, norms: Sequence[Any], weights: Sequence[Tensor],
    parts: Parts,
) -> Tensor:  # fmt: skip
    """Return the sum-pooled outputs of all L layers, concatenated to `[B, L * H]`; update BatchNorm's statistics.

    `weights` are, for each layer, those of both linear maps with their biases, and BatchNorm's weight and bias.
    """
    if norms[0].training:
        counts = [norm.num_batches_tracked for norm in norms if norm.num_batches_tracked is not None]
        if counts:
            torch._foreach_add_(counts, 1 if parts is None else len(parts))
    views = Views.of(x.size(0), parts, x.device)
    return _Sums.apply(x.contiguous(), neighbours, graphs, views, norms, *weights)


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, neighbours: CSRAdjacency, graphs: SegmentIndex, views: Views, norms: Sequence[Any],
        *weights: Tensor,
    ) -> Tensor:  # fmt: skip
        count, hidden, layers = x.size(0), norms[0].num_features, len(norms)
        added = [x.new_empty(count, width) for width in (x.size(1), *[hidden] * (layers - 1))]
        between, out = x.new_empty(2, layers, count, hidden)
        moments = x.new_empty(layers, 4, views.real.numel(), hidden)
        partial = x.new_empty(views.blocks, 2, hidden)
        source = x
        for level, norm in enumerate(norms):
            before = moments[level - 1] if level else moments[0]
            shape = _shape(source.size(1), hidden)
            _layer[(views.blocks,)](
                source, before, neighbours.sources, neighbours.target_ptr, *weights[6 * level : 6 * level + 4],
                added[level], between[level], out[level], partial, **views.place, **shape, FIRST=level == 0,
            )  # fmt: skip
            if norm.training:
                _merge[(triton.cdiv(hidden, 8),)](
                    partial, norm.weight, norm.bias, norm.running_mean, norm.running_var, moments[level],
                    float(norm.momentum), float(norm.eps), HIDDEN=hidden, ROWS=ROWS, **views.merging,
                )  # fmt: skip
            else:  # mean, inverse deviation, scale and shift
                inverse = (norm.running_var + norm.eps).rsqrt()
                scale = norm.weight * inverse
                columns = [norm.running_mean, inverse, scale, norm.bias - norm.running_mean * scale]
                torch.stack(columns, out=moments[level, :, 0])
            source = out[level]
        pooled = x.new_empty(graphs.ptr.numel() - 1, layers * hidden)
        order = graphs.ids if graphs.order is None else graphs.order
        _pool[(pooled.size(0), layers)](
            out, moments, graphs.ptr, order, pooled, count, views.second_row, SORTED=graphs.order is None,
            VIEWS=views.real.numel(), LAYERS=layers, HIDDEN=hidden, H=_padded(hidden), ROWS=ROWS,
        )  # fmt: skip
        ctx.save_for_backward(x, *vars(neighbours).values(), graphs.ids, between, out, moments, *added, *weights)
        ctx.views, ctx.norms, ctx.graphs = views, norms, graphs
        return pooled

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        layers, views = len(ctx.norms), ctx.views
        x, *edges, ids, between, out, moments = (saved := ctx.saved_tensors)[:9]
        added, weights = saved[9 : 9 + layers], saved[9 + layers :]
        neighbours = CSRAdjacency(*edges)
        if torch.is_grad_enabled():  # double backward
            sizes = [size for size in (views.second_row, x.size(0) - views.second_row) if size]
            again = by_torch(x, neighbours, ctx.graphs, ctx.norms, weights, sizes, training=True, raw=False)
            return *[None] * 5, *torch.autograd.grad(again, weights, grad, create_graph=True)
        grad, hidden = grad.contiguous(), out.size(2)
        of_rows, partial = torch.empty_like(out[0]), x.new_empty(views.blocks, 2, hidden)
        of_sums, means = out[0], x.new_empty(2, views.real.numel(), hidden)  # `out` only as any tensor
        grads_of_weights: list[Tensor] = []
        for level in reversed(range(layers)):
            shape = _shape(added[level].size(1), hidden)
            _row_gradients[(views.blocks,)](
                grad, ids, of_sums, neighbours.targets, neighbours.source_ptr, out[level], moments[level], of_rows,
                partial, level, **views.place, HIDDEN=hidden, H=_padded(hidden), LAYERS=layers,
                LAST=level == layers - 1,
            )  # fmt: skip
            of_norm = x.new_empty(2, hidden)
            _mean_gradients[(triton.cdiv(hidden, 8),)](partial, means, of_norm, HIDDEN=hidden, **views.merging)
            programs = min(views.blocks, 256)
            sizes = [hidden * added[level].size(1), hidden, hidden * hidden, hidden]
            grads = x.new_empty(programs, sum(sizes))
            of_sums = torch.empty_like(added[level]) if level else of_sums
            _perceptron_gradients[(programs,)](
                of_rows, out[level], between[level], added[level], moments[level], means, weights[6 * level],
                weights[6 * level + 2], of_sums, grads, views.blocks, programs, **views.place, **shape,
                FIRST=level == 0,
            )  # fmt: skip
            of_layer = zip([*grads.sum(0).split(sizes), *of_norm], weights[6 * level : 6 * level + 6], strict=True)
            grads_of_weights = [part.view_as(weight) for part, weight in of_layer] + grads_of_weights
        return *[None] * 5, *grads_of_weights


def _padded(width: int) -> int:
    return max(16, triton.next_power_of_2(width))


def _shape(width: int, hidden: int) -> dict[str, Any]:
    w, h = _padded(width), _padded(hidden)
    # FP fusion: one instruction and one rounding for a product and a sum. From Triton 3.10 on, it is off by default.
    options = {"num_warps": 4 if h * (w + h) <= 4096 else 8, "enable_fp_fusion": True}
    precision = PRECISION[torch.get_float32_matmul_precision()]
    return {"WIDTH": width, "HIDDEN": hidden, "W": w, "H": h, "PRECISION": precision} | options


# -- kernels -----------------------------------------------------------------------------------------------------------


@kernel
def _rows(block, real, first_blocks, second_row, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the view of a block, its rows, and a mask of the rows that are not padding."""
    view = (block >= first_blocks).to(tl.int32)
    local = (block - view * first_blocks) * ROWS + tl.arange(0, ROWS)
    return view, (view * second_row + local).to(tl.int64), local < tl.load(real + view)


@kernel
def _add_neighbours(total, x, index, ptr, row, valid, column, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return `total` plus the sum of the rows of `x` that `index` names for each row."""
    start = tl.load(ptr + row, mask=valid, other=0)
    stop = tl.load(ptr + row + 1, mask=valid, other=0)
    most = tl.max(stop - start, 0).to(tl.int32)
    for first in range(0, most, 4):
        for step in tl.static_range(4):
            at = start + first + step
            inside = at < stop
            source = tl.load(index + at, mask=inside, other=0)
            mask = inside[:, None] & (column < WIDTH)[None, :]
            # Triton 3.6 does not compile a masked load here.
            value = tl.load(x + source[:, None] * WIDTH + tl.minimum(column, WIDTH - 1)[None, :])
            total += tl.where(mask, value, 0.0)
    return total


@kernel
def _layer(  # type: ignore[no-untyped-def]
    x, before, index, ptr, w1, b1, w2, b2, added, between, out, partial, real, first_blocks, second_row,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr, W: tl.constexpr, H: tl.constexpr,
    VIEWS: tl.constexpr, FIRST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the neighbour sums, hidden rows and outputs of a block, and the mean and squared deviations of outputs."""
    block = tl.program_id(0)
    view, row, valid = _rows(block, real, first_blocks, second_row, ROWS)
    column, unit = tl.arange(0, W), tl.arange(0, H)
    place = row[:, None] * WIDTH + column[None, :]
    mask = valid[:, None] & (column < WIDTH)[None, :]
    total = _add_neighbours(tl.load(x + place, mask=mask, other=0.0), x, index, ptr, row, valid, column, WIDTH)
    if not FIRST:  # BatchNorm of the layer before
        number = tl.load(ptr + row + 1, mask=valid, other=0) - tl.load(ptr + row, mask=valid, other=0) + 1
        scale = tl.load(before + (2 * VIEWS + view) * WIDTH + column, mask=column < WIDTH, other=0.0)
        shift = tl.load(before + (3 * VIEWS + view) * WIDTH + column, mask=column < WIDTH, other=0.0)
        total = total * scale[None, :] + number.to(tl.float32)[:, None] * shift[None, :]
        total = tl.where(mask, total, 0.0)
    tl.store(added + place, total, mask=mask)
    used = unit < HIDDEN
    first = tl.load(
        w1 + unit[None, :] * WIDTH + column[:, None], mask=used[None, :] & (column < WIDTH)[:, None], other=0.0
    )
    hidden = tl.dot(total, first, input_precision=PRECISION) + tl.load(b1 + unit, mask=used, other=0.0)[None, :]
    hidden = tl.maximum(hidden, 0.0)
    place = row[:, None] * HIDDEN + unit[None, :]
    mask = valid[:, None] & used[None, :]
    tl.store(between + place, hidden, mask=mask)
    second = tl.load(w2 + unit[None, :] * HIDDEN + unit[:, None], mask=used[None, :] & used[:, None], other=0.0)
    result = tl.dot(hidden, second, input_precision=PRECISION) + tl.load(b2 + unit, mask=used, other=0.0)[None, :]
    result = tl.where(mask, tl.maximum(result, 0.0), 0.0)
    tl.store(out + place, result, mask=mask)
    number = tl.maximum(tl.sum(valid.to(tl.float32), 0), 1.0)
    mean = tl.sum(result, 0) / number
    away = tl.where(mask, result - mean[None, :], 0.0)
    tl.store(partial + 2 * block * HIDDEN + unit, mean, mask=used)
    tl.store(partial + (2 * block + 1) * HIDDEN + unit, tl.sum(away * away, 0), mask=used)


@kernel
def _merge(  # type: ignore[no-untyped-def]
    partial, weight, bias, running_mean, running_var, into, momentum, eps, real, first_blocks, blocks,
    HIDDEN: tl.constexpr, ROWS: tl.constexpr, VIEWS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Merge the moments of blocks to mean, inverse deviation, scale and shift; update the running statistics."""
    column = tl.program_id(0) * 8 + tl.arange(0, 8)
    used = column < HIDDEN
    mean_so_far = tl.load(running_mean + column, mask=used, other=0.0)
    variance_so_far = tl.load(running_var + column, mask=used, other=0.0)
    for view in tl.static_range(VIEWS):
        count = tl.load(real + view).to(tl.float64)
        start = view * first_blocks
        stop = blocks if view == VIEWS - 1 else first_blocks
        total = tl.zeros([8], dtype=tl.float64)
        squares = tl.zeros([8], dtype=tl.float64)
        for at in range(start, stop, BLOCKS):
            block = at + tl.arange(0, BLOCKS)
            place = 2 * block[:, None] * HIDDEN + column[None, :]
            mask = (block < stop)[:, None] & used[None, :]
            of_block = tl.load(partial + place, mask=mask, other=0.0).to(tl.float64)
            away = tl.load(partial + place + HIDDEN, mask=mask, other=0.0).to(tl.float64)
            rows = tl.minimum(tl.maximum(count - (block - start) * ROWS, 0.0), 1.0 * ROWS)[:, None]
            total += tl.sum(rows * of_block, 0)
            squares += tl.sum(away + rows * of_block * of_block, 0)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (1.0 / tl.sqrt(variance + eps)).to(tl.float32)
        scale = inverse * tl.load(weight + column, mask=used, other=0.0)
        shift = tl.load(bias + column, mask=used, other=0.0) - mean.to(tl.float32) * scale
        tl.store(into + view * HIDDEN + column, mean.to(tl.float32), mask=used)
        tl.store(into + (VIEWS + view) * HIDDEN + column, inverse, mask=used)
        tl.store(into + (2 * VIEWS + view) * HIDDEN + column, scale, mask=used)
        tl.store(into + (3 * VIEWS + view) * HIDDEN + column, shift, mask=used)
        unbiased = (variance * count / (count - 1.0)).to(tl.float32)
        mean_so_far += momentum * (mean.to(tl.float32) - mean_so_far)
        variance_so_far += momentum * (unbiased - variance_so_far)
    tl.store(running_mean + column, mean_so_far, mask=used)
    tl.store(running_var + column, variance_so_far, mask=used)


@kernel
def _pool(  # type: ignore[no-untyped-def]
    out, moments, ptr, order, pooled, count, second_row,
    SORTED: tl.constexpr, VIEWS: tl.constexpr, LAYERS: tl.constexpr, HIDDEN: tl.constexpr, H: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Write the sum of a graph's normalised rows of one layer."""
    graph, level, unit = tl.program_id(0), tl.program_id(1), tl.arange(0, H)
    used = unit < HIDDEN
    start, stop = tl.load(ptr + graph), tl.load(ptr + graph + 1)
    total = tl.zeros([ROWS, H], dtype=tl.float32)
    row = start + tl.arange(0, ROWS)
    for first in range(0, (stop - start).to(tl.int32), ROWS):
        at = start + first + tl.arange(0, ROWS)
        row = at if SORTED else tl.load(order + at, mask=at < stop, other=0)
        place = (level.to(tl.int64) * count + row)[:, None] * HIDDEN + unit[None, :]
        total += tl.load(out + place, mask=(at < stop)[:, None] & used[None, :], other=0.0)
    view = 0
    if VIEWS == 2 and start < stop:
        view = ((start if SORTED else tl.load(order + start)) >= second_row).to(tl.int32)
    moment = moments + level * 4 * VIEWS * HIDDEN + view * HIDDEN + unit
    scale = tl.load(moment + 2 * VIEWS * HIDDEN, mask=used, other=0.0)
    shift = tl.load(moment + 3 * VIEWS * HIDDEN, mask=used, other=0.0)
    value = tl.sum(total, 0) * scale + (stop - start).to(tl.float32) * shift
    tl.store(pooled + (graph.to(tl.int64) * LAYERS + level) * HIDDEN + unit, value, mask=used)


@kernel
def _row_gradients(  # type: ignore[no-untyped-def]
    grad, ids, of_sums, index, ptr, out, moments, into, partial, level, real, first_blocks, second_row,
    ROWS: tl.constexpr, HIDDEN: tl.constexpr, H: tl.constexpr, VIEWS: tl.constexpr, LAYERS: tl.constexpr,
    LAST: tl.constexpr,
):  # fmt: skip
    """Write the gradients of normalised rows, and a block's sums of them and of their products with these rows."""
    block, unit = tl.program_id(0), tl.arange(0, H)
    view, row, valid = _rows(block, real, first_blocks, second_row, ROWS)
    used = unit < HIDDEN
    mask = valid[:, None] & used[None, :]
    place = row[:, None] * HIDDEN + unit[None, :]
    graph = tl.load(ids + row, mask=valid, other=0)
    value = tl.load(grad + (graph * LAYERS + level)[:, None] * HIDDEN + unit[None, :], mask=mask, other=0.0)
    if not LAST:
        value += tl.load(of_sums + place, mask=mask, other=0.0)
        value = _add_neighbours(value, of_sums, index, ptr, row, valid, unit, HIDDEN)
    mean = tl.load(moments + view * HIDDEN + unit, mask=used, other=0.0)
    inverse = tl.load(moments + (VIEWS + view) * HIDDEN + unit, mask=used, other=0.0)
    normal = (tl.load(out + place, mask=mask, other=0.0) - mean[None, :]) * inverse[None, :]
    tl.store(into + place, value, mask=mask)
    tl.store(partial + 2 * block * HIDDEN + unit, tl.sum(value, 0), mask=used)
    tl.store(partial + (2 * block + 1) * HIDDEN + unit, tl.sum(value * normal, 0), mask=used)


@kernel
def _mean_gradients(  # type: ignore[no-untyped-def]
    partial, means, of_norm, real, first_blocks, blocks,
    HIDDEN: tl.constexpr, VIEWS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Write the means of both sums over each view, and over all views the gradients of BatchNorm's weight and bias."""
    column = tl.program_id(0) * 8 + tl.arange(0, 8)
    used = column < HIDDEN
    of_weight = tl.zeros([8], dtype=tl.float32)
    of_bias = tl.zeros([8], dtype=tl.float32)
    for view in tl.static_range(VIEWS):
        start = view * first_blocks
        stop = blocks if view == VIEWS - 1 else first_blocks
        total = tl.zeros([8], dtype=tl.float32)
        products = tl.zeros([8], dtype=tl.float32)
        for at in range(start, stop, BLOCKS):
            block = at + tl.arange(0, BLOCKS)
            place = 2 * block[:, None] * HIDDEN + column[None, :]
            mask = (block < stop)[:, None] & used[None, :]
            total += tl.sum(tl.load(partial + place, mask=mask, other=0.0), 0)
            products += tl.sum(tl.load(partial + place + HIDDEN, mask=mask, other=0.0), 0)
        count = tl.load(real + view).to(tl.float32)
        tl.store(means + view * HIDDEN + column, total / count, mask=used)
        tl.store(means + (VIEWS + view) * HIDDEN + column, products / count, mask=used)
        of_bias += total
        of_weight += products
    tl.store(of_norm + column, of_weight, mask=used)
    tl.store(of_norm + HIDDEN + column, of_bias, mask=used)


@kernel
def _perceptron_gradients(  # type: ignore[no-untyped-def]
    of_rows, out, between, added, moments, means, w1, w2, of_sums, grads, blocks, programs, real, first_blocks,
    second_row, ROWS: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr, W: tl.constexpr, H: tl.constexpr,
    VIEWS: tl.constexpr, FIRST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of neighbour sums, and a program's share of the gradients of weights and biases."""
    program, column, unit = tl.program_id(0), tl.arange(0, W), tl.arange(0, H)
    used, inside = unit < HIDDEN, column < WIDTH
    first = tl.load(w1 + unit[:, None] * WIDTH + column[None, :], mask=used[:, None] & inside[None, :], other=0.0)
    second = tl.load(w2 + unit[:, None] * HIDDEN + unit[None, :], mask=used[:, None] & used[None, :], other=0.0)
    of_w1 = tl.zeros([H, W], dtype=tl.float32)
    of_w2 = tl.zeros([H, H], dtype=tl.float32)
    of_b1 = tl.zeros([H], dtype=tl.float32)
    of_b2 = tl.zeros([H], dtype=tl.float32)
    for block in range(program, blocks, programs):
        view, row, valid = _rows(block, real, first_blocks, second_row, ROWS)
        mask = valid[:, None] & used[None, :]
        place = row[:, None] * HIDDEN + unit[None, :]
        mean = tl.load(moments + view * HIDDEN + unit, mask=used, other=0.0)[None, :]
        inverse = tl.load(moments + (VIEWS + view) * HIDDEN + unit, mask=used, other=0.0)[None, :]
        scale = tl.load(moments + (2 * VIEWS + view) * HIDDEN + unit, mask=used, other=0.0)[None, :]
        mean_grad = tl.load(means + view * HIDDEN + unit, mask=used, other=0.0)[None, :]
        mean_product = tl.load(means + (VIEWS + view) * HIDDEN + unit, mask=used, other=0.0)[None, :]
        rows = tl.load(out + place, mask=mask, other=0.0)
        of_out = tl.load(of_rows + place, mask=mask, other=0.0)
        of_out = (of_out - mean_grad - (rows - mean) * inverse * mean_product) * scale
        of_out = tl.where(mask & (rows > 0.0), of_out, 0.0)
        hidden = tl.load(between + place, mask=mask, other=0.0)
        of_hidden = tl.dot(of_out, second, input_precision=PRECISION)
        of_hidden = tl.where(hidden > 0.0, of_hidden, 0.0)
        place = row[:, None] * WIDTH + column[None, :]
        mask = valid[:, None] & inside[None, :]
        total = tl.load(added + place, mask=mask, other=0.0)
        if not FIRST:
            tl.store(of_sums + place, tl.dot(of_hidden, first, input_precision=PRECISION), mask=mask)
        of_w1 = tl.dot(tl.trans(of_hidden), total, of_w1, input_precision=PRECISION)
        of_w2 = tl.dot(tl.trans(of_out), hidden, of_w2, input_precision=PRECISION)
        of_b1 += tl.sum(of_hidden, 0)
        of_b2 += tl.sum(of_out, 0)
    size = HIDDEN * (WIDTH + HIDDEN + 2)
    here = grads + program.to(tl.int64) * size
    tl.store(here + unit[:, None] * WIDTH + column[None, :], of_w1, mask=used[:, None] & inside[None, :])
    here += HIDDEN * WIDTH
    tl.store(here + unit, of_b1, mask=used)
    here += HIDDEN
    tl.store(here + unit[:, None] * HIDDEN + unit[None, :], of_w2, mask=used[:, None] & used[None, :])
    here += HIDDEN * HIDDEN
    tl.store(here + unit, of_b2, mask=used)
