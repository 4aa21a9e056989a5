"""Rewire graphs at random, so that every node keeps its degree."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.graphs.segment import pointers, shuffled


def rewire(edge_index: Tensor, graph: Tensor, generator: torch.Generator | None = None, rounds: int = 20) -> Tensor:
    r"""Return random edges between the same nodes, by double edge swaps; every node keeps its degree.

    A swap replaces two edges a-b and c-d of one graph by a-d and c-b. In each round, every edge is in at most one swap,
    all swaps are made at once, and swaps that would make a self-loop or a double edge are left out. Of graphs with both
    directions of every edge, the result has both too, in the same columns; else in-degrees and out-degrees are kept.
    Self-loops and repeated edges stay.

    Args:
        edge_index: directed edges `[2, E]`, numbered over all graphs.
        graph: graph of each edge `[E]`.
        generator: source of randomness.
        rounds: number of rounds; in each, an edge is proposed once.

    Returns:
        New edges `[2, E]`; column i is of the same graph as before.

    Example:
        >>> ring = torch.stack([torch.arange(8), (torch.arange(8) + 1) % 8])
        >>> rewire(torch.cat([ring, ring.flip(0)], dim=1), torch.zeros(16, dtype=torch.long))[0].bincount().tolist()
        [2, 2, 2, 2, 2, 2, 2, 2]

    Reference: Maslov and Sneppen, "Specificity and Stability in Topology of Protein Networks", Science 2002.
    """
    if not edge_index.numel():
        return edge_index
    n, (source, target) = int(edge_index.max()) + 1, edge_index
    code, mirror = source * n + target, target * n + source
    order = code.argsort()
    back = order[torch.searchsorted(code[order], mirror).clamp(max=len(order) - 1)]
    directed = torch.zeros(int(graph.max()) + 1, dtype=torch.bool)
    directed[graph[code[back] != mirror]] = True
    both = not directed.any()
    if not both and not directed[graph].all():  # graphs of both kinds
        out = edge_index.clone()
        for part in (directed[graph], ~directed[graph]):
            out[:, part] = rewire(edge_index[:, part], graph[part], generator, rounds)
        return out
    single = _counts(code) == 1
    moved = (single & (source != target) & ((source < target) | (not both))).nonzero().flatten()
    fixed = code[~single | (source == target)]
    ends = edge_index[:, moved]
    for _ in range(rounds):
        ends = _swapped(ends, graph[moved], n, both, fixed, generator)
    out = edge_index.clone()
    out[:, moved] = ends
    if both:
        out[:, back[moved]] = ends.flip(0)
    return out


def _swapped(
    ends: Tensor, graph: Tensor, n: int, both: bool, fixed: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Return the edges `ends [2, E]` after one round of swaps; with `both`, edges have no direction."""
    num_graphs = int(graph.max()) + 1 if len(graph) else 0
    order = shuffled(graph, num_graphs, generator)
    ptr = pointers(torch.bincount(graph, minlength=num_graphs))
    place = torch.arange(len(order)) - ptr[graph[order]]
    first = (place[:-1] % 2 == 0) & (graph[order][:-1] == graph[order][1:])
    one, two = order[:-1][first], order[1:][first]
    (a, b), (c, d) = ends[:, one], ends[:, two]
    if both:
        coin = torch.rand(len(one), generator=generator) < 0.5
        c, d = torch.where(coin, d, c), torch.where(coin, c, d)

    def code(u: Tensor, v: Tensor) -> Tensor:
        return torch.minimum(u, v) * n + torch.maximum(u, v) if both else u * n + v

    new = torch.stack([code(a, d), code(c, b)])
    known = torch.cat([code(*ends), fixed])
    legal = (a != d) & (c != b) & ~torch.isin(new, known).any(0) & (_counts(new.flatten()) == 1).view(2, -1).all(0)
    out = ends.clone()
    out[:, one[legal]] = torch.stack([a, d])[:, legal]
    out[:, two[legal]] = torch.stack([c, b])[:, legal]
    return out


def _counts(values: Tensor) -> Tensor:
    """Return how often each of the `values [E]` occurs."""
    _, number, counts = values.unique(return_inverse=True, return_counts=True)
    return counts[number]
