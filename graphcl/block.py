"""What a GIN layer does to its neighbourhood sums, and its gradient, written out.

Autograd would keep each of the seven outcomes and walk over all of them again for the gradient. Written out, three
`[N, H]` tensors are kept, ReLU and its gradient work in place, and the gradients of the next layer and of the pooling
meet in one sum. Same result, half the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphcl.aggregate import Groups, group_sum

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def block(
    total: Tensor, mlp: nn.Sequential, norm: nn.Module, graphs: Groups, parts: Sequence[int] | None = None
) -> tuple[Tensor, Tensor]:
    r"""Perceptron, ReLU, BatchNorm and sum pooling.

    $$y = \mathrm{BN}(\mathrm{ReLU}(W_2 \, \mathrm{ReLU}(W_1 t + b_1) + b_2)), \qquad p_G = \sum_{v \in G} y_v$$

    Args:
        total: what each node has gathered, t `[N, F]`.
        mlp: Linear, ReLU, Linear.
        norm: what normalises nodes: BatchNorm, or what a user puts in its place.
        graphs: the nodes, grouped by graph.
        parts: numbers of nodes, adding up to N, that are normalised each by itself, one after the other; all together
            by default.

    Returns:
        y `[N, H]` and p `[B, H]`.
    """
    parts = [total.size(0)] if parts is None else list(parts)
    if not _written_out(total, mlp, norm, parts):
        return plain_block(total, mlp, norm, graphs, parts)
    assert isinstance(norm, nn.BatchNorm1d)
    if norm.training and norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(len(parts))
    weights = mlp[0].weight, mlp[0].bias, mlp[2].weight, mlp[2].bias, norm.weight, norm.bias
    y, pool = _Block.apply(total, *weights, norm, graphs, parts)
    return y, pool


def plain_block(
    total: Tensor, mlp: nn.Sequential, norm: nn.Module, graphs: Groups, parts: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """`block`, by its modules one after the other."""
    out = mlp(total).relu()
    y = torch.cat([norm(part) for part in out.split(list(parts))])
    return y, group_sum(y, graphs)


def _written_out(total: Tensor, mlp: nn.Sequential, norm: nn.Module, parts: list[int]) -> bool:
    """Whether the modules are those that `_Block` stands for, with nobody listening in between."""
    return (
        [type(layer) for layer in mlp] == [nn.Linear, nn.ReLU, nn.Linear]
        and type(norm) is nn.BatchNorm1d
        and norm.affine
        and norm.track_running_stats
        and norm.momentum is not None
        and mlp[0].bias is not None
        and mlp[2].bias is not None
        and min(parts) > 1  # BatchNorm refuses a single row
        and total.dtype == mlp[0].weight.dtype == norm.weight.dtype
        and total.dtype in (torch.float32, torch.float64)  # below, BatchNorm keeps its moments in another
        and not torch.is_autocast_enabled(total.device.type)
        and not torch.compiler.is_compiling()
        and not any(getattr(module, hooks) for module in (mlp, *mlp, norm) for hooks in _HOOKS)
    )


class _Block(torch.autograd.Function):
    """`plain_block`, with `training`, running statistics and epsilon as `norm` has them."""

    @staticmethod
    def forward(
        ctx: Any,
        total: Tensor,
        w1: Tensor,
        b1: Tensor,
        w2: Tensor,
        b2: Tensor,
        scale: Tensor,
        shift: Tensor,
        norm: nn.BatchNorm1d,
        graphs: Groups,
        parts: list[int],
    ) -> tuple[Tensor, Tensor]:
        hidden = torch.addmm(b1, total, w1.t()).relu_()
        out = torch.addmm(b2, hidden, w2.t()).relu_()
        y, statistics = torch.empty_like(out), (scale, shift, norm.running_mean, norm.running_var)
        rates = norm.training, norm.momentum or 0.0, norm.eps
        moments = []
        for given, normalised in zip(out.split(parts), y.split(parts), strict=True):
            mean, deviation = out.new_empty(0), out.new_empty(0)
            torch.native_batch_norm(given, *statistics, *rates, out=(normalised, mean, deviation))
            moments.append((mean, deviation))
        ctx.save_for_backward(total, hidden, out, w1, b1, w2, b2, scale, shift)
        ctx.norm, ctx.graphs, ctx.training, ctx.parts, ctx.moments = norm, graphs, norm.training, parts, moments
        ctx.set_materialize_grads(False)
        return y, graphs.sum(y)

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, dpool: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # the gradient itself is to be differentiated
            return _again(ctx, dy, dpool)
        total, hidden, out, w1, _, w2, _, scale, _ = ctx.saved_tensors
        norm = ctx.norm
        grad = ctx.graphs.spread(dpool) if dpool is not None else torch.zeros_like(out)
        if dy is not None:
            grad += dy
        found = [
            torch.ops.aten.native_batch_norm_backward(
                coming, given, scale, norm.running_mean, norm.running_var, *moments, ctx.training, norm.eps, [True] * 3
            )
            for coming, given, moments in zip(grad.split(ctx.parts), out.split(ctx.parts), ctx.moments, strict=True)
        ]
        grads, dscales, dshifts = zip(*found, strict=True)
        grad = torch.cat(grads) if len(grads) > 1 else grads[0]
        dscale, dshift = sum(dscales), sum(dshifts)
        _mask(grad, out)
        dw2, db2 = grad.t() @ hidden, grad.sum(0)
        grad = _mask(grad @ w2, hidden)
        dw1, db1 = grad.t() @ total, grad.sum(0)
        dtotal = grad @ w1 if ctx.needs_input_grad[0] else None
        return dtotal, dw1, db1, dw2, db2, dscale, dshift, None, None, None


def _mask(grad: Tensor, activation: Tensor) -> Tensor:
    """ReLU's gradient, in place."""
    return torch.ops.aten.threshold_backward.grad_input(grad, activation, 0, grad_input=grad)


def _again(ctx: Any, dy: Tensor | None, dpool: Tensor | None) -> tuple[Tensor | None, ...]:
    """The gradient as something that has a gradient: by autograd, through the block once more."""
    total, _, _, w1, b1, w2, b2, scale, shift = ctx.saved_tensors
    inputs = (total, w1, b1, w2, b2, scale, shift)
    out = nn.functional.linear(nn.functional.linear(total, w1, b1).relu(), w2, b2).relu()
    norm = ctx.norm
    mean, var = (None, None) if ctx.training else (norm.running_mean, norm.running_var)
    normalised = [
        nn.functional.batch_norm(part, mean, var, scale, shift, ctx.training, 0.0, norm.eps)
        for part in out.split(ctx.parts)
    ]
    y = torch.cat(normalised)
    given = [(value, grad) for value, grad in ((y, dy), (group_sum(y, ctx.graphs), dpool)) if grad is not None]
    needed = ctx.needs_input_grad[: len(inputs)]
    wanted = [each for each, need in zip(inputs, needed, strict=True) if need]
    found = iter(torch.autograd.grad([v for v, _ in given], wanted, [g for _, g in given], create_graph=True))
    return (*(next(found) if need else None for need in needed), None, None, None)
