"""Pad views to a fixed size, and normalise them as if the padding were not there.

A CUDA graph replays operations on tensors of fixed shape. So a view gets padding nodes in graphs of their own, with
padding edges among them, so that no message reaches a node of the view. Encoders treat them as any node, only BatchNorm
must leave them out (`padded_norm`); the rows of the padding graphs are cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphcl.errors import InputError


@dataclass(frozen=True)
class Padding:
    """Mark the rows behind the first n of P as padding. Only the device knows n, as all tensors are there.

    Args:
        kept: true for the first n rows, `[P, 1]`.
        counts: P and n - P, the negative number of padding rows, `[2]` in float32.
        graphs: number of padding graphs, behind those of the view.
    """

    kept: Tensor
    counts: Tensor
    graphs: int

    @property
    def rows(self) -> int:
        """Number of rows P."""
        return self.kept.size(0)


Parts = Sequence[int] | Sequence[Padding] | None
"""Blocks of rows that BatchNorm treats separately: their sizes, or their padding, which it leaves out; None for one."""


def padded_norm(norm: nn.Module, rows: Tensor, padding: Padding) -> Tensor:
    """Return `norm` applied to `rows [P, H]`, on CUDA, with the statistics of the rows that `padding` keeps.

    Raises:
        InputError: `norm` is not a `BatchNorm1d` that trains with a fixed momentum; padding would change its result.
    """
    if not norm.training and isinstance(norm, nn.BatchNorm1d):
        return norm(rows)
    if type(norm) is not nn.BatchNorm1d or not norm.affine or not norm.momentum:
        raise InputError(f"`capture` supports BatchNorm1d with a fixed momentum only, got {norm}; leave it out.")
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    return _PaddedNorm.apply(rows, padding, norm, norm.weight, norm.bias)


class _PaddedNorm(torch.autograd.Function):
    """BatchNorm by CUDA's kernels for statistics over several ranks.

    They merge the statistics of sets of rows by the sets' numbers. Padding rows are set to the first row, as zeros far
    from all rows would cancel, and merged a second time with a negative number, which takes them out again. No gradient
    arrives at padding rows from behind: their graph is cut off, and the next layer overwrites them.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, padding: Padding, norm: Any, weight: Tensor, bias: Tensor) -> Tensor:
        first = rows[:1]
        rows, eps = torch.where(padding.kept, rows, first).contiguous(), norm.eps
        mean, inverse = torch.batch_norm_stats(rows, eps)
        means = torch.stack([mean, first[0].to(mean.dtype)])
        inverses = torch.stack([inverse, torch.full_like(inverse, eps**-0.5)])
        counts = padding.counts.to(norm.running_mean.dtype)
        mean, inverse = torch.batch_norm_gather_stats_with_counts(
            rows, means, inverses, norm.running_mean, norm.running_var, norm.momentum, eps, counts
        )
        ctx.save_for_backward(rows, mean, inverse, weight, padding.kept, padding.counts)
        return torch.batch_norm_elemt(rows, weight, bias, mean, inverse, eps)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, mean, inverse, weight, kept, counts = ctx.saved_tensors
        grad = grad.contiguous()
        of_rows, of_products, of_weight, of_bias = torch.batch_norm_backward_reduce(
            grad, rows, mean, inverse, weight, True, True, True
        )
        of_input = torch.batch_norm_backward_elemt(
            grad, rows, mean, inverse, weight, of_rows, of_products, counts.int()
        )
        return torch.where(kept, of_input, 0.0), None, None, of_weight, of_bias
