"""Check the tensors passed to losses, and scale rows to norm 1. Errors name the argument, the rule and the value."""

import math
from typing import Any

import torch
from torch import Tensor

from graphcl.distributed import ranks
from graphcl.errors import InputError, InputTypeError

SHORTEST = 1e-12
"""A row with no larger entry counts as a zero row. Equals the epsilon of `torch.nn.functional.normalize`."""


class NonFiniteInputError(InputError):
    """Error for NaN, infinity or too large entries in an input tensor."""


# -- checks ------------------------------------------------------------------------------------------------------------


def check_rows(name: str, z: Any, integer: bool = False) -> None:
    """Raise InputTypeError unless `z` is a dense tensor of floating-point numbers, or of integers if `integer`."""
    wrong = not isinstance(z, Tensor) or (z.is_floating_point() == integer) or (integer and z.is_complex())
    if wrong:
        kind = "an integer" if integer else "a floating-point"
        got = z.dtype if isinstance(z, Tensor) else type(z).__name__
        raise InputTypeError(f"`{name}` must be {kind} tensor, got {got}.")
    if z.layout != torch.strided:
        raise InputTypeError(f"`{name}` must be a dense tensor, got {z.layout}; convert it by `.to_dense()`.")
    if z.device.type == "meta":
        raise InputTypeError(f"`{name}` must have values, got a tensor on device meta; use cpu or cuda.")


def check_device(name: str, tensor: Tensor, z1: Tensor) -> None:
    """Raise InputTypeError if `tensor` is on another device than `z1`."""
    if tensor.device != z1.device:
        raise InputTypeError(f"`z1` and `{name}` must be on one device, got {z1.device} and {tensor.device}.")


def check_tensor(
    name: str, z: Any, z1: Tensor, shape: tuple[int | None, ...], rule: str, integer: bool = False
) -> None:
    """Raise an InputError unless `z` has this `shape` (None stands for any size) and is finite, on the device of `z1`.

    `rule` states the shape in the message. The type is checked as in `check_rows`, the values as in `check_finite`.
    """
    check_rows(name, z, integer)
    check_device(name, z, z1)
    if z.dim() != len(shape) or any(size not in (None, length) for size, length in zip(shape, z.shape, strict=True)):
        raise InputError(f"`{name}` must be {rule}, got {list(z.shape)}.")
    if not integer:
        check_finite(name, z)


def check_finite(name: str, z: Tensor, whose: str = "", most: float = torch.inf) -> None:
    """Raise NonFiniteInputError if `z` has NaN or an entry of magnitude `most` or above; name `name` and `whose`.

    Only `_readable` tensors are checked.
    """
    # The sum is a fast filter. It can overflow on finite numbers, so check the entries before raising.
    if not _readable(z) or (most == torch.inf and math.isfinite(float(z.detach().sum()))):
        return
    bad = ~(z.detach().abs() < most)
    if bad.any():
        row = int(bad.nonzero()[0][0]) if z.dim() else 0
        if most == torch.inf or not z.isfinite().all():
            raise NonFiniteInputError(f"`{name}`{whose} is not finite in row {row}.")
        rule = f"must be below {most:g}, or products of rows overflow in {z.dtype}"
        raise NonFiniteInputError(f"`{name}`{whose} {rule}, got {float(z[row].abs().max()):g} in row {row}.")


def _readable(tensor: Tensor) -> bool:
    """Return whether reading values of `tensor` is cheap: on the CPU, and not under `torch.compile`.

    On other devices it would wait for the device; compiled, it would break the graph.
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def check_views(z1: Any, z2: Any, finite: bool = True) -> None:
    """Raise an InputError unless `z1` and `z2` are floating-point tensors `[N, D]` of one shape, N >= 2, on one device.

    Both are of float64, or neither: a loss computes others in float32, and a method may mix them inside autocast.
    With `finite`, also raise if a value is NaN or infinite (on the CPU). Across ranks this check is left to the caller:
    if one rank raised before a collective operation, the other ranks would hang.
    """
    check_rows("z1", z1)
    check_rows("z2", z2)
    if z1.dim() != 2 or z1.shape != z2.shape:
        raise InputError(f"`z1` and `z2` must both be [N, D], got {list(z1.shape)} and {list(z2.shape)}.")
    if z1.size(1) < 1:
        raise InputError(f"`z1` and `z2` must have at least one column, got {list(z1.shape)}.")
    check_device("z2", z2, z1)
    if z1.dtype != z2.dtype and torch.float64 in (z1.dtype, z2.dtype):
        raise InputTypeError(f"`z1` and `z2` must have one dtype, got {z1.dtype} and {z2.dtype}.")
    if z1.size(0) < 2:
        advice = "a DataLoader leaves out a last batch of one graph with drop_last=True"
        rule = "a contrastive loss needs at least 2 graphs in a batch"
        raise InputError(f"{rule}, got {z1.size(0)} rows in `z1`; {advice}.")
    if finite and ranks.size() == 1:
        check_finite("z1", z1)
        check_finite("z2", z2)


def check_statistic(name: str, statistic: Tensor) -> None:
    """Raise an InputError if `statistic` is `_readable` and not finite.

    The value must be equal on all ranks, so that all ranks raise.
    """
    if _readable(statistic) and not torch.isfinite(statistic.detach()).all():
        if ranks.size() > 1:
            raise NonFiniteInputError(f"`{name}` is not finite, or too large, on at least one rank.")
        raise InputError(f"`{name}` is too large: its statistics overflow in {statistic.dtype}; scale it down.")


def check_weight(weight: Any, z1: Tensor) -> None:
    """Raise an InputError unless `weight` is `[N]`, >= 0 and not all zero; values only if `_readable`."""
    check_tensor("weight", weight, z1, (z1.size(0),), f"[{z1.size(0)}], one number per graph")
    # Across ranks, the weights of one rank may all be zero, so `reduce` checks that case for all ranks together.
    if _readable(weight) and ((ranks.size() == 1 and float(weight.sum()) == 0) or float(weight.min()) < 0):
        raise InputError(f"`weight` must be >= 0 and not all zero, got a minimum of {float(weight.min())}.")


# -- norm 1 ------------------------------------------------------------------------------------------------------------


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
