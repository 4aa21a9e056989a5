"""Sums over neighbours and over graphs, at the speed of memory.

`index_add` and its relatives walk over all edges and write to scattered places, twice: once more for the gradient. Here
the edges are grouped by their end first, so a sum reads what it needs and writes each row once, in parallel and in a
fixed order (bitwise repeatable, on CUDA too); torch's `embedding_bag` does just that, vectorised, without ever holding
the `[E, H]` messages. The gradient is the same operation with the ends exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from graphcl.graphs import native
from graphcl.graphs.segment import pointers, stable_sort


@dataclass(frozen=True)
class Groups:
    """Elements ordered by the group they belong to.

    Args:
        ids: group of each element, `[E]`, in 0 .. G - 1.
        order: the elements group by group, `[E]`; None where they lie so already.
        ptr: where each group starts in that order, and E at the end, `[G + 1]`.
    """

    ids: Tensor
    order: Tensor | None
    ptr: Tensor

    @classmethod
    def of(cls, ids: Tensor, num_groups: int) -> Groups:
        """Group elements by `ids [E]`. Sorts, except where a look shows that the ids are sorted already."""
        ids = ids.contiguous()
        ptr = _starts_if_sorted(ids, num_groups)
        return cls(ids, None, ptr) if ptr is not None else cls(ids, *_grouped(ids, num_groups))

    def sum(self, values: Tensor) -> Tensor:
        """Sum of `values [E, H]` over each group, `[G, H]`; `group_sum` is the same with a gradient."""
        order = torch.arange(values.size(0), device=values.device) if self.order is None else self.order
        return _bag(values, order, self.ptr)

    def spread(self, values: Tensor) -> Tensor:
        """Each element's row of `values [G, H]`, `[E, H]`; the function `spread` is the same with a gradient."""
        return values.contiguous().index_select(0, self.ids)  # ten times slower where rows are not contiguous


@dataclass(frozen=True)
class Neighbours:
    """The edges of N nodes, once by their target and once by their source.

    Args:
        sources: source of each edge, target by target, `[E]`.
        target_ptr: where each target's edges start there, and E at the end, `[N + 1]`.
        targets: target of each edge, source by source, `[E]`.
        source_ptr: where each source's edges start there, and E at the end, `[N + 1]`.
    """

    sources: Tensor
    target_ptr: Tensor
    targets: Tensor
    source_ptr: Tensor

    @classmethod
    def of(cls, edge_index: Tensor, num_nodes: int) -> Neighbours:
        """Group the edges `[2, E]`. Sorts, except where a look shows that they are sorted already."""
        source, target = (row.contiguous() for row in edge_index)
        return cls(*_beside(target, source, num_nodes), *_beside(source, target, num_nodes))

    def sum(self, x: Tensor, with_self: bool = False) -> Tensor:
        """sum of x_u over the edges u -> v, for each node v: `[N, H]`; `with_self`: and x_v."""
        total: Tensor = _Gathered.apply(x, self.sources, self.target_ptr, self.targets, self.source_ptr, with_self)
        return total


def _beside(ids: Tensor, beside: Tensor, num_groups: int) -> tuple[Tensor, Tensor]:
    """What stands `beside` the ids, group by group, and where each group starts."""
    ptr = _starts_if_sorted(ids, num_groups)
    return (beside, ptr) if ptr is not None else _grouped(ids, num_groups, beside)


def _grouped(ids: Tensor, num_groups: int, beside: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """What stands `beside` the ids `[E]` (their positions by default), group by group, and where each group starts."""
    if native.takes(ids, beside):
        return native.group(ids, num_groups, beside)
    order = stable_sort(ids, num_groups)[1]
    return order if beside is None else beside.index_select(0, order), _starts(ids, num_groups)


def _starts_if_sorted(ids: Tensor, num_groups: int) -> Tensor | None:
    """Where each group starts, `[num_groups + 1]`, if `ids [E]` are seen to be sorted."""
    if ids.is_cuda:  # a look would wait for the device, which costs more than sorting
        return None
    if native.takes(ids):
        return native.starts(ids, num_groups)
    return _starts(ids, num_groups) if bool((ids[1:] >= ids[:-1]).all()) else None


def _starts(ids: Tensor, num_groups: int) -> Tensor:
    """Where each group starts once `ids [E]` are sorted, `[num_groups + 1]`."""
    if ids.is_cuda:  # bincount would wait for the device
        counts = torch.zeros(num_groups, dtype=torch.long, device=ids.device)
        counts.scatter_add_(0, ids, torch.ones_like(ids))
    else:
        counts = torch.bincount(ids, minlength=num_groups)
    return pointers(counts)


def group_sum(values: Tensor, groups: Groups) -> Tensor:
    """Sum of `values [E, H]` over each group: `[G, H]`."""
    total: Tensor = _Grouped.apply(values, groups)
    return total


def spread(values: Tensor, groups: Groups) -> Tensor:
    """Each element's group's row of `values [G, H]`: `[E, H]`."""
    rows: Tensor = _Spread.apply(values, groups)
    return rows


class _Gathered(torch.autograd.Function):
    """Rows of x summed over bags; the gradient sums over the opposite bags."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, index: Tensor, ptr: Tensor, back_index: Tensor, back_ptr: Tensor, with_self: bool
    ) -> Tensor:
        ctx.save_for_backward(index, ptr, back_index, back_ptr)
        ctx.with_self = with_self
        total = _bag(x, index, ptr)
        return total.add_(x) if with_self else total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        index, ptr, back_index, back_ptr = ctx.saved_tensors
        return _Gathered.apply(grad, back_index, back_ptr, index, ptr, ctx.with_self), None, None, None, None, None


class _Grouped(torch.autograd.Function):
    """`group_sum`; its gradient is `spread`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, groups: Groups) -> Tensor:
        ctx.groups = groups
        return groups.sum(values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Spread.apply(grad, ctx.groups), None


class _Spread(torch.autograd.Function):
    """`spread`; its gradient is `group_sum`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, groups: Groups) -> Tensor:
        ctx.groups = groups
        return groups.spread(values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Grouped.apply(grad, ctx.groups), None


def _bag(values: Tensor, index: Tensor, ptr: Tensor) -> Tensor:
    total: Tensor = embedding_bag(index, values.contiguous(), ptr, mode="sum", include_last_offset=True)
    return total
