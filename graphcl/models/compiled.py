"""All layers of a GIN on the CPU, compiled (`_gin.c`): a block of rows goes through a layer while it lies in the cache.

By torch's operations a layer's forward and backward are forty passes over `[N, H]` tensors and as many starts. Here
three tensors are written and read, and threads meet twice a layer, for BatchNorm's moments. The result is that of
`graphcl.models.gin`'s modules up to rounding, and the same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, linear

from graphcl.distributed.batchnorm import GlobalBatchNorm
from graphcl.graphs import native
from graphcl.models.aggregate import Groups, Neighbours, group_sum

try:
    from graphcl.models import _gin  # type: ignore[attr-defined]
except ImportError:  # there was no compiler
    _gin = None

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_WIDEST = 512


def compiled() -> bool:
    """Whether the compiled layers are there and not turned off."""
    return _gin is not None and native.enabled


def stack(
    x: Tensor, neighbours: Neighbours, graphs: Groups, mlps: Sequence[Any], norms: Sequence[Any]
) -> Tensor | None:
    """Sum-pooled outcomes of all layers side by side, `[B, L * H]`: float32 on the CPU.

    None where that is not what the modules would do (other modules, precisions, hooks), or where an edge connects two
    graphs, which `graphcl.models.gin`'s modules allow.
    """
    if not _fits(x, neighbours, graphs, norms):
        return None
    weights: list[Tensor] = []
    width = x.size(1)
    for mlp, norm in zip(mlps, norms, strict=True):
        found = _weights(mlp, norm, width)
        if found is None:
            return None
        weights += found
        width = norm.num_features
    try:
        pools: Tensor = _Stack.apply(x.contiguous(), neighbours, graphs, norms, *weights)
    except _CrossingEdgeError:
        return None
    return pools


def _fits(x: Tensor, neighbours: Neighbours, graphs: Groups, norms: Sequence[Any]) -> bool:
    return (
        compiled()
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and not x.requires_grad
        and x.dim() == 2
        and x.size(0) > 1  # BatchNorm refuses a single row
        and graphs.order is None
        and graphs.ids.numel() == x.size(0)
        and graphs.ptr.numel() > 1
        and native.takes(graphs.ptr, *vars(neighbours).values())
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and len({tuple(getattr(norm, key, None) for key in ("training", "eps", "num_features")) for norm in norms}) == 1
    )


def _weights(mlp: Any, norm: Any, width: int) -> tuple[Tensor, ...] | None:
    """What a layer has learnt, in the order of the table that `_gin.c` reads; None if it is another layer.

    The loops believe every size, so all of them are compared here with those of what comes in, `width` columns.
    """
    layers = list(mlp)
    if [type(layer) for layer in layers] != [nn.Linear, nn.ReLU, nn.Linear] or not _is_usual(norm):
        return None
    if norm.momentum is None or not norm.affine or not norm.track_running_stats:
        return None
    hidden = norm.num_features
    if hidden % 16 or hidden > _WIDEST:
        return None
    if any(getattr(module, hooks) for module in (mlp, *layers, norm) for hooks in _HOOKS):
        return None
    first, _, second = layers
    weights = first.weight, first.bias, second.weight, second.bias, norm.weight, norm.bias
    shapes = (hidden, width), (hidden,), (hidden, hidden), (hidden,), (hidden,), (hidden,)
    return weights if all(map(_is_readable, weights, shapes)) else None


def _is_readable(weight: Tensor | None, shape: tuple[int, ...]) -> bool:
    """Whether a weight is there, and lies as the loops read it."""
    return (
        weight is not None
        and weight.shape == shape
        and weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and weight.is_contiguous()
    )


def _is_usual(norm: Any) -> bool:
    return type(norm) is nn.BatchNorm1d or (type(norm) is GlobalBatchNorm and norm.is_usual)


class _CrossingEdgeError(Exception):
    """An edge connects two graphs."""


class _Stack(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, neighbours: Neighbours, graphs: Groups, norms: Sequence[nn.BatchNorm1d], *weights: Tensor
    ) -> Tensor:
        n, hidden, layers = x.size(0), norms[0].num_features, len(norms)
        training = norms[0].training
        pools = x.new_empty(graphs.ptr.numel() - 1, layers * hidden)
        widths = [x.size(1)] + [hidden] * (layers - 1)
        kept = [(x.new_empty(n, -(-width // 16) * 16), *x.new_empty(2, n, hidden)) for width in widths]
        moments = x.new_empty(3, layers, hidden)
        means, deviations, variances = moments
        if not training:
            for level, norm in enumerate(norms):
                assert norm.running_mean is not None
                assert norm.running_var is not None
                means[level], deviations[level] = norm.running_mean, (norm.running_var + norm.eps).rsqrt()
        flat = [each for layer in kept for each in layer]
        room = x.new_empty(n, hidden)
        used = [*_addresses(room, pools), 0, 0, 0]
        if not _run(_gin.forward, x, neighbours, graphs, norms, training, used, weights, flat, moments):
            raise _CrossingEdgeError
        if training:
            _follow(norms, means, variances, n)
        ctx.save_for_backward(x, moments, *flat, *weights)
        ctx.neighbours, ctx.graphs, ctx.norms, ctx.training = neighbours, graphs, norms, training
        return pools

    @staticmethod
    def backward(ctx: Any, dpools: Tensor) -> tuple[Tensor | None, ...]:
        x, moments, *rest = ctx.saved_tensors
        layers = len(ctx.norms)
        kept, weights = rest[: 3 * layers], rest[3 * layers :]
        if torch.is_grad_enabled():  # the gradient itself is to be differentiated
            pools = _by_torch(x, ctx.neighbours, ctx.graphs, ctx.norms, ctx.training, weights)
            return None, None, None, None, *torch.autograd.grad(pools, weights, dpools, create_graph=True)
        n, hidden = x.size(0), ctx.norms[0].num_features
        dpools, room = dpools.contiguous(), x.new_empty(2, n, hidden)
        grads = [torch.empty_like(weight) for weight in weights]
        used = [0, 0, *_addresses(dpools, *room)]
        _run(_gin.backward, x, ctx.neighbours, ctx.graphs, ctx.norms, ctx.training, used, weights, kept, moments, grads)
        return None, None, None, None, *grads


def _by_torch(
    x: Tensor,
    neighbours: Neighbours,
    graphs: Groups,
    norms: Sequence[nn.BatchNorm1d],
    training: bool,
    weights: Sequence[Tensor],
) -> Tensor:
    """The same by torch's operations; running statistics stay as they are."""
    pools = []
    for level, norm in enumerate(norms):
        w1, b1, w2, b2, scale, shift = weights[6 * level : 6 * level + 6]
        out = linear(linear(neighbours.sum(x, with_self=True), w1, b1).relu(), w2, b2).relu()
        moments = (None, None) if training else (norm.running_mean, norm.running_var)
        x = batch_norm(out, *moments, scale, shift, training, 0.0, norm.eps)
        pools.append(group_sum(x, graphs))
    return torch.cat(pools, dim=1)


def _follow(norms: Sequence[nn.BatchNorm1d], means: Tensor, variances: Tensor, n: int) -> None:
    """BatchNorm's running statistics after a batch of n nodes."""
    unbiased = variances * (n / (n - 1))
    for norm, mean, var in zip(norms, means, unbiased, strict=True):
        mean_so_far, var_so_far, momentum = norm.running_mean, norm.running_var, norm.momentum or 0.0
        assert mean_so_far is not None
        assert var_so_far is not None
        mean_so_far.lerp_(mean, momentum)
        var_so_far.lerp_(var, momentum)
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked.add_(1)


def _addresses(*tensors: Tensor) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


def _run(
    loop: Any,
    x: Tensor,
    neighbours: Neighbours,
    graphs: Groups,
    norms: Sequence[nn.BatchNorm1d],
    training: bool,
    used: Sequence[int],
    weights: Sequence[Tensor],
    kept: Sequence[Tensor],
    moments: Tensor,
    grads: Sequence[Tensor] = (),
) -> bool:
    """Fill the table that `_gin.c` reads (`unpack`), and call; False where an edge connects two graphs.

    Args:
        loop: `_gin.forward` or `_gin.backward`.
        used: addresses of y, pools, and the gradients' pools and two working spaces; 0 where the loop has no use of it.
        weights: six a layer.
        kept: three a layer.
        moments: means, deviations, variances, `[3, L, H]`.
        grads: of the weights; none in the forward loop.
    """
    table = [x.size(0), graphs.ptr.numel() - 1, len(norms), norms[0].num_features, int(training)]
    table += [torch.get_num_threads(), graphs.ptr.data_ptr(), *_addresses(*vars(neighbours).values()), x.data_ptr()]
    table += used
    for level in range(len(norms)):
        own = slice(6 * level, 6 * level + 6)
        table += _addresses(*weights[own], *kept[3 * level : 3 * level + 3], *moments[:, level])
        table += [*(_addresses(*grads[own]) or [0] * 6), weights[6 * level].size(1)]
    numbers = torch.tensor(table)
    return bool(loop(numbers.data_ptr(), norms[0].eps))
