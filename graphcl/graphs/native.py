"""Compiled loops (`_native.c`) for batching and augmentation on the CPU.

The loops are built at installation if a C compiler is found. Without them, and on other devices, operations of torch
and SciPy compute the same results from the same random numbers. The environment variable GRAPHCL_NATIVE=0 disables the
loops. Indices out of range raise `IndexError`.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

try:
    from graphcl.graphs import _native  # type: ignore[attr-defined]
except ImportError:  # no C compiler was found at installation, so torch and SciPy are used
    _native = None

enabled = _native is not None and os.environ.get("GRAPHCL_NATIVE", "1") != "0"
"""Whether the compiled loops are installed and not disabled."""


def takes(*tensors: Tensor | None) -> bool:
    """Return whether the loops are enabled and all `tensors` are contiguous int64 tensors on the CPU, or None."""
    return enabled and all(
        tensor is None or (tensor.dtype == torch.long and tensor.device.type == "cpu" and tensor.is_contiguous())
        for tensor in tensors
    )


def cut(values: Tensor, start: Tensor, graphs: Tensor, total: int) -> Tensor:
    """Return the rows of the given graphs, concatenated.

    Args:
        values: rows of all graphs `[R, ...]`, contiguous; graph g has the rows start[g] .. start[g + 1] - 1.
        start: boundaries of the graphs in `values`.
        graphs: indices of the graphs to return.
        total: number of returned rows.
    """
    out = values.new_empty(total, *values.shape[1:])
    width = values.element_size() * out[:1].numel() if total else 0
    _cut(values, width, values.size(0), start, graphs, total, None, out)
    return out


def cut_pairs(pairs: Tensor, start: Tensor, graphs: Tensor, total: int, shift: Tensor) -> Tensor:
    """Return the columns of the given graphs, concatenated, with each graph's shift added to its columns.

    Args:
        pairs: columns of all graphs `[K, E]`; graph g has the columns start[g] .. start[g + 1] - 1.
        start: boundaries of the graphs in `pairs`.
        graphs: indices of the graphs to return.
        total: number of returned columns.
        shift: number to add to each value of a graph's columns, one number per returned graph.
    """
    out = pairs.new_empty(pairs.size(0), total)
    for row, part in zip(pairs, out, strict=True):
        _cut(row, 8, row.numel(), start, graphs, total, shift, part)
    return out


def _cut(
    values: Tensor, width: int, rows: int, start: Tensor, graphs: Tensor, total: int, shift: Tensor | None, out: Tensor
) -> None:
    _native.cut(
        values.data_ptr(), width, start.data_ptr(), start.numel() - 1, rows, graphs.data_ptr(), graphs.numel(), total,
        _address(shift), out.data_ptr(),
    )  # fmt: skip


def group(ids: Tensor, num_groups: int, values: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Compute `graphcl.graphs.segment.group` by a compiled loop, with the same arguments and results."""
    out, ptr = torch.empty_like(ids), ids.new_empty(num_groups + 1)
    _native.group(ids.data_ptr(), _address(values), ids.numel(), num_groups, ptr.data_ptr(), out.data_ptr())
    return out, ptr


def starts(ids: Tensor, num_groups: int) -> Tensor | None:
    """Return the segment boundaries `[num_groups + 1]` if `ids [E]` is sorted, else None."""
    ptr = ids.new_empty(num_groups + 1)
    return ptr if _native.starts(ids.data_ptr(), ids.numel(), num_groups, ptr.data_ptr()) else None


def keep_nodes(keep: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Renumber the nodes for which the mask `keep [N]` is true.

    Returns:
        Four tensors: the new index of each node, `[N]`; the old indices of the kept nodes, `[N']`; the graphs of the
        kept nodes, `[N']`; the node boundaries of the graphs after removal, `[B + 1]`.
    """
    name, kept, batch, new_ptr = (torch.empty(n, dtype=torch.long) for n in (*3 * [keep.numel()], ptr.numel()))
    _native.keep_nodes(
        keep.data_ptr(), ptr.data_ptr(), ptr.numel() - 1,
        name.data_ptr(), kept.data_ptr(), batch.data_ptr(), new_ptr.data_ptr(),
    )  # fmt: skip
    left = int(new_ptr[-1])
    return name, kept[:left], batch[:left], new_ptr


def keep_edges(
    ptr: Tensor, edge_index: Tensor, edge_ptr: Tensor, keep_edge: Tensor | None, keep_node: Tensor | None,
    name: Tensor | None, with_indices: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Restrict the edges to those that both masks keep, and renumber their nodes by `name [N]`.

    Returns:
        The kept edges, `[2, E']`; the edge boundaries of the graphs after removal, `[B + 1]`; the old indices of the
        kept edges, `[E']`, or None without `with_indices`.
    """
    edges, source, target = edge_index.size(1), *edge_index
    out, new_ptr = edge_index.new_empty(2 * edges), torch.empty_like(edge_ptr)
    kept = edge_index.new_empty(edges) if with_indices else None
    left = _native.keep_edges(
        _address(keep_node), _address(keep_edge), source.data_ptr(), target.data_ptr(), ptr.data_ptr(),
        edge_ptr.data_ptr(), edge_ptr.numel() - 1, _address(name), _address(kept), out.data_ptr(), new_ptr.data_ptr(),
    )  # fmt: skip
    return out[: 2 * left].view(2, left), new_ptr, None if kept is None else kept[:left]


def sample(ptr: Tensor, k: Tensor, order: Tensor) -> Tensor:
    """Return the indices of k[g] elements of each segment g, sorted by segment; see `random_sample`.

    `order` is a random permutation of 0 .. S - 1, where S is the number of elements in segments with k[g] > 0. The
    first k[g] elements of segment g in this order are drawn.
    """
    out, work = ptr.new_empty(int(k.sum())), ptr.new_empty(order.numel() + 3 * k.numel())
    _native.sample(
        ptr.data_ptr(), k.data_ptr(), k.numel(), order.data_ptr(), order.numel(), work.data_ptr(), out.data_ptr()
    )
    return out


def pairs(edge_index: Tensor, among: Tensor | None, num_nodes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the pairs of nodes that the edges `among [K]` (all edges for None) connect; see `EdgePerturb`.

    Returns:
        Four tensors: the indices of all these edges except self-loops, sorted by pair; the boundaries of the pairs in
        the first tensor, `[P + 1]`; the lower node of each pair, `[P]`; the higher node of each pair, `[P]`.
    """
    size = edge_index.size(1) if among is None else among.numel()
    entry, first, low, high = (edge_index.new_empty(size + extra) for extra in (0, 1, 0, 0))
    work = edge_index.new_empty(3 * size + num_nodes + 1)
    source, target = edge_index
    found, kept = _native.pairs(
        source.data_ptr(), target.data_ptr(), edge_index.size(1), _address(among), size, num_nodes,
        work.data_ptr(), entry.data_ptr(), first.data_ptr(), low.data_ptr(), high.data_ptr(),
    )  # fmt: skip
    return entry[:kept], first[: found + 1], low[:found], high[:found]


def grow(ptr: Tensor, size: Tensor, row: Tensor, target: Tensor, travel: Tensor, order: Tensor, gap: float) -> Tensor:
    """Return a mask `[N]` of the region that random growth reaches, size[g] nodes in graph g; see `Subgraph`.

    Args:
        ptr: node boundaries of the graphs, `[B + 1]`, from 0 to N.
        size: number of nodes to keep in each graph, `[B]`, at most the graph's number of nodes.
        row: boundaries of the edges of each source node, `[N + 1]`, from 0 to E.
        target: targets of the edges `[E]`, each in 0 .. N - 1.
        travel: travel time of each edge `[E]`, in float64.
        order: nodes `[N]`, sorted by graph and in random order within a graph; growth starts from the first node.
        gap: time between the starts of two successive nodes in `order`.
    """
    keep = torch.zeros(order.numel(), dtype=torch.bool)
    _native.grow(
        ptr.data_ptr(), size.data_ptr(), size.numel(), row.data_ptr(), target.data_ptr(), travel.data_ptr(),
        order.data_ptr(), gap, keep.data_ptr(),
    )  # fmt: skip
    return keep


def mask(given: Tensor | None, size: int) -> Tensor | None:
    """Return the mask `given` as a contiguous boolean tensor, which the loops require; None stays None.

    Raises:
        IndexError: `given` does not have `size` entries.
    """
    if given is not None and given.shape != (size,):
        raise IndexError(f"a mask must have {size} entries, got {list(given.shape)}")
    return None if given is None else given.to(torch.bool).contiguous()


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
