"""Run all layers of a GIN on the CPU in compiled loops (`_gin.c`).

The loops process blocks of rows that fit into the cache. Threads synchronise twice per layer, for BatchNorm's mean and
variance. The result equals the output of the modules in `graphcl.models.gin` up to rounding, for any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, linear
from torch.utils.dlpack import to_dlpack

from graphcl.distributed.modules import GlobalBatchNorm
from graphcl.errors import InputError
from graphcl.graphs import native
from graphcl.models.aggregate import CSRAdjacency, SegmentIndex, segment_sum
from graphcl.models.perceptron import has_hooks

try:
    from graphcl.models import _gin  # type: ignore[attr-defined]
except ImportError:  # no C compiler was found at installation, so the modules are used
    _gin = None

_WIDEST = 512
View = tuple[Tensor, CSRAdjacency, SegmentIndex]
"""Node features `[N, F]`, edges, and the graph of each node."""


def compiled() -> bool:
    """Return whether the compiled layers are installed and enabled."""
    return _gin is not None and native.enabled


def fused_sums(views: Sequence[View], mlps: Sequence[Any], norms: Sequence[Any], raw: bool) -> Tensor | None:
    """Return the sum-pooled outputs of all L layers, concatenated to `[B, L * H]`; before BatchNorm if `raw`.

    BatchNorm treats each of one or two views separately, and B is the number of graphs in all. Return None if the
    compiled loops do not support the input, so that the caller uses the modules. The loops need float32 on the CPU,
    standard modules without hooks, and no edge between two graphs.
    """
    for x, neighbours, graphs in views:
        if not (
            compiled()
            and x.dtype == torch.float32
            and not x.requires_grad
            and x.size(0) > 1  # for one row, PyTorch's BatchNorm raises the usual error
            and x.size(1) == views[0][0].size(1)
            and graphs.order is None
            and graphs.ptr.numel() > 1
            and x.device.type == "cpu"
            and native.takes(graphs.ptr, *vars(neighbours).values())
        ):
            return None
    if torch.is_autocast_enabled("cpu"):
        return None
    weights = plain_weights(mlps, norms, views[0][0], _WIDEST)
    try:
        return None if weights is None else _FusedSums.apply(views, norms, raw, *weights)
    except _CrossingEdgeError:
        return None


def plain_weights(mlps: Sequence[Any], norms: Sequence[Any], x: Tensor, widest: int) -> list[Tensor] | None:
    """Return the weights of all layers, or None if a module is not of the plain form that fused layers support.

    For each layer, they are the weight and bias of both linear maps and of BatchNorm. All are on the device of `x`.
    """
    weights: list[Tensor] = []
    width, device = x.size(1), x.device
    for mlp, norm in zip(mlps, norms, strict=True):
        layers, hidden = list(mlp._modules.values()), getattr(norm, "num_features", 0)
        if not (
            [type(layer) for layer in layers] == [nn.Linear, nn.ReLU, nn.Linear]
            and (type(norm) is nn.BatchNorm1d or (type(norm) is GlobalBatchNorm and norm.is_usual))
            and norm.momentum is not None
            and norm.track_running_stats
            and all(
                getattr(norm, key) == getattr(norms[0], key) for key in ("training", "eps", "momentum", "num_features")
            )
            and hidden % 16 == 0
            and hidden <= widest
            and not has_hooks(mlp, *layers, norm)
        ):
            return None
        first, _, second = (layer._parameters for layer in layers)  # `layer.weight` takes ten times as long
        of_norm, statistics = norm._parameters, norm._buffers
        of_layer: list[Any] = [of[name] for of in (first, second, of_norm) for name in ("weight", "bias")]
        shapes = (hidden, width), (hidden,), (hidden, hidden), (hidden,), (hidden,), (hidden,)
        for weight, shape in zip(of_layer, shapes, strict=True):
            if weight is None or weight.shape != shape or weight.dtype != torch.float32 or weight.device != device:
                return None
        for values in (statistics["running_mean"], statistics["running_var"]):
            if values is None or values.shape != (hidden,) or values.dtype != torch.float32 or values.device != device:
                return None  # BatchNorm raises the usual error
        if statistics["num_batches_tracked"] is None:
            return None
        weights += of_layer
        width = hidden
    return weights


class _CrossingEdgeError(Exception):
    """Error: an edge connects two graphs, which the compiled loops do not support."""


class _FusedSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, views: Sequence[View], norms: Sequence[Any], raw: bool, *weights: Tensor) -> Tensor:
        hidden, layers = norms[0].num_features, len(norms)
        sizes = [graphs.ptr.numel() - 1 for _, _, graphs in views]
        sums = weights[0].new_empty(sum(sizes), layers * hidden)
        moments = sums.new_empty(len(views), 3, layers, hidden)
        of_layers = [weight.contiguous() for weight in weights]
        for level in reversed(range(layers)):
            of_layers[6 * level + 6 : 6 * level + 6] = norms[level]._buffers.values()
        arrays: list[Tensor] = []
        saved = [moments, *weights]
        for (x, neighbours, graphs), pools in zip(views, sums.split(sizes), strict=True):
            n, width = x.shape
            of_view = [graphs.ptr, *vars(neighbours).values(), x.contiguous()]
            # Saved for the gradient, per layer: neighbour sums (padded to 16 columns), hidden rows and outputs.
            widths = [-(-width // 16) * 16] + [hidden] * (layers - 1)
            kept = [rows for padded in widths for rows in (x.new_empty(n, padded), x.new_empty(2, n, hidden))]
            arrays += [*of_view, pools, *kept]
            saved += [graphs.ids, *of_view, *kept]
        ctx.norms, ctx.training, ctx.raw, ctx.sizes = norms, norms[0].training, raw, sizes
        if not _call(_gin.forward, ctx, *of_layers, moments, *arrays):
            raise _CrossingEdgeError
        ctx.save_for_backward(*saved)
        return sums

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        moments, *saved = ctx.saved_tensors  # read once, as checkpointing requires
        layers, of_view = len(ctx.norms), 7 + 2 * len(ctx.norms)
        weights, rest = saved[: 6 * layers], saved[6 * layers :]
        views = [rest[start : start + of_view] for start in range(0, len(rest), of_view)]
        if torch.is_grad_enabled():  # double backward, which the loops do not support
            sums = []
            for ids, ptr, *csr, x in (view[:7] for view in views):
                index = CSRAdjacency(*csr), SegmentIndex(ids, None, ptr)
                sums.append(by_torch(x, *index, ctx.norms, weights, [x.size(0)], ctx.training, ctx.raw))
            wanted = ctx.needs_input_grad[3:]
            needed = [weight for weight, needs in zip(weights, wanted, strict=True) if needs]
            # with `raw`, the last BatchNorm is unused
            found = iter(torch.autograd.grad(torch.cat(sums), needed, grad, create_graph=True, allow_unused=True))
            return *[None] * 3, *(next(found) if needs else None for needs in wanted)
        grads = [weight.new_empty(weight.shape) for weight in weights]
        of_layers: list[Tensor] = []
        for start in range(0, len(weights), 6):
            of_layers += [*(weight.contiguous() for weight in weights[start : start + 6]), *grads[start : start + 6]]
        arrays: list[Tensor] = []
        try:  # autograd detects neither changes by NumPy nor a storage that has shrunk
            for (_, *inputs), pools in zip(views, grad.contiguous().split(ctx.sizes), strict=True):
                for tensor in inputs[:6]:
                    end = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
                    if tensor.numel() and end > tensor.untyped_storage().nbytes():
                        raise ValueError
                arrays += [*inputs[:6], pools, *inputs[6:]]
            _call(_gin.backward, ctx, *of_layers, moments, *arrays)
        except ValueError:
            raise InputError(
                "`x` or `edge_index` was changed between the forward and the backward pass; change a copy instead."
            ) from None
        return *[None] * 3, *grads


def _call(loop: Any, ctx: Any, *arrays: Tensor) -> bool:
    """Run the compiled function `loop` on `arrays`; return False if an edge connects two graphs."""
    norm, sizes = ctx.norms[0], (len(ctx.sizes), len(ctx.norms), ctx.norms[0].num_features)
    threads = torch.get_num_threads()
    return loop(tuple(map(to_dlpack, arrays)), *sizes, ctx.training, ctx.raw, threads, norm.eps, norm.momentum)


def by_torch(
    x: Tensor, neighbours: CSRAdjacency, graphs: SegmentIndex, norms: Sequence[Any], weights: Sequence[Tensor],
    sizes: Sequence[int], training: bool, raw: bool,
) -> Tensor:  # fmt: skip
    """Return the output of fused layers, computed by torch's operations; do not update running statistics.

    `sizes` are the numbers of rows in blocks that BatchNorm treats separately; for `raw`, see `fused_sums`.
    """
    pools = []
    for level, norm in enumerate(norms):
        w1, b1, w2, b2, scale, shift = weights[6 * level : 6 * level + 6]
        out = linear(linear(neighbours.sum(x, with_self=True), w1, b1).relu(), w2, b2).relu()
        mean, var = (None, None) if training else (norm.running_mean, norm.running_var)
        blocks = out.split(list(sizes))
        x = torch.cat([batch_norm(block, mean, var, scale, shift, training, 0.0, norm.eps) for block in blocks])
        pools.append(segment_sum(out if raw else x, graphs))
    return torch.cat(pools, dim=1)
