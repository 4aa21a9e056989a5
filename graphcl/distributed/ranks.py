r"""Differentiable collectives over the ranks of a process group. Each rank holds a shard of the global batch.

Rank r computes the mean loss $L_r$ over its *own* anchors. The global loss over R ranks is $\frac1R \sum_r L_r$. A
row $z_r$ of rank r that other ranks use receives the gradient of all their losses,

$$\frac{\partial}{\partial z_r} \sum_s L_s.$$

`DistributedDataParallel` then averages the parameters' gradients over ranks, which gives the factor 1/R. Statistics
over all rows follow the same rule: values and gradients are summed over ranks.

Without `across` every loss is local, even if `torch.distributed` is initialised. With one rank, nothing is sent.

All ranks must call the same functions in the same order with the same number of rows. Each message carries its number
of rows, so that all ranks raise an error if the numbers differ. On CUDA the check is made only if a rank's own number
has changed, as reading the other numbers would synchronise with the device.

Differs: `torch.distributed.nn.functional.all_gather` has the same gradients, but scatters R times on gloo. OpenCLIP by
default gathers without a gradient, so that a row gets gradients from its own rank only (unless `gather_with_grad`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcl.errors import InputError

_HEADER = 16
"""Bytes of a message before its rows: the number of rows, and padding that keeps the rows aligned."""


class Collectives:
    """Process group of two or more processes, with collectives on rows."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.size, self.rank = group, dist.get_world_size(group), dist.get_rank(group)
        self._rows: dict[tuple[torch.dtype, torch.Size], int] = {}  # dtype and shape of a row -> rows on each rank

    def exchange(self, x: Tensor) -> Tensor:
        """Return the rows `x [n, ...]` of all ranks as `[R, n, ...]`, without a gradient."""
        form, n = (x.dtype, x.shape[1:]), x.size(0)
        if form not in self._rows:
            self._agree(x)
        rows, width = self._rows[form], math.prod(x.shape[1:]) * x.element_size()
        message = torch.empty(_HEADER + rows * width, dtype=torch.uint8, device=x.device)
        message[:8].view(torch.int64).fill_(n)
        content = x[:rows].contiguous().view(-1).view(torch.uint8)
        message[_HEADER : _HEADER + content.numel()] = content
        messages = message.new_empty(self.size, message.numel())
        _all_gather(messages.view(-1), message, group=self.group)
        if x.device.type == "cpu" or n != rows:
            self.check_sizes(messages[:, :8].contiguous().view(torch.int64).flatten().tolist())
            if n > rows:
                self._rows[form] = n
                return self.exchange(x)
        return messages[:, _HEADER : _HEADER + n * width].view(x.dtype).view(self.size, *x.shape)

    def check_sizes(self, sizes: Sequence[float]) -> None:
        """Raise InputError if the numbers of rows `sizes`, one per rank, differ."""
        if len(set(sizes)) > 1:
            raise InputError(
                f"all ranks must have equally many graphs in a batch, got {', '.join(str(int(n)) for n in sizes)} by "
                "rank; EpochBatches(..., shard=(rank, ranks)) cuts equal shards."
            )

    def sum_to_owner(self, x: Tensor) -> Tensor:
        """Return on each rank r the sum of `x[r]` over all ranks. `x [R, n, ...]` gives `[n, ...]`."""
        x = x.contiguous()
        if x.is_cuda and "cuda:nccl" in dist.get_backend_config(self.group):
            total = torch.empty_like(x[0])
            _reduce_scatter(total, x.view(-1, *x.shape[2:]), group=self.group)
            return total
        # gloo has no reduce-scatter; all-to-all sends half as much as an all-reduce.
        parts = torch.empty_like(x)
        dist.all_to_all_single(parts, x, group=self.group)
        return parts.sum(dim=0)

    def reduced(self, x: Tensor, largest: bool = False) -> Tensor:
        """Return the sum of `x` over ranks, or the elementwise maximum if `largest`, without a gradient."""
        x = x.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(x, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM, group=self.group)
        return x

    def summed_in_order(self, x: Tensor) -> Tensor:
        """Return the sum of `x [n]` over ranks, without a gradient. Each element is summed in rank order.

        Each rank sums one slice of the elements, so as many bytes are sent as in a ring all-reduce.
        """
        length = -(-x.numel() // self.size)
        parts = x.new_zeros(self.size, length)
        parts.view(-1)[: x.numel()] = x
        slices = torch.empty_like(parts)
        dist.all_to_all_single(slices, parts, group=self.group)
        total = slices[0].clone()
        for part in slices[1:]:
            total += part
        _all_gather(parts.view(-1), total, group=self.group)
        return parts.view(-1)[: x.numel()]

    def _agree(self, x: Tensor) -> None:
        """Store the number of rows `x`. Raise InputError unless all ranks have the same number, dtype and shape."""
        forms = all_gather_object((x.size(0), str(x.dtype), list(x.shape[1:])), self.group)
        if any(form[1:] != forms[0][1:] for form in forms):
            listed = ", ".join(f"{[form[0], *form[2]]} of {form[1].removeprefix('torch.')}" for form in forms)
            raise InputError(
                f"all ranks must have rows of one shape, got {listed} by rank; they must train the same model."
            )
        self.check_sizes([form[0] for form in forms])
        self._rows[x.dtype, x.shape[1:]] = x.size(0)


_current: Collectives | None = None


@contextmanager
def across(group: dist.ProcessGroup | None) -> Iterator[None]:
    """Make losses and methods treat the batches of all ranks of a process group as one global batch.

    Wrap the whole training loop in this context manager, on all ranks of the group. It applies to all threads of the
    process, as collectives must be called in one order.

    Args:
        group: process group, such as `torch.distributed.group.WORLD`; None or a group of one means this process alone.

    Raises:
        InputError: this process is not a member of `group`.

    Example:
        >>> with across(None):
        ...     size(), rank()
        (1, 0)
    """
    global _current
    before = _current
    if group is not None and dist.get_rank(group) < 0:
        raise InputError("this process is not a member of `group`; pass a process group that contains it.")
    try:
        _current = Collectives(group) if group is not None and dist.get_world_size(group) > 1 else None
        yield
    finally:
        _current = before


def current() -> Collectives | None:
    """Return the `Collectives` of the active `across`; None for this process alone."""
    return _current


def size() -> int:
    """Return the number of ranks R; 1 for this process alone."""
    return _current.size if _current else 1


def rank() -> int:
    """Return the rank of this process, from 0; 0 for this process alone."""
    return _current.rank if _current else 0


def gather(x: Tensor) -> Tensor:
    """Return the rows `x` of all ranks in rank order, with gradients: `[n, ...]` gives `[R n, ...]`.

    Raises:
        InputError: ranks have different numbers or shapes of rows.
    """
    return x if _current is None else _apply(_Gather, x, _current, range(_current.size))


def others(x: Tensor) -> Tensor:
    """Return the rows `x` of the other ranks, with gradients: `[n, ...]` gives `[(R - 1) n, ...]`; see `gather`.

    The order is cyclic and starts at the next rank. `x` followed by the result is thus a rotation of the global batch.
    """
    if _current is None:
        return x[:0]
    return _apply(_Gather, x, _current, [(_current.rank + step) % _current.size for step in range(1, _current.size)])


def sum_over_ranks(x: Tensor) -> Tensor:
    """Return the sum of `x` over ranks, with gradients; `x` has the same shape on all ranks."""
    return x if _current is None else _apply(_Sum, x, _current)


def largest_over_ranks(x: Tensor) -> Tensor:
    """Return the elementwise maximum of `x` over ranks, without a gradient; `x` has one shape on all ranks."""
    return x.detach() if _current is None else _current.reduced(x, largest=True)


def mean_over_ranks(x: Tensor) -> Tensor:
    """Return the mean of the rows `x` of all ranks, with gradients: `[n, ...]` gives `[...]`.

    Raises:
        InputError: ranks have different numbers of rows (checked on the CPU only).
    """
    if _current is None:
        return x.mean(dim=0)
    sizes = x.new_zeros(_current.size)
    sizes[_current.rank] = x.size(0)
    total = sum_over_ranks(torch.cat([x.sum(dim=0).flatten(), sizes]))
    if x.device.type == "cpu":
        _current.check_sizes(total[-_current.size :].tolist())
    return total[: -_current.size].view(x.shape[1:]) / (_current.size * x.size(0))


def part_of_mean(mean: Tensor, count: Tensor | int) -> Tensor:
    """Return `mean`, rescaled such that averaging the results over ranks gives the mean over the items of all ranks.

    `mean` is over the `count` items of this rank. The result is `mean` times R `count` / (sum of `count` over ranks).
    """
    if _current is None:
        return mean
    count = count.to(mean) if isinstance(count, Tensor) else mean.new_full((), count)
    return mean * (_current.size * count / _current.reduced(count).clamp(min=1))


def broadcast(x: Tensor) -> Tensor:
    """Return rank 0's `x` on all ranks, without a gradient. Use it for random draws that all ranks share."""
    if _current is None:
        return x
    x = x.detach().clone(memory_format=torch.contiguous_format)
    dist.broadcast(x, dist.get_global_rank(_current.group, 0), group=_current.group)
    return x


def broadcast_object(value: Any, group: dist.ProcessGroup | None = None) -> Any:
    """Return rank 0's `value`, a picklable object, on all ranks of `group`, by default the group of `across`."""
    if (group := group or (_current.group if _current else None)) is None:
        return value
    values = [value]
    dist.broadcast_object_list(values, dist.get_global_rank(group, 0), group=group)
    return values[0]


def all_gather_object(value: Any, group: dist.ProcessGroup | None = None) -> list[Any]:
    """Return the picklable `value` of every rank, in rank order, on all ranks of `group`; see `broadcast_object`."""
    if (group := group or (_current.group if _current else None)) is None:
        return [value]
    values: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def any_rank(*flags: bool) -> list[bool]:
    """Return a list with True for each of `flags` that is true on at least one rank."""
    if _current is None:
        return list(flags)
    device = "cpu" if "gloo" in dist.get_backend_config(_current.group) else "cuda"
    largest = _current.reduced(torch.tensor(flags, dtype=torch.uint8, device=device), largest=True)
    return [bool(flag) for flag in largest.tolist()]


class _Gather(torch.autograd.Function):
    """Gather the rows of the ranks in `order`. The backward pass sums the gradients of each row on its own rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Collectives, order: Sequence[int]) -> Tensor:
        ctx.ranks, ctx.order = ranks, order
        parts = ranks.exchange(x)
        return torch.cat([parts[number] for number in order])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        order, ranks = list(ctx.order), ctx.ranks
        gradient = gradient.reshape(len(order), -1, *gradient.shape[1:])
        if order != list(range(ranks.size)):  # a part of a cyclic order
            missing = gradient.new_zeros(ranks.size - len(order), *gradient.shape[1:])
            gradient = torch.cat([gradient, missing]).roll(order[0], 0)
        return ranks.sum_to_owner(gradient), None, None


class _Sum(torch.autograd.Function):
    """Sum values over ranks in the forward pass, and sum gradients over ranks in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Collectives) -> Tensor:
        ctx.ranks = ranks
        return ranks.reduced(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.ranks.reduced(gradient), None


def _apply(function: Any, *arguments: Any) -> Tensor:
    result: Tensor = function.apply(*arguments)
    return result


# Prefer the new names, as newer torch versions deprecate the old ones.
_all_gather: Any = getattr(dist, "all_gather_single", None) or getattr(dist, "all_gather_into_tensor", None)
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or getattr(dist, "reduce_scatter_tensor", None)
