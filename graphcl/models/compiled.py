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


def compiled() -> bool:
    """Return whether the compiled layers are installed and enabled."""
    return _gin is not None and native.enabled


def fused_sums(
    x: Tensor, neighbours: CSRAdjacency, graphs: SegmentIndex, mlps: Sequence[Any], norms: Sequence[Any], raw: bool
) -> Tensor | None:
    """Return the sum-pooled outputs of all L layers, concatenated to `[B, L * H]`; before BatchNorm if `raw`.

    Return None if the compiled loops do not support the input, so that the caller uses the modules. The loops need
    float32 on the CPU, standard modules without hooks, and no edge between two graphs.
    """
    if not (
        compiled()
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and not x.requires_grad
        and x.size(0) > 1  # for one row, PyTorch's BatchNorm raises the usual error
        and graphs.order is None
        and graphs.ptr.numel() > 1
        and native.takes(graphs.ptr, *vars(neighbours).values())
        and not torch.is_autocast_enabled("cpu")
    ):
        return None
    weights = plain_weights(mlps, norms, x, _WIDEST)
    if weights is None:
        return None
    try:
        return _FusedSums.apply(x.contiguous(), neighbours, graphs, norms, raw, *weights)
    except _CrossingEdgeError:
        return None


def plain_weights(mlps: Sequence[Any], norms: Sequence[Any], x: Tensor, widest: int) -> list[Tensor] | None:
    """Return the weights of all layers, or None if a module is not of the plain form that fused layers support.

    For each layer, they are the weight and bias of both linear maps and of BatchNorm. All are on the device of `x`.
    """
    if len({tuple(getattr(norm, key, None) for key in ("training", "eps", "num_features")) for norm in norms}) != 1:
        return None
    weights: list[Tensor] = []
    width = x.size(1)
    for mlp, norm in zip(mlps, norms, strict=True):
        layers, hidden = list(mlp), getattr(norm, "num_features", 0)
        if not (
            [type(layer) for layer in layers] == [nn.Linear, nn.ReLU, nn.Linear]
            and (type(norm) is nn.BatchNorm1d or (type(norm) is GlobalBatchNorm and norm.is_usual))
            and norm.momentum is not None
            and norm.track_running_stats
            and hidden % 16 == 0
            and hidden <= widest
            # otherwise, BatchNorm raises the usual error
            and all(value is not None and value.shape == (hidden,) for value in (norm.running_mean, norm.running_var))
            and not has_hooks(mlp, *layers, norm)
        ):
            return None
        first, _, second = layers
        of_layer = first.weight, first.bias, second.weight, second.bias, norm.weight, norm.bias
        shapes = (hidden, width), (hidden,), (hidden, hidden), (hidden,), (hidden,), (hidden,)
        for weight, shape in zip(of_layer, shapes, strict=True):
            if weight is None or weight.shape != shape or weight.dtype != torch.float32 or weight.device != x.device:
                return None
        weights += of_layer
        width = hidden
    return weights


class _CrossingEdgeError(Exception):
    """Error: an edge connects two graphs, which the compiled loops do not support."""


class _FusedSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, neighbours: CSRAdjacency, graphs: SegmentIndex, norms: Any, raw: bool, *weights: Tensor
    ) -> Tensor:
        (n, width), hidden, layers, training = x.shape, norms[0].num_features, len(norms), norms[0].training
        sums = x.new_empty(graphs.ptr.numel() - 1, layers * hidden)
        # Saved for the gradient, per layer: neighbour sums (padded to 16 columns), hidden rows and outputs.
        widths = [-(-width // 16) * 16] + [hidden] * (layers - 1)
        kept = [rows for padded in widths for rows in (x.new_empty(n, padded), x.new_empty(2, n, hidden))]
        moments = x.new_empty(3, layers, hidden)
        means, deviations, variances = moments
        if not training:
            for level, norm in enumerate(norms):
                means[level], deviations[level] = norm.running_mean, (norm.running_var + norm.eps).rsqrt()
        flat = torch.cat([weight.reshape(-1) for weight in weights])
        inputs, work = (graphs.ptr, *vars(neighbours).values(), x, flat), x.new_empty(n, hidden)
        if not _call(_gin.forward, norms, training, raw, *inputs, sums, moments, work, x.new_empty(0), *kept):
            raise _CrossingEdgeError
        if training:
            for norm, mean, var in zip(norms, means, variances * (n / (n - 1)), strict=True):
                # as torch's own BatchNorm, without a new version: it keeps them for a gradient that does not read them
                norm.running_mean.data.lerp_(mean, norm.momentum)
                norm.running_var.data.lerp_(var, norm.momentum)
                if norm.num_batches_tracked is not None:
                    norm.num_batches_tracked.add_(1)
        ctx.save_for_backward(*inputs, graphs.ids, moments, *kept, *weights)
        ctx.norms, ctx.training, ctx.raw = norms, training, raw
        return sums

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # read once, as checkpointing requires
        inputs, (ids, moments, *rest) = saved[:7], saved[7:]
        kept, weights = rest[: 2 * len(ctx.norms)], rest[2 * len(ctx.norms) :]
        x, hidden = inputs[5], ctx.norms[0].num_features
        if torch.is_grad_enabled():  # double backward, which the loops do not support
            neighbours, graphs = CSRAdjacency(*inputs[1:5]), SegmentIndex(ids, None, inputs[0])
            sums = by_torch(x, neighbours, graphs, ctx.norms, weights, [x.size(0)], ctx.training, ctx.raw)
            return *[None] * 5, *torch.autograd.grad(sums, weights, grad, create_graph=True)
        grads, work = x.new_empty(sum(weight.numel() for weight in weights)), x.new_empty(2, x.size(0), hidden)
        try:  # autograd detects neither changes by NumPy nor a storage that has shrunk
            for tensor in inputs:
                end = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
                if tensor.numel() and end > tensor.untyped_storage().nbytes():
                    raise ValueError
            arrays = *inputs, grad.contiguous(), moments, work, grads, *kept
            _call(_gin.backward, ctx.norms, ctx.training, ctx.raw, *arrays)
        except ValueError:
            raise InputError(
                "`x` or `edge_index` was changed between the forward and the backward pass; change a copy instead."
            ) from None
        parts = grads.split([weight.numel() for weight in weights])
        return *[None] * 5, *(part.view_as(weight) for part, weight in zip(parts, weights, strict=True))


def _call(loop: Any, norms: Sequence[Any], training: bool, raw: bool, *arrays: Tensor) -> bool:
    """Run the compiled function `loop` on `arrays`; return False if an edge connects two graphs."""
    sizes = len(norms), norms[0].num_features
    return loop(tuple(map(to_dlpack, arrays)), *sizes, training, raw, torch.get_num_threads(), norms[0].eps)


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
