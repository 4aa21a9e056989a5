"""Scale rows to norm 1, as one differentiable operation."""

from typing import Any

import torch
from torch import Tensor

SHORTEST = 1e-12
"""A row with no larger entry counts as a zero row. Equals the epsilon of `torch.nn.functional.normalize`."""


def at_least_float32(z: Tensor) -> Tensor:
    """Return `z` in float32 if its precision is lower; else return it unchanged."""
    return z if z.dtype == torch.float64 else z.float()


def normalize(z: Tensor) -> Tensor:
    """Return `z` with rows scaled to norm 1, in float32 or float64.

    A row with no entry above 1e-12 in absolute value counts as a zero row and is not scaled. The gradient of a scaled
    row grows with 1 / norm, and a single huge gradient would stop Adam from learning.
    """
    unit, _ = _Normalize.apply(at_least_float32(z))
    return unit


def normalize_all(*sets: Tensor) -> tuple[Tensor, ...]:
    """Return `normalize` of each tensor `[., D]`, computed in one call, which launches fewer operations."""
    return normalize(torch.cat(sets)).split([each.size(0) for each in sets])


class _Normalize(torch.autograd.Function):
    """Map z to u = z / |z| and |z|; autograd needs 24 operations for what takes eleven.

    The gradient is (g - (g . u) u) / |z|. The norm is an output so that second derivatives are right.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor) -> tuple[Tensor, Tensor]:
        # Divide by the largest entry first, so that no square overflows. The norm is then at least 1.
        largest = torch.linalg.vector_norm(z, torch.inf, dim=-1, keepdim=True)
        scale = largest.masked_fill(largest <= SHORTEST, 1.0)
        unit = z / scale
        norm = torch.linalg.vector_norm(unit, dim=-1, keepdim=True).clamp(min=1)
        return unit / norm, scale * norm

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_norm: Tensor | None) -> Tensor | None:
        unit, norm = ctx.saved_tensors
        along = None
        if grad is not None:  # in place, as the largest batches are as large as memory
            along = torch.addcmul(grad, (grad * unit).sum(dim=-1, keepdim=True), unit, value=-1).div_(norm)
        if grad_norm is None:
            return along
        return grad_norm * unit if along is None else along + grad_norm * unit
