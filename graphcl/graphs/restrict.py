"""Part of the nodes and edges of a batch, as tensors: who stays, under which number, and where each graph then lies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcl.graphs import native
from graphcl.graphs.segment import count, pick, pointers, positions


@dataclass(frozen=True)
class Part:
    """What is left of a batch of N nodes and E edges.

    Args:
        nodes: the nodes that stay, `[N']`; None for all.
        ptr: first node of each graph, and N' at the end, `[B + 1]`.
        batch: graph of each node, `[N']`.
        edges: the edges that stay, `[E']`; None for all, or where they were not asked for.
        edge_ptr: first edge of each graph, and E' at the end, `[B + 1]`; None where no edge goes.
        edge_index: `[2, E']`, in the new numbers.
    """

    nodes: Tensor | None
    ptr: Tensor
    batch: Tensor
    edges: Tensor | None
    edge_ptr: Tensor | None
    edge_index: Tensor


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
    """The part of a batch that two masks leave; edges that lose an end go in any case.

    Args:
        ptr: first node of each graph, and N at the end, `[B + 1]`.
        batch: graph of each node, `[N]`.
        edge_index: `[2, E]`.
        edge_ptr: first edge of each graph, and E at the end, `[B + 1]`, where edges lie graph by graph; else None.
        keep_node: mask `[N]`, or None for all.
        keep_edge: mask `[E]`, or None for all.
        with_edges: whether `Part.edges` is wanted.
        compiled: whether `graphcl.graphs.native` takes these tensors.
    """
    if keep_node is None and keep_edge is None:
        return Part(None, ptr, batch, None, None, edge_index)
    if compiled and edge_ptr is not None:
        keep_node, keep_edge = native.mask(keep_node, batch.numel()), native.mask(keep_edge, edge_index.size(1))
        name = nodes = None
        old_ptr = ptr
        if keep_node is not None:
            name, nodes, batch, ptr = native.keep_nodes(keep_node, old_ptr)
        left = native.keep_edges(old_ptr, edge_index, edge_ptr, keep_edge, keep_node, name, with_edges)
        edge_index, edge_ptr, edges = left
        return Part(nodes, ptr, batch, edges, edge_ptr, edge_index)
    return _restrict(ptr, batch, edge_index, edge_ptr, keep_node, keep_edge)


def _restrict(
    ptr: Tensor,
    batch: Tensor,
    edge_index: Tensor,
    edge_ptr: Tensor | None,
    keep_node: Tensor | None,
    keep_edge: Tensor | None,
) -> Part:
    """`restrict` by torch's operations, on any device."""
    nodes, graphs, num_graphs = None, batch, ptr.numel() - 1
    if keep_node is not None:
        source, target = edge_index
        inside = pick(keep_node, source) & pick(keep_node, target)
        keep_edge = inside if keep_edge is None else keep_edge & inside
        nodes = positions(keep_node)
        ptr, batch = pointers(count(keep_node, ptr)), pick(batch, nodes)
    assert keep_edge is not None
    edges = positions(keep_edge)
    left = pick(edge_index, edges, dim=1)
    if edge_ptr is not None:
        edge_ptr = pointers(count(keep_edge, edge_ptr))
    else:
        edge_ptr = pointers(torch.bincount(pick(graphs, left[0]), minlength=num_graphs))
    if keep_node is not None:
        left = pick(keep_node.cumsum(0) - 1, left.view(-1)).view(2, -1)
    return Part(nodes, ptr, batch, edges, edge_ptr, left)
