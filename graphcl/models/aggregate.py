"""Compute differentiable sums of node rows over neighbours and over graphs.

Edges are sorted by target. Then `embedding_bag` sums the rows of each target in a fixed order, so the result is bitwise
repeatable on CUDA too. The `[E, H]` messages are never stored. The gradient is the same sum over the reversed edges.
While torch compiles, exports or traces a model, scatter operations compute the same sums, as torch can trace them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag
from torch_geometric.utils import scatter

from graphcl.graphs import native
from graphcl.graphs.segment import group, pointers

_WIDE = 512
"""Bytes of a row from which on `index_select` is fast on CUDA."""
_MANY = 2**15
"""Rows up to which `index_select` is fast on CUDA."""


def tracing() -> bool:
    """Return True while torch compiles, exports or traces the model, which allows only traceable operations."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def count_graphs(batch: Tensor) -> int:
    """Return the number of graphs, max(`batch`) + 1; an exported or traced model recomputes it for each input."""
    last: Any = batch.max()
    return last + 1 if torch.jit.is_tracing() else last.item() + 1


@dataclass(frozen=True)
class SegmentIndex:
    """Assignment of E elements to G segments, such as nodes to graphs."""

    ids: Tensor
    """Segment of each element, `[E]`, in 0 .. G - 1."""
    order: Tensor | None
    """Indices of the elements, sorted by segment, `[E]`; None if `ids` is sorted already."""
    ptr: Tensor
    """Boundaries of the segments in the sorted order, `[G + 1]`, from 0 to E."""

    @classmethod
    def of(cls, ids: Tensor, num_segments: int) -> SegmentIndex:
        """Return the index of the segment ids `ids [E]`, or raise IndexError (on the CPU) if one is out of range."""
        if tracing():  # no sorting: the sums need only the ids, the mean needs only the counts
            counts = scatter(torch.ones_like(ids), ids, dim_size=num_segments)
            return cls(ids, None, torch.cat([counts.new_zeros(1), counts.cumsum(0)]))
        ids = ids.contiguous()
        return cls(ids, *_ordered(ids, num_segments))


@dataclass(frozen=True)
class CSRAdjacency:
    """Edges of a graph in CSR format, both sorted by target and sorted by source; N nodes and E edges."""

    sources: Tensor
    """Sources of the edges sorted by target, `[E]`."""
    target_ptr: Tensor
    """Boundaries of each target's edges in `sources`, `[N + 1]`, from 0 to E."""
    targets: Tensor
    """Targets of the edges sorted by source, `[E]`."""
    source_ptr: Tensor
    """Boundaries of each source's edges in `targets`, `[N + 1]`, from 0 to E."""

    @classmethod
    def of(cls, edge_index: Tensor, num_nodes: int) -> CSRAdjacency:
        """Return the CSR adjacency of `edge_index [2, E]`; sort its rows only if necessary."""
        source, target = (row.contiguous() for row in edge_index)
        if tracing():  # no sorting: the sums need only the edges
            return cls(source, SegmentIndex.of(target, num_nodes).ptr, target, SegmentIndex.of(source, num_nodes).ptr)
        return cls(*_ordered(target, num_nodes, source), *_ordered(source, num_nodes, target))

    def __call__(self, layer: Any, x: Tensor) -> Tensor:
        """Return the rows `x [N, H]` plus the sums over their neighbours, in any `layer` of an encoder."""
        return self.sum(x, with_self=True)

    def sum(self, x: Tensor, with_self: bool = False) -> Tensor:
        """Return the sum of x_u over all edges u -> v for each node v, `[N, H]`; `with_self` adds x_v."""
        if tracing():
            total = scatter(x.index_select(0, self.sources), self.targets, dim_size=x.size(0))
            return total + x if with_self else total
        return _NeighbourSum.apply(x, self.sources, self.target_ptr, self.targets, self.source_ptr, with_self)


def _ordered(ids: Tensor, num_groups: int, values: Tensor | None = None) -> tuple[Any, Tensor]:
    """Return `values [E]` sorted by `ids [E]`, and the segment boundaries `[num_groups + 1]`.

    Without `values`, return the sorting permutation, or None if `ids` is known to be sorted.
    """
    if native.takes(ids):
        ptr = native.starts(ids, num_groups)
        if ptr is not None:
            return values, ptr
    elif not ids.is_cuda and bool((ids[1:] >= ids[:-1]).all()):  # on CUDA, sorting is faster than waiting for the check
        if ids.numel() and not 0 <= int(ids[0]) <= int(ids[-1]) < num_groups:
            raise IndexError("a segment index is out of range")
        return values, pointers(torch.bincount(ids, minlength=num_groups))
    return group(ids, num_groups, values)


def segment_sum(values: Tensor, groups: SegmentIndex) -> Tensor:
    """Return the sums `[G, H]` of the rows of `values [E, H]` over the segments `groups`."""
    if tracing():
        return scatter(values, groups.ids, dim_size=groups.ptr.size(0) - 1)
    return _SegmentSum.apply(values, groups.ids, groups.order, groups.ptr)


def gather_rows(values: Tensor, groups: SegmentIndex) -> Tensor:
    """Return `values[groups.ids]`, `[E, H]`: for each element, the row of its segment in `values [G, H]`."""
    if tracing():
        return values.index_select(0, groups.ids)
    return _GatherRows.apply(values, groups.ids, groups.order, groups.ptr)


class _NeighbourSum(torch.autograd.Function):
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
        return _NeighbourSum.apply(grad, back_index, back_ptr, index, ptr, ctx.with_self), None, None, None, None, None


class _SegmentSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, ids: Tensor, order: Tensor | None, ptr: Tensor) -> Tensor:
        ctx.save_for_backward(ids, order, ptr)
        order = torch.arange(values.size(0), device=values.device) if order is None else order
        return _bag(values, order, ptr)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _GatherRows.apply(grad, *ctx.saved_tensors), None, None, None


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, ids: Tensor, order: Tensor | None, ptr: Tensor) -> Tensor:
        ctx.save_for_backward(ids, order, ptr)
        return _pick_rows(values.contiguous(), ids)  # ten times slower without it on the CPU

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _SegmentSum.apply(grad, *ctx.saved_tensors), None, None, None


def _pick_rows(values: Tensor, ids: Tensor) -> Tensor:
    size = values[:1].nbytes
    narrow = values.dim() == 2 and 0 < size < _WIDE and size % 16 == values.storage_offset() == 0
    if not (values.is_cuda and narrow and ids.numel() > _MANY):
        return values.index_select(0, ids)
    # One thread copies 16 bytes; in `index_select`, a block copies a row.
    wide = values.view(torch.complex128)
    return wide[ids[:, None], torch.arange(wide.size(1), device=ids.device)].view(values.dtype)


def _bag(values: Tensor, index: Tensor, ptr: Tensor) -> Tensor:
    return embedding_bag(index, values.contiguous(), ptr, mode="sum", include_last_offset=True)
