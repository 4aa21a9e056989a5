"""Normalise blocks of rows apart, leave padding out of BatchNorm's statistics, and recompute these over a data set.

A CUDA graph replays operations on tensors of fixed shape. So a view gets padding nodes in graphs of their own, with
padding edges among them, so that no message reaches a node of the view. Encoders treat them as any node, only BatchNorm
must leave them out (`padded_norm`); the rows of the padding graphs are cut off.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import update_bn
from torch_geometric.data import Batch

from graphcl.errors import InputError
from graphcl.models.perceptron import has_hooks

AnyModule = TypeVar("AnyModule", bound=nn.Module)


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


Parts = Sequence[int | Padding] | None
"""Blocks of rows that BatchNorm treats separately: their sizes, or their padding, which it leaves out; None for one."""


def part_sizes(parts: Sequence[int | Padding]) -> list[int]:
    """Return the number of rows of each part, with padding."""
    return [part.rows if isinstance(part, Padding) else part for part in parts]


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


def normalise(norm: nn.Module, nodes: Tensor, parts: Parts) -> Tensor:
    """Return `norm` applied to `nodes [N, H]`, separately to each block of `parts`."""
    if parts is None:
        return norm(nodes)
    sizes = part_sizes(parts)
    blocks = nodes.split(sizes)
    paddings = [part for part in parts if isinstance(part, Padding)]
    if paddings:
        return torch.cat([padded_norm(norm, block, padding) for block, padding in zip(blocks, paddings, strict=True)])
    if (
        type(norm) is not nn.BatchNorm1d
        or not (norm.training and norm.affine and norm.momentum)
        or min(sizes) < 2
        or has_hooks(norm)
    ):
        return torch.cat([norm(block) for block in blocks])
    # The module counts its batches on the device, one by one, which takes as many operations as normalising.
    state = norm.weight, norm.bias, norm.running_mean, norm.running_var, True, norm.momentum, norm.eps
    rows = torch.cat([torch.native_batch_norm(block, *state)[0] for block in blocks])
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(len(blocks))
    return rows


def has_batchnorm(module: nn.Module) -> bool:
    """Return whether `module` contains a BatchNorm layer with running statistics."""
    return any(isinstance(layer, _BatchNorm) and layer.track_running_stats for layer in module.modules())


def calibrate(model: AnyModule, loader: Iterable[Batch]) -> AnyModule:
    r"""Return a copy of `model` with BatchNorm statistics averaged over all batches of `loader`.

    $$\mu = \frac1T \sum_t \mu_t, \qquad \sigma^2 = \frac1T \sum_t \sigma_t^2$$

    where $\mu_t$ and $\sigma_t^2$ are the mean and variance of batch t out of T. During training, BatchNorm keeps an
    exponential moving average instead, which the last batches dominate. The weights do not change. The batches, on the
    model's device, should be shuffled and equally large: all count the same, and the variance of a batch of graphs of
    one class or size only is too small.

    References:
        Wu and Johnson, "Rethinking 'Batch' in BatchNorm", 2021, section 3 (PreciseBN), arXiv 2105.07576.
    """
    calibrated = copy.deepcopy(model)
    device = next(model.parameters()).device
    # Dropout draws from the global generators; restore them, so that training is not affected.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        update_bn(loader, calibrated, device=device)
    return calibrated
