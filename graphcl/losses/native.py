"""Compiled loops (`_native.c`) of unit rows and of sums over tiles, for float32 on the CPU.

The loops are built at installation if GCC is found on x86-64 Linux. Without them, operations of torch compute the same
up to rounding. The environment variable GRAPHCL_NATIVE=0 disables the loops.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor, nn

try:
    from graphcl.losses import _native as loops  # type: ignore[attr-defined]
except ImportError:  # no C compiler was found at installation, so operations of torch are used
    loops = None

enabled = loops is not None and os.environ.get("GRAPHCL_NATIVE", "1") != "0"
"""Whether the compiled loops are installed and not disabled."""
_PLAIN = Tensor, nn.Parameter


def takes(*tensors: Tensor) -> bool:
    """Return whether the loops are enabled and all `tensors` are float32 on the CPU.

    They read memory, so tensors that stand for others are refused: in `torch.compile`, `torch.func` and subclasses.
    """
    if torch.compiler.is_compiling():  # first, as `is_neg` would break the graph
        return False
    return (
        enabled
        and all(type(z) in _PLAIN and z.dtype == torch.float32 and z.is_cpu and not z.is_neg() for z in tensors)
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def is_batched(grad: Tensor) -> bool:
    """Return whether `grad` stands for several gradients, as in `torch.autograd.grad(..., is_grads_batched=True)`."""
    return torch._C._functorch.is_batchedtensor(grad) or torch._C._functorch.is_legacy_batchedtensor(grad)


def unit(z1: Tensor, z2: Tensor, copies: int) -> tuple[Tensor, Tensor, Tensor, Tensor, bool]:
    """Return both views `[N, D]` with rows of norm 1, see `graphcl.losses.rows.normalize`, and what was computed.

    Returns:
        Five values: the unit rows of both views; their norms `[2, N, 1]`; the cosine of each positive pair, `copies`
        times, `[copies * N]`; whether all entries are finite.
    """
    (n, columns), (z1, z2) = z1.shape, (z1.contiguous(), z2.contiguous())
    out = torch.empty_like(z1), torch.empty_like(z2), z1.new_empty(2, n, 1), z1.new_empty(copies * n)
    finite = loops.unit(_at(z1), _at(z2), n, columns, copies, *map(_at, out))
    return *out, finite


def unit_slopes(
    units: Sequence[Tensor], norm: Tensor, grads: Sequence[Tensor | None], positive: Tensor | None,
    wanted: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """Return the gradients by the views that are `wanted`, of the gradients by the results of `unit`."""
    n, columns = units[0].shape
    inputs = [None if grad is None else grad.contiguous() for grad in (*grads, positive)]
    out = [torch.empty_like(rows) if want else None for rows, want in zip(units, wanted, strict=False)]
    copies = 0 if positive is None else positive.numel() // n
    loops.unit_slopes(*map(_at, units), _at(norm), *map(_at, inputs), copies, n, columns, *map(_at, out))
    return out


def _at(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
