"""Restrict the tensors of a batch to some of its nodes and edges."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcl.graphs import native
from graphcl.graphs.segment import nonzero, pick, pointers


@dataclass(frozen=True)
class Part:
    """The kept N' nodes and E' edges of a batch of N nodes and E edges.

    Args:
        nodes: indices of the kept nodes in the batch, `[N']`; None if all are kept.
        ptr: boundaries of the graphs in the kept nodes, `[B + 1]`, from 0 to N'.
        batch: graph of each kept node, `[N']`.
        edges: indices of the kept edges in the batch, `[E']`; None if all are kept or the indices were not requested.
        edge_ptr: boundaries of the graphs in the kept edges, `[B + 1]`, from 0 to E'; None if all edges are kept.
        edge_index: kept edges `[2, E']`, with nodes numbered 0 .. N' - 1.
        cuts: `ptr` and `edge_ptr` on the CPU; None if nothing is removed.
    """

    nodes: Tensor | None
    ptr: Tensor
    batch: Tensor
    edges: Tensor | None
    edge_ptr: Tensor | None
    edge_index: Tensor
    cuts: tuple[Tensor, Tensor] | None = None


def restrict(
    ptr: Tensor,
    batch: Tensor,
    edge_index: Tensor,
    edge_ptr: Tensor | None,
    keep_node: Tensor | None,
    keep_edge: Tensor | None,
    with_edges: bool = True,
    compiled: bool = False,
) -> Part:
    """Return the part of a batch that both masks keep. Edges of removed nodes are always removed.

    The first four tensors are those of a `Layout`. The masks `keep_node [N]` and `keep_edge [E]` are None to keep all.
    `with_edges` tells whether `Part.edges` is needed; `compiled` allows `graphcl.graphs.native` if `edge_ptr` is given.
    """
    if keep_node is None and keep_edge is None:
        return Part(None, ptr, batch, None, None, edge_index)
    nodes = name = None
    if compiled and edge_ptr is not None:
        keep_node, keep_edge = native.mask(keep_node, batch.numel()), native.mask(keep_edge, edge_index.size(1))
        new_ptr = ptr
        if keep_node is not None:
            name, nodes, batch, new_ptr = native.keep_nodes(keep_node, ptr)
        left, edge_ptr, edges = native.keep_edges(ptr, edge_index, edge_ptr, keep_edge, keep_node, name, with_edges)
        return Part(nodes, new_ptr, batch, edges, edge_ptr, left, (new_ptr, edge_ptr))
    graphs = batch
    if keep_node is not None:
        inside = pick(keep_node, edge_index.reshape(-1)).view(2, -1).all(dim=0)
        keep_edge = inside if keep_edge is None else keep_edge & inside
        first = pointers(keep_node)  # the new index of each kept node
        ptr = pick(first, ptr)
    assert keep_edge is not None
    before = pointers(keep_edge)
    if edge_ptr is None:
        edge_counts = torch.zeros_like(ptr[1:]).scatter_add_(0, pick(graphs, edge_index[0]), keep_edge.long())
        edge_ptr = pointers(edge_counts)
    else:
        edge_ptr = pick(before, edge_ptr)
    # Read both boundaries at once: the only time that the host waits for the device.
    cuts = (ptr, edge_ptr) if ptr.device.type == "cpu" else tuple(torch.stack([ptr, edge_ptr]).cpu())
    edges = nonzero(keep_edge, int(cuts[1][-1]), before)
    left = pick(edge_index, edges, dim=1)
    if keep_node is not None:
        nodes = nonzero(keep_node, int(cuts[0][-1]), first)
        batch = pick(batch, nodes)
        left = pick(first, left.view(-1)).view(2, -1)
    return Part(nodes, ptr, batch, edges, edge_ptr, left, (cuts[0], cuts[1]))
