r"""Several processes ("ranks"), each with its share of a global batch: the group in use, and what is done over it.

The rule by which a loss over R ranks is right: each rank computes the mean over its *own* anchors, L_r, and what is
minimised is $\frac1R \sum_r L_r$, the mean over all. Whatever comes from another rank sends its gradient back there,

$$\frac{\partial}{\partial z_r} \sum_s L_s,$$

a sum over ranks; `DistributedDataParallel` then averages the parameters' gradients, which is the factor 1/R. A
statistic of all ranks' rows follows the same rule: it is summed over ranks, and so is its gradient.

Nothing here guesses: without `across` every loss is local, even where `torch.distributed` is initialised. In a world of
one, nothing is sent and no operation is added.

All ranks call the same functions in the same order, and have equally many graphs: what each sends is framed by its
number of rows, so that another one ends in a message on all of them, where that is seen without waiting for the device
(on the CPU; on CUDA where a rank's own number is not the one that was agreed on).

Differs: `torch.distributed.nn.functional.all_gather` has these gradients too, but scatters R times on gloo; OpenCLIP by
default gathers without a gradient, so that a row is pushed by its own rank's anchors only (its `gather_with_grad`
mends that).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcl.errors import InputError

Rows = dict[tuple[torch.dtype, torch.Size], int]
"""Form of rows -> how many of them each rank has."""
_HEADER = 16
"""Bytes before the rows of a message: their number, and room that keeps the rows aligned."""


class Ranks:
    """A process group, and the numbers of rows that its ranks have agreed on.

    Args:
        group: of two processes or more, this one among them.
        rows: what they have agreed on already.
    """

    def __init__(self, group: dist.ProcessGroup, rows: Rows | None = None) -> None:
        self.group, self.size, self.rank = group, dist.get_world_size(group), dist.get_rank(group)
        self._rows = {} if rows is None else rows

    def exchange(self, x: Tensor) -> Tensor:
        """The rows `[n, ...]` of all ranks, `[R, n, ...]`, without a gradient.

        Raises:
            InputError: ranks have rows of different numbers or forms.
        """
        form, n = (x.dtype, x.shape[1:]), x.size(0)
        if form not in self._rows:
            self._agree(x)
        rows, width = self._rows[form], math.prod(x.shape[1:]) * x.element_size()
        message = torch.empty(_HEADER + rows * width, dtype=torch.uint8, device=x.device)
        message[:8].view(torch.int64).fill_(n)
        own = x[:rows].contiguous().view(-1).view(torch.uint8)
        message[_HEADER : _HEADER + own.numel()] = own
        found = message.new_empty(self.size, message.numel())
        _all_gather(found.view(-1), message, group=self.group)
        if x.device.type == "cpu" or n != rows:
            self.check_sizes(found[:, :8].contiguous().view(torch.int64).flatten().tolist())
            if n > rows:
                self._rows[form] = n
                return self.exchange(x)
        return found[:, _HEADER : _HEADER + n * width].view(x.dtype).view(self.size, *x.shape)

    def check_sizes(self, sizes: Sequence[float]) -> None:
        """Refuse different numbers of rows, as all ranks do."""
        if len(set(sizes)) > 1:
            raise InputError(
                f"all ranks must have equally many graphs in a batch, got {', '.join(str(int(n)) for n in sizes)} by "
                "rank; make_loader(..., share=(rank, ranks)) cuts equal shares."
            )

    def sum_to_owner(self, x: Tensor) -> Tensor:
        """Of `x [R, n, ...]` of all ranks, those with this one's number, added up: `[n, ...]`."""
        x = x.contiguous()
        backend = _backend(self.group, x.device)
        if backend == "nccl":
            own = torch.empty_like(x[0])
            _reduce_scatter(own, x.view(-1, *x.shape[2:]), group=self.group)
            return own
        if backend == "gloo":  # half of what an all-reduce sends
            parts = torch.empty_like(x)
            dist.all_to_all_single(parts, x, group=self.group)
            return parts.sum(dim=0)
        x = x.clone()
        dist.all_reduce(x, group=self.group)
        return x[self.rank]

    def reduced(self, x: Tensor, largest: bool = False) -> Tensor:
        """The sum of all ranks' `x`, or the entrywise maximum, without a gradient."""
        x = x.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(x, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM, group=self.group)
        return x

    def summed_in_order(self, x: Tensor) -> Tensor:
        """The sum of all ranks' `x [n]`, without a gradient, each number's added up in the order of ranks.

        Each rank adds up its part of the numbers, which sends as many bytes as a ring's all-reduce.
        """
        length = -(-x.numel() // self.size)
        parts = x.new_zeros(self.size, length)
        parts.view(-1)[: x.numel()] = x
        found = torch.empty_like(parts)
        dist.all_to_all_single(found, parts, group=self.group)
        own = found[0].clone()
        for part in found[1:]:
            own += part
        _all_gather(parts.view(-1), own, group=self.group)
        return parts.view(-1)[: x.numel()]

    def agree(self, x: Tensor) -> None:
        """Refuse rows of which ranks have other numbers or forms: the first of a form and, on CUDA, of a number.

        Raises:
            InputError: they differ.
        """
        known = self._rows.get((x.dtype, x.shape[1:]))
        if known is None or (known != x.size(0) and x.device.type != "cpu"):
            self._agree(x)

    def _agree(self, x: Tensor) -> None:
        """Compare what all ranks are about to send."""
        forms: list[Any] = [None] * self.size
        dist.all_gather_object(forms, (x.size(0), str(x.dtype), list(x.shape[1:])), group=self.group)
        if any(form[1:] != forms[0][1:] for form in forms):
            listed = ", ".join(f"{[form[0], *form[2]]} of {form[1].removeprefix('torch.')}" for form in forms)
            raise InputError(f"all ranks must have rows of one form, got {listed} by rank; they must train one model.")
        self.check_sizes([form[0] for form in forms])
        self._rows[x.dtype, x.shape[1:]] = x.size(0)


_agreed: WeakKeyDictionary[dist.ProcessGroup, Rows] = WeakKeyDictionary()
"""Of each group, which is gone from here with the group."""
_current: Ranks | None = None


@contextmanager
def across(group: dist.ProcessGroup | None) -> Iterator[None]:
    """Let losses and methods see the batches of all ranks of a process group as one.

    Put it around the training loop, steps and ends of epochs too; all ranks of the group enter it. It holds for the
    whole process, threads too, as collectives have one order.

    Args:
        group: such as `torch.distributed.group.WORLD`. `None`, or a group of one: this process alone.

    Raises:
        InputError: this process is not in the group.

    Example:
        >>> with across(None):
        ...     size(), rank()
        (1, 0)
    """
    global _current
    before = _current
    if group is not None and dist.get_rank(group) < 0:
        raise InputError("this process is not in the `group` that it is to work across.")
    try:
        _current = None
        if group is not None and dist.get_world_size(group) > 1:
            _current = Ranks(group, _agreed.setdefault(group, {}))
        yield
    finally:
        _current = before


def current() -> Ranks | None:
    """The ranks that are worked across; None for this process alone."""
    return _current


def size() -> int:
    """R, how many ranks there are; 1 for this process alone."""
    return _current.size if _current else 1


def rank() -> int:
    """Which of them this process is, from 0."""
    return _current.rank if _current else 0


def gather(x: Tensor) -> Tensor:
    """The rows of all ranks in their order, with their gradients; of `[n, ...]`, `[R n, ...]`.

    Args:
        x: a rank's rows, as many on all ranks.

    Raises:
        InputError: ranks have rows of different numbers or forms.
    """
    return x if _current is None else _gathered(x, _current, range(_current.size))


def others(x: Tensor) -> Tensor:
    """The other ranks' rows, the next one's first, the first after the last: of `[n, ...]`, `[(R - 1) n, ...]`.

    So own rows and these follow one another as in the global batch, in a circle. Else as `gather`.
    """
    if _current is None:
        return x[:0]
    return _gathered(x, _current, [(_current.rank + step) % _current.size for step in range(1, _current.size)])


def sum_over_ranks(x: Tensor) -> Tensor:
    """The sum of all ranks' `x`, of one shape, with its gradient."""
    return x if _current is None else _apply(_Sum, x, _current)


def largest_over_ranks(x: Tensor) -> Tensor:
    """The entrywise maximum of all ranks' `x`, of one shape, as a constant."""
    return x.detach() if _current is None else _current.reduced(x, largest=True)


def mean_over_ranks(x: Tensor) -> Tensor:
    """The mean of all ranks' rows, with its gradient; of `[n, ...]`, `[...]`.

    Raises:
        InputError: ranks have different numbers of rows (looked for on the CPU only).
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
    """A rank's part in the mean over all ranks' things, of which they have different numbers.

    Args:
        mean: over the rank's own.
        count: how many those are.

    Returns:
        R count / (the sum of all counts) times the mean: over ranks, the mean of that is the mean over all.
    """
    if _current is None:
        return mean
    own = torch.as_tensor(count, dtype=mean.dtype, device=mean.device)
    return mean * (_current.size * own / _current.reduced(own).clamp(min=1))


def broadcast(x: Tensor) -> Tensor:
    """Rank 0's `x`, of one shape on all ranks, as a constant: for what one process would draw once a batch."""
    if _current is None:
        return x
    x = x.detach().clone(memory_format=torch.contiguous_format)
    dist.broadcast(x, dist.get_global_rank(_current.group, 0), group=_current.group)
    return x


def share(value: Any) -> Any:
    """Rank 0's plain value, on all ranks."""
    if _current is None:
        return value
    values = [value]
    dist.broadcast_object_list(values, dist.get_global_rank(_current.group, 0), group=_current.group)
    return values[0]


def collect(value: Any) -> list[Any]:
    """All ranks' plain values, on all ranks, by rank."""
    if _current is None:
        return [value]
    values: list[Any] = [None] * _current.size
    dist.all_gather_object(values, value, group=_current.group)
    return values


def on_any(*flags: bool) -> list[bool]:
    """Which of some questions any rank answers with yes."""
    if _current is None:
        return list(flags)
    device = torch.device("cpu" if _backend(_current.group, torch.device("cpu")) else "cuda")
    found = _current.reduced(torch.tensor(flags, dtype=torch.uint8, device=device), largest=True)
    return [bool(each) for each in found.tolist()]


class _Gather(torch.autograd.Function):
    """Rows of some ranks, in an order; their gradients go back to them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks, order: Sequence[int]) -> Tensor:
        ctx.ranks, ctx.order = ranks, order
        parts = ranks.exchange(x)
        return torch.cat([parts[number] for number in order])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        order = list(ctx.order)
        gradient = gradient.reshape(len(order), -1, *gradient.shape[1:])
        if order != list(range(ctx.ranks.size)):
            every = gradient.new_zeros(ctx.ranks.size, *gradient.shape[1:])
            every[order] = gradient
            gradient = every
        return ctx.ranks.sum_to_owner(gradient), None, None


class _Sum(torch.autograd.Function):
    """The sum over ranks; so is the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks.reduced(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.ranks.reduced(gradient), None


def _apply(function: Any, *arguments: Any) -> Tensor:
    result: Tensor = function.apply(*arguments)
    return result


def _gathered(x: Tensor, ranks: Ranks, order: Sequence[int]) -> Tensor:
    return _apply(_Gather, x, ranks, order)


def _backend(group: dist.ProcessGroup, device: torch.device) -> str:
    """What carries the tensors of a device."""
    config = dict(each.split(":") for each in dist.get_backend_config(group).split(","))
    return config.get(device.type, "")


# Newer torch warns of the older names.
_all_gather: Any = getattr(dist, "all_gather_single", None) or getattr(dist, "all_gather_into_tensor", None)
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or getattr(dist, "reduce_scatter_tensor", None)
