"""The compiled inner loops of batching and augmentation on the CPU, `_native.c`: one pass where torch takes ten.

They are built when the package is installed and there is a C compiler; without them, and on other devices, the same
things are done by torch's operations, which stay beside every call as the reference (`GRAPHCL_NATIVE=0` turns to them).
What is computed is the same; what is drawn follows the same law, from other numbers. Indices that point nowhere raise
`IndexError`, as torch's do.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

try:
    from graphcl.graphs import _native  # type: ignore[attr-defined]
except ImportError:  # there was no compiler
    _native = None

enabled = _native is not None and os.environ.get("GRAPHCL_NATIVE", "1") != "0"
"""Whether the compiled loops are used."""


def takes(*tensors: Tensor | None) -> bool:
    """Whether the compiled loops are there and take these: contiguous 64-bit integers on the CPU."""
    return enabled and all(
        each is None or (each.dtype == torch.long and each.device.type == "cpu" and each.is_contiguous())
        for each in tensors
    )


def cut(values: Tensor, start: Tensor, graphs: Tensor, total: int) -> Tensor:
    """Rows start[g] .. start[g + 1] - 1 of contiguous `values [R, ...]` for each g of `graphs`, `total` in all."""
    out = values.new_empty(total, *values.shape[1:])
    width = values.element_size() * out[:1].numel() if total else 0
    _cut(values, width, values.size(0), start, graphs, total, None, out)
    return out


def cut_pairs(pairs: Tensor, start: Tensor, graphs: Tensor, total: int, shift: Tensor) -> Tensor:
    """Columns start[g] .. start[g + 1] - 1 of `pairs [K, E]` for each g of `graphs`, raised by the graph's `shift`."""
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


def group(ids: Tensor, num_groups: int, beside: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """What stands `beside` the ids `[E]` (their positions by default), group by group, and where each group starts."""
    out, ptr = torch.empty_like(ids), ids.new_empty(num_groups + 1)
    _native.group(ids.data_ptr(), _address(beside), ids.numel(), num_groups, ptr.data_ptr(), out.data_ptr())
    return out, ptr


def starts(ids: Tensor, num_groups: int) -> Tensor | None:
    """Where each group starts, `[num_groups + 1]`, if `ids [E]` ascend; else None."""
    ptr = ids.new_empty(num_groups + 1)
    return ptr if _native.starts(ids.data_ptr(), ids.numel(), num_groups, ptr.data_ptr()) else None


def keep_nodes(keep: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """New number of each node `[N]`, the nodes that stay, their graphs, and the new boundaries `[B + 1]`."""
    name, kept, batch, new_ptr = (torch.empty(n, dtype=torch.long) for n in (*3 * [keep.numel()], ptr.numel()))
    _native.keep_nodes(
        keep.data_ptr(), ptr.data_ptr(), ptr.numel() - 1,
        name.data_ptr(), kept.data_ptr(), batch.data_ptr(), new_ptr.data_ptr(),
    )  # fmt: skip
    left = int(new_ptr[-1])
    return name, kept[:left], batch[:left], new_ptr


def keep_edges(
    ptr: Tensor, edge_index: Tensor, edge_ptr: Tensor, keep_edge: Tensor | None, keep_node: Tensor | None,
    name: Tensor | None, positions: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """The edges that stay, renamed, `[2, K]`, their graphs' boundaries `[B + 1]`, and where they were, if wanted."""
    edges, source, target = edge_index.size(1), *edge_index
    out, new_ptr = edge_index.new_empty(2 * edges), torch.empty_like(edge_ptr)
    kept = edge_index.new_empty(edges) if positions else None
    left = _native.keep_edges(
        _address(keep_node), _address(keep_edge), source.data_ptr(), target.data_ptr(), ptr.data_ptr(),
        edge_ptr.data_ptr(), edge_ptr.numel() - 1, _address(name), _address(kept), out.data_ptr(), new_ptr.data_ptr(),
    )  # fmt: skip
    return out[: 2 * left].view(2, left), new_ptr, None if kept is None else kept[:left]


def random_subset(ptr: Tensor, k: Tensor, generator: torch.Generator | None) -> Tensor:
    """See `graphcl.graphs.segment.random_subset`."""
    chosen = torch.zeros(int(ptr[-1]), dtype=torch.bool)
    _native.subset(ptr.data_ptr(), k.data_ptr(), k.numel(), _seed(generator), chosen.data_ptr())
    return chosen


def grow(ptr: Tensor, edge_ptr: Tensor, size: Tensor, edge_index: Tensor, generator: torch.Generator | None) -> Tensor:
    """Mask `[N]` of a region of size[g] nodes of each graph, see `graphcl.augment.Subgraph`."""
    keep = torch.empty(int(ptr[-1]), dtype=torch.bool)
    source, target = edge_index
    _native.grow(
        ptr.data_ptr(), edge_ptr.data_ptr(), size.data_ptr(), size.numel(),
        source.data_ptr(), target.data_ptr(), _seed(generator), keep.data_ptr(),
    )  # fmt: skip
    return keep


def perturb(
    ptr: Tensor, edge_ptr: Tensor, edge_index: Tensor, graphs: Tensor | None, ratio: float, add: bool,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor, Tensor] | None:  # fmt: skip
    """Mask of the edges that stay `[E]`, which move `[K]` and where to `[2, K]`, see `graphcl.augment.EdgePerturb`.

    None unless edges are sorted by source, then target, with each one's reverse and none twice.
    """
    source, target = edge_index
    graphs = mask(graphs, ptr.numel() - 1)
    keep = torch.empty(source.numel(), dtype=torch.bool)
    most = int(ratio * source.numel()) + 2 * ptr.numel()
    moved, to = source.new_empty(most), source.new_empty(2, most)
    count = _native.perturb(
        ptr.data_ptr(), edge_ptr.data_ptr(), ptr.numel() - 1, _address(graphs), ratio, add,
        source.data_ptr(), target.data_ptr(), _seed(generator),
        keep.data_ptr(), moved.data_ptr(), to[0].data_ptr(), to[1].data_ptr(),
    )  # fmt: skip
    return None if count < 0 else (keep, moved[:count], to[:, :count])


def mask(given: Tensor | None, size: int) -> Tensor | None:
    """A mask of `size` entries as the loops read it, one byte after the other; whoever made it may have sliced it.

    Raises:
        IndexError: it has another number of entries.
    """
    if given is not None and given.shape != (size,):
        raise IndexError(f"a mask must have {size} entries, got {list(given.shape)}")
    return None if given is None else given.to(torch.bool).contiguous()


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _seed(generator: torch.Generator | None) -> int:
    return int(torch.randint(2**63 - 1, (), generator=generator))
