"""Define the perceptron of GIN's layers, with its gradient as one operation, and projectors of embeddings."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch_geometric.nn import Linear

from graphcl.arguments import ProjectorName
from graphcl.errors import InputError
from graphcl.models.aggregate import tracing

AnyModule = TypeVar("AnyModule", bound=nn.Module)


class Perceptron(nn.Sequential):
    """Two linear layers with a ReLU between them, and another ReLU at the end if `rectified`.

    The result equals that of the modules one by one, with about half as many operations for autograd.
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, rectified: bool = False) -> None:
        first, second = nn.Linear(in_channels, hidden_channels), nn.Linear(hidden_channels, out_channels)
        super().__init__(first, nn.ReLU(), second)
        self.rectified = rectified

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs `[N, out_channels]` for rows `x [N, in_channels]`."""
        layers = list(self)
        if (
            x.dim() == 2
            and [type(layer) for layer in layers] == [nn.Linear, nn.ReLU, nn.Linear]
            and not has_hooks(*layers)
            and not torch.is_autocast_enabled(x.device.type)
            and not tracing()
            and not torch._C._are_functorch_transforms_active()
        ):
            first, _, second = layers
            return _Perceptron.apply(x, first.weight, first.bias, second.weight, second.bias, self.rectified)
        out = super().forward(x)
        return out.relu() if self.rectified else out


def has_hooks(*modules: nn.Module) -> bool:
    """Return whether a forward or backward hook is registered on one of `modules`."""
    for module in modules:  # a generator would be called again for each hook, at every step
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
            return True
    return False


class _Perceptron(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, rectified: bool) -> Tensor:
        hidden = torch.addmm(b1, x, w1.t()).relu_()
        out = torch.addmm(b2, hidden, w2.t())
        out = out.relu_() if rectified else out
        ctx.save_for_backward(x, w1, b1, w2, b2, hidden, out if rectified else None)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, hidden, out = ctx.saved_tensors
        x, w1, _, w2, _ = inputs
        wanted = ctx.needs_input_grad[:5]
        if torch.is_grad_enabled():  # for second derivatives, let autograd derive the gradient
            again = linear(linear(x, *inputs[1:3]).relu(), *inputs[3:])
            again = again if out is None else again.relu()
            needed = [tensor for tensor, needs in zip(inputs, wanted, strict=True) if needs]
            grads = iter(torch.autograd.grad(again, needed, grad, create_graph=True))
            return *(next(grads) if needs else None for needs in wanted), None
        if out is not None:
            grad = torch.ops.aten.threshold_backward(grad, out, 0)
        of_hidden = torch.ops.aten.threshold_backward(grad @ w2, hidden, 0)
        return (
            of_hidden @ w1 if wanted[0] else None,
            of_hidden.t() @ x if wanted[1] else None,
            of_hidden.sum(dim=0) if wanted[2] else None,
            grad.t() @ hidden if wanted[3] else None,
            grad.sum(dim=0) if wanted[4] else None,
            None,
        )


def make_projector(width: int, out: int, form: ProjectorName = "mlp") -> nn.Module:
    """Return a new projector, with Xavier-initialised weights and zero biases unless `form` is `elu`.

    The input and the hidden layers have `width` columns, the output `out`. The form is `mlp` (Linear, ReLU, Linear),
    `elu` (Linear, ELU, Linear, with PyTorch's initial weights, as in GRACE), `linear` (one layer, as in MoCo v1),
    `residual` (three blocks of Linear and ReLU, plus a linear shortcut, as in InfoGraph) or `none` (the identity, as in
    BGRL and DGI). An unknown form, or `none` for unequal widths, raises InputError.
    """
    if form not in get_args(ProjectorName):
        raise InputError(f"`projector` must be 'mlp', 'elu', 'linear', 'residual' or 'none', got {form!r}.")
    if form == "none":
        if width != out:
            raise InputError(f"`projection` must be the encoder's width {width} with projector none, got {out}.")
        return nn.Identity()
    if form == "elu":
        return nn.Sequential(nn.Linear(width, width), nn.ELU(), nn.Linear(width, out))
    if form == "residual":
        return initialise(_Residual(width, out))
    return initialise(Perceptron(width, width, out) if form == "mlp" else nn.Sequential(nn.Linear(width, out)))


class _Residual(nn.Module):
    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        linear_layers = (nn.Linear(a, b) for a, b in pairwise([width, width, width, out]))
        self.block = nn.Sequential(*(module for layer in linear_layers for module in (layer, nn.ReLU())))
        self.shortcut = nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x) + self.shortcut(x)


def initialise(module: AnyModule) -> AnyModule:
    """Reset all linear layers of `module` in place (Xavier-uniform weights, zero biases) and return it."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return module
