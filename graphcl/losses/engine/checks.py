"""What the losses refuse, in one line each: the argument, the rule, the value."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from graphcl.distributed import ranks
from graphcl.errors import InputError, InputTypeError


def check_rows(name: str, z: Any) -> None:
    """A floating-point tensor without NaN or infinity."""
    check_floating(name, z)
    check_finite(name, z)


def check_floating(name: str, z: Any) -> None:
    """A floating-point tensor."""
    if not isinstance(z, Tensor) or not z.is_floating_point():
        got = z.dtype if isinstance(z, Tensor) else type(z).__name__
        raise InputTypeError(f"`{name}` must be a floating-point tensor, got {got}.")


def check_finite(name: str, z: Tensor, whose: str = "") -> None:
    """Neither NaN nor infinity (looked for on the CPU only, where that does not stall the device)."""
    # A sum is quick, and NaN or infinity show in it; it may overflow by itself, so the numbers are asked again.
    if z.device.type == "cpu" and not math.isfinite(float(z.detach().sum())) and not torch.isfinite(z).all():
        row = int((~torch.isfinite(z)).nonzero()[0][0]) if z.dim() else 0
        raise NonFiniteInputError(f"`{name}`{whose} is not finite in row {row}.")


def check_views(z1: Any, z2: Any, finite: bool = True) -> None:
    """Two views `[N, D]` of one dtype, N >= 2; whether they are finite may be left to a later look.

    Across ranks it always is: a rank that refused alone what the others have not seen would leave them waiting for it.
    """
    check_floating("z1", z1)
    check_floating("z2", z2)
    if z1.dim() != 2 or z1.shape != z2.shape:
        raise InputError(f"`z1` and `z2` must both be [N, D], got {list(z1.shape)} and {list(z2.shape)}.")
    if z1.size(1) < 1:
        raise InputError(f"`z1` and `z2` must have at least one column, got {list(z1.shape)}.")
    if z1.dtype != z2.dtype:
        raise InputTypeError(f"`z1` and `z2` must have one dtype, got {z1.dtype} and {z2.dtype}.")
    if z1.size(0) < 2:
        raise InputError(f"a contrastive loss needs at least 2 graphs in a batch, got {z1.size(0)} rows in `z1`.")
    if finite and ranks.size() == 1:
        check_finite("z1", z1)
        check_finite("z2", z2)


def check_everywhere(name: str, statistic: Tensor) -> None:
    """Across ranks: refuse, on all of them, rows that any cannot use, which a sum over ranks shows."""
    if ranks.size() > 1 and statistic.device.type == "cpu" and not torch.isfinite(statistic.detach()).all():
        raise NonFiniteInputError(f"`{name}` is not finite, or too large, on some rank.")


def check_size(name: str, z: Tensor, whose: str = "") -> None:
    """Rows whose squared lengths can be summed without overflow (looked for on the CPU only)."""
    if z.device.type == "cpu" and not math.isfinite(float(z.detach().square().sum())):
        raise InputError(
            f"`{name}`{whose} is too large for its squares in {z.dtype}, got entries up to {float(z.abs().max()):g}."
        )


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """One of a few words."""
    if value not in choices:
        listed = ", ".join(map(repr, choices[:-1]))
        raise InputError(f"`{name}` must be {listed} or {choices[-1]!r}, got {value!r}.")


def check_queue(queue: Any, width: int) -> None:
    """External keys `[Q, D]`, Q >= 0."""
    check_rows("queue", queue)
    if queue.dim() != 2 or queue.size(1) != width:
        raise InputError(f"`queue` must be [Q, {width}], as wide as `z1`, got {list(queue.shape)}.")


def check_ids(ids: Any, queue_ids: Any, num_graphs: int, queue: Tensor | None) -> None:
    """Whole numbers `[N]` and `[Q]`, both or neither."""
    if ids is None and queue_ids is None:
        return
    if ids is None or queue_ids is None or queue is None:
        raise InputError("`ids`, `queue_ids` and `queue` go together: the graphs of the batch, those of the queue.")
    for name, value, length in (("ids", ids, num_graphs), ("queue_ids", queue_ids, queue.size(0))):
        check_labels(name, value, length)


def check_labels(name: str, labels: Any, length: int) -> None:
    """Whole numbers, one a row."""
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        got = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise InputTypeError(f"`{name}` must be a tensor of whole numbers, got {got}.")
    if labels.shape != (length,):
        raise InputError(f"`{name}` must be [{length}], one number a row, got {list(labels.shape)}.")


def check_weight(weight: Any, num_graphs: int) -> None:
    """Weights `[N]` of graphs, not negative and not all zero (looked for on the CPU only)."""
    check_rows("weight", weight)
    if weight.shape != (num_graphs,):
        raise InputError(f"`weight` must be [{num_graphs}], one number a graph, got {list(weight.shape)}.")
    # Of several ranks, one may well have no weight.
    zero = ranks.size() == 1 and weight.device.type == "cpu" and float(weight.sum()) == 0
    if weight.device.type == "cpu" and (zero or float(weight.min()) < 0):
        raise InputError(f"`weight` must be >= 0 and not all zero, got a least of {float(weight.min())}.")


class NonFiniteInputError(InputError):
    """NaN or infinity among the numbers."""
