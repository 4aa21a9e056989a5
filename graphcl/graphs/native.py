"""Compiled loops (`_native.c`, `_draws.c`) for batching and augmentation on the CPU.

The loops are built at installation if a C compiler is found. Without them, and on other devices, operations of torch
and SciPy compute the same results from the same random numbers. The environment variable GRAPHCL_NATIVE=0 disables the
loops. Indices out of range raise `IndexError`.
"""

from __future__ import annotations

import os
from typing import Any

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
        tensor is None or (tensor.dtype == torch.long and tensor.is_cpu and tensor.is_contiguous())
        for tensor in tensors
    )


def _check(*sizes: tuple[Tensor | None, int]) -> None:
    """Raise IndexError unless each tensor has its number of elements; the loops trust these numbers."""
    for tensor, size in sizes:
        if tensor is not None and tensor.numel() != size:
            raise IndexError(f"an array must have {size} elements, got {tensor.numel()}")


def _run(loop: str, *arguments: Tensor | float | None) -> Any:
    """Call a loop with the addresses of tensors, numbers, and the null pointer for None."""
    return getattr(_native, loop)(
        *(0 if a is None else a.data_ptr() if isinstance(a, Tensor) else a for a in arguments)
    )


def cut_bounds(start: Tensor, graphs: Tensor) -> tuple[Tensor, int]:
    """Return the boundaries `[B + 1]` of the rows that `cut` returns for each graph, and the number of these rows."""
    ptr = start.new_empty(graphs.numel() + 1)
    return ptr, _run("cut_bounds", start, start.numel() - 1, graphs, graphs.numel(), ptr)


def cut(values: Tensor, start: Tensor, graphs: Tensor, total: int) -> Tensor:
    """Return the `total` rows of the given graphs; graph g has the rows start[g] .. start[g + 1] - 1 of `values`.

    `values [R, ...]` must be contiguous.
    """
    out = values.new_empty(total, *values.shape[1:])
    width = values.element_size() * out[:1].numel() if total else 0
    _run("cut", values, width, start, start.numel() - 1, values.size(0), graphs, graphs.numel(), total, None, out)
    return out


def cut_pairs(pairs: Tensor, start: Tensor, graphs: Tensor, total: int, shift: Tensor) -> Tensor:
    """Return the `total` columns of the given graphs; graph g has the columns start[g] .. start[g + 1] - 1 of `pairs`.

    The columns of the i-th returned graph are increased by shift[i].
    """
    out = pairs.new_empty(pairs.size(0), total)
    parts = start, start.numel() - 1, pairs.size(1), graphs, graphs.numel(), total, shift
    for row in range(pairs.size(0)):
        _run("cut", pairs.data_ptr() + 8 * row * pairs.size(1), 8, *parts, out.data_ptr() + 8 * row * total)
    return out


def group(ids: Tensor, num_groups: int, values: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Compute `graphcl.graphs.segment.group` by a compiled loop, with the same arguments and results."""
    out, ptr = torch.empty_like(ids), ids.new_empty(num_groups + 1)
    _check((values, ids.numel()))
    _run("group", ids, values, ids.numel(), num_groups, ptr, out)
    return out, ptr


def starts(ids: Tensor, num_groups: int) -> Tensor | None:
    """Return the segment boundaries `[num_groups + 1]` if `ids [E]` is sorted, else None."""
    ptr = ids.new_empty(num_groups + 1)
    return ptr if _run("starts", ids, ids.numel(), num_groups, ptr) else None


def ascends(ptr: Tensor, end: int) -> bool:
    """Return whether the boundaries `ptr [B + 1]` ascend from 0 to `end`."""
    ascending: bool = _run("ascends", ptr, ptr.numel() - 1, end)
    return ascending


def rebase(ptr: Tensor, bounds: Tensor) -> Tensor:
    """Return the boundaries ptr[a] .. ptr[b] of each part a .. b between `bounds`, minus ptr[a], concatenated."""
    out = ptr.new_empty(ptr.numel() + bounds.numel() - 2)
    _run("rebase", ptr, ptr.numel() - 1, bounds, bounds.numel() - 1, out)
    return out


def keep_nodes(keep: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Renumber the nodes for which the mask `keep [N]` is true.

    Returns:
        Four tensors: the new index of each node, `[N]`; the old indices of the kept nodes, `[N']`; the graphs of the
        kept nodes, `[N']`; the node boundaries of the graphs after removal, `[B + 1]`.
    """
    name, kept, batch, new_ptr = (ptr.new_empty(n) for n in (*3 * [keep.numel()], ptr.numel()))
    left = _run("keep_nodes", keep, keep.numel(), ptr, ptr.numel() - 1, name, kept, batch, new_ptr)
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
    edges, nodes = edge_index.size(1), int(ptr[-1]) if name is None else name.numel()
    _check((keep_node, nodes), (keep_edge, edges), (edge_ptr, ptr.numel()))
    out, new_ptr = edge_index.new_empty(2 * edges), torch.empty_like(edge_ptr)
    kept = edge_index.new_empty(edges) if with_indices else None
    graphs = edge_ptr.numel() - 1
    of_nodes, of_edges = (keep_node, name, nodes), (keep_edge, edge_index, edges)
    left = _run("keep_edges", *of_nodes, *of_edges, ptr, graphs, edge_ptr, kept, out, new_ptr)
    return out[: 2 * left].view(2, left), new_ptr, None if kept is None else kept[:left]


def ratio_count(ratio: float, counts: Tensor) -> Tensor:
    """Compute `graphcl.graphs.segment.ratio_count` by a compiled loop."""
    out = torch.empty_like(counts)
    _run("ratio_count", ratio, counts, counts.numel(), out)
    return out


def sample_sizes(k: Tensor, ptr: Tensor, other: Tensor) -> tuple[int, int, int]:
    """Return the sum of `k [B]`, and the numbers of elements that both boundaries give to segments with k[g] > 0."""
    _check((ptr, k.numel() + 1), (other, k.numel() + 1))
    sizes: tuple[int, int, int] = _run("sample_sizes", k, k.numel(), ptr, other)
    return sizes


def sample(ptr: Tensor, k: Tensor, order: Tensor, size: int) -> Tensor:
    """Return the indices of k[g] elements of each segment g, `[size]`, sorted by segment; see `random_sample`.

    `order` is a random permutation of 0 .. S - 1, where S is the number of elements in segments with k[g] > 0. The
    first k[g] elements of segment g in this order are drawn.
    """
    out, work = ptr.new_empty(size), ptr.new_empty(order.numel() + 3 * k.numel())
    _check((ptr, k.numel() + 1))
    _run("sample", ptr, k, k.numel(), order, order.numel(), work, out)
    return out


class EdgePairs:
    """The connected pairs of nodes in each graph of a batch, which `EdgePerturb` removes and moves.

    Args:
        ptr, edge_ptr: boundaries of the graphs, `[B + 1]`.
        edge_index: the edges, `[2, E]`.
        graphs: mask `[B]` of the graphs to change; all for None.
        ratio: fraction of the pairs of a graph to remove.
        add: whether removed pairs move to unconnected nodes as far as there are any; else they are only removed.

    Attributes:
        removable: number of pairs in the graphs that lose any.
        absent: number of unconnected pairs in the graphs whose new ends are drawn from a list of them.
        tries: number of draws that the next round of new ends needs for the other graphs; 0 if all have been drawn.
    """

    def __init__(
        self, ptr: Tensor, edge_ptr: Tensor, edge_index: Tensor, graphs: Tensor | None, ratio: float, add: bool
    ) -> None:
        edges, nodes, count = edge_index.size(1), int(ptr[-1]), ptr.numel() - 1
        _check((edge_ptr, count + 1), (graphs, count))
        table = ptr.new_empty(4 * count + 7 * edges + nodes + 2)
        self._arrays = ptr, edge_ptr, edge_index, nodes, edges, count, table
        found = _run("edge_pairs", *self._arrays, mask(graphs, count), ratio, int(add))
        self.removable, self.absent, self.tries = found

    def draw_ends(self, order: Tensor | None, draws: Tensor | None) -> None:
        """Draw new ends by `order`, a permutation of the `absent` pairs, and `draws [2, tries]`, uniform in [0, 1)."""
        sizes = [0 if values is None else values.size(-1) for values in (order, draws)]
        self.tries = _run("new_ends", *self._arrays, order, sizes[0], draws, sizes[1])

    def replace(self, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Remove and move pairs in the order of a permutation `[removable]`.

        Returns:
            Three tensors: a mask `[E]` of the edges that are not removed, the indices `[K]` of the moved edges, and
            their new sources and targets `[2, K]`.
        """
        edges = self._arrays[4]
        keep, moved, moved_to = torch.ones(edges, dtype=torch.bool), order.new_empty(edges), order.new_empty(2, edges)
        count = _run("replace_pairs", *self._arrays, order, order.numel(), keep, moved, moved_to)
        return keep, moved[:count], moved_to[:, :count]


def grow(ptr: Tensor, k: Tensor, edge_ptr: Tensor, edge_index: Tensor, order: Tensor, travel: Tensor) -> Tensor:
    """Return a mask `[N]` of the regions that random growth reaches, all but k[g] nodes of graph g; see `Subgraph`.

    `order` is a random permutation of the nodes of the graphs with k[g] > 0, and `travel` holds the travel times of
    their edges, in float64.
    """
    edges, nodes = edge_index.size(1), int(ptr[-1])
    _check((ptr, k.numel() + 1), (edge_ptr, k.numel() + 1))
    keep = torch.empty(nodes, dtype=torch.bool)
    draws = order, order.numel(), travel, travel.numel()
    _run("grow", ptr, k, edge_ptr, edge_index, nodes, edges, k.numel(), *draws, keep)
    return keep


def mask(values: Tensor | None, size: int) -> Tensor | None:
    """Return the mask `values` of `size` entries as a contiguous boolean tensor, which the loops require."""
    if values is not None and values.shape != (size,):
        raise IndexError(f"a mask must have {size} entries, got {list(values.shape)}")
    if values is None or (values.dtype == torch.bool and values.is_contiguous()):
        return values
    return values.to(torch.bool).contiguous()
