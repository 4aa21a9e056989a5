"""Check the tensors passed to losses; each error message names the argument, the rule and the value."""

import math
from typing import Any

import torch
from torch import Tensor

from graphcl.distributed import ranks
from graphcl.errors import InputError, InputTypeError


def check_rows(name: str, z: Any) -> None:
    """Raise an InputError unless `z` is a floating-point tensor, whose values are finite if they are `_readable`."""
    check_floating(name, z)
    check_finite(name, z)


def check_floating(name: str, z: Any) -> None:
    """Raise InputTypeError unless `z` is a dense floating-point tensor."""
    if not isinstance(z, Tensor) or not z.is_floating_point():
        got = z.dtype if isinstance(z, Tensor) else type(z).__name__
        raise InputTypeError(f"`{name}` must be a floating-point tensor, got {got}.")
    _check_dense(name, z)


def check_device(name: str, tensor: Tensor, z1: Tensor) -> None:
    """Raise InputTypeError if `tensor` is on another device than `z1`."""
    if tensor.device != z1.device:
        raise InputTypeError(f"`z1` and `{name}` must be on one device, got {z1.device} and {tensor.device}.")


def _check_dense(name: str, tensor: Tensor) -> None:
    if tensor.layout != torch.strided:
        raise InputTypeError(f"`{name}` must be a dense tensor, got {tensor.layout}; convert it by `.to_dense()`.")
    if tensor.device.type == "meta":
        raise InputTypeError(f"`{name}` must have values, got a tensor on device meta; use cpu or cuda.")


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
    check_floating("z1", z1)
    check_floating("z2", z2)
    if z1.dim() != 2 or z1.shape != z2.shape:
        raise InputError(f"`z1` and `z2` must both be [N, D], got {list(z1.shape)} and {list(z2.shape)}.")
    if z1.size(1) < 1:
        raise InputError(f"`z1` and `z2` must have at least one column, got {list(z1.shape)}.")
    check_device("z2", z2, z1)
    if z1.dtype != z2.dtype and torch.float64 in (z1.dtype, z2.dtype):
        raise InputTypeError(f"`z1` and `z2` must have one dtype, got {z1.dtype} and {z2.dtype}.")
    if z1.size(0) < 2:
        advice = "a DataLoader leaves out a last batch of one graph with drop_last=True"
        raise InputError(
            f"a contrastive loss needs at least 2 graphs in a batch, got {z1.size(0)} rows in `z1`; {advice}."
        )
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


def check_queue(queue: Any, z1: Tensor) -> None:
    """Raise an InputError unless `queue` is a finite floating-point tensor `[Q, D]`, Q >= 0, for `z1 [N, D]`."""
    check_rows("queue", queue)
    check_device("queue", queue, z1)
    if queue.dim() != 2 or queue.size(1) != z1.size(1):
        raise InputError(f"`queue` must be [Q, {z1.size(1)}], with the columns of `z1`, got {list(queue.shape)}.")


def check_ids(ids: Any, queue_ids: Any, z1: Tensor, queue: Tensor | None) -> None:
    """Raise an InputError unless `ids [N]` and `queue_ids [Q]` are integers given with a queue, or are both None."""
    if ids is None and queue_ids is None:
        return
    if ids is None or queue_ids is None or queue is None:
        raise InputError("`ids` and `queue_ids` must be given together, and with a `queue`.")
    for name, value, length in (("ids", ids, z1.size(0)), ("queue_ids", queue_ids, queue.size(0))):
        check_labels(name, value, length, z1)


def check_labels(name: str, labels: Any, length: int, z1: Tensor) -> None:
    """Raise an InputError unless `labels` is an integer tensor `[length]` on the device of `z1`."""
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        got = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise InputTypeError(f"`{name}` must be an integer tensor, got {got}.")
    _check_dense(name, labels)
    check_device(name, labels, z1)
    if labels.shape != (length,):
        raise InputError(f"`{name}` must be [{length}], one integer per row, got {list(labels.shape)}.")


def check_weight(weight: Any, z1: Tensor) -> None:
    """Raise an InputError unless `weight` is `[N]`, >= 0 and not all zero; values only if `_readable`."""
    check_rows("weight", weight)
    check_device("weight", weight, z1)
    if weight.shape != z1.shape[:1]:
        raise InputError(f"`weight` must be [{z1.size(0)}], one number per graph, got {list(weight.shape)}.")
    if not _readable(weight):
        return
    # Across ranks, the weights of one rank may all be zero, so `reduce` checks that case for all ranks together.
    if (ranks.size() == 1 and float(weight.sum()) == 0) or float(weight.min()) < 0:
        raise InputError(f"`weight` must be >= 0 and not all zero, got a minimum of {float(weight.min())}.")


class NonFiniteInputError(InputError):
    """Error for NaN, infinity or too large entries in an input tensor."""
