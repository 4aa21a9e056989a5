"""Compute late interaction, a similarity of two graphs by their nodes' representations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch_geometric.utils import scatter

from graphcl.errors import InputError
from graphcl.graphs.segment import ranges

_NODES = 4096
"""Nodes of each side of a tile of cosines, at least one graph."""


def late_interaction(nodes1: Tensor, ptr1: Tensor, nodes2: Tensor, ptr2: Tensor) -> Tensor:
    r"""Return the late interaction of every graph of one batch with every graph of another.

    $$s(G, G') = \frac{1}{2 |G|} \sum_{u \in G} \max_{v \in G'} \cos(z_u, z_v) +
      \frac{1}{2 |G'|} \sum_{v \in G'} \max_{u \in G} \cos(z_u, z_v)$$

    Every node looks for its best match in the other graph. The result is symmetric, in [-1, 1], and 1 for a graph with
    itself. It is the learned sibling of the WL optimal assignment kernel. A graph needs at least one node. The gradient
    flows through the best matches, shared equally by ties.

    Time: O(N1 N2 H). Memory: O(N1 N2) if gradients are recorded, else some 200 MB for any number of nodes.

    Args:
        nodes1: representations of the N1 nodes of B1 graphs `[N1, H]`, such as those of `GraphEncoder.with_nodes`.
        ptr1: boundaries of the graphs in `nodes1`, `[B1 + 1]`, from 0 to N1.
        nodes2: representations of the N2 nodes of B2 other graphs `[N2, H]`.
        ptr2: boundaries of the graphs in `nodes2`, `[B2 + 1]`, from 0 to N2.

    Returns:
        Similarities `[B1, B2]`, in the dtype of `nodes1`.

    Raises:
        InputError: the widths differ, a graph has no node, or the boundaries do not fit the nodes.

    Example:
        >>> path, star = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> late_interaction(path, torch.tensor([0, 2]), torch.cat([path, star]), torch.tensor([0, 2, 4]))
        tensor([[1.0000, 0.7500]])

    Reference: Khattab and Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction
    over BERT", SIGIR 2020, Eq. 3.

    Differs: ColBERT sums over the query's tokens; here it is the mean over nodes, in both directions.
    """
    if nodes1.dim() != 2 or nodes2.dim() != 2 or nodes1.size(1) != nodes2.size(1):
        raise InputError(f"nodes must be [N, H] with one H, got {list(nodes1.shape)} and {list(nodes2.shape)}.")
    for name, ptr, nodes in (("ptr1", ptr1, nodes1), ("ptr2", ptr2, nodes2)):
        if ptr.numel() < 2 or ptr[0] != 0 or ptr[-1] != len(nodes) or (ptr.diff() < 1).any():
            raise InputError(f"`{name}` must ascend from 0 to {len(nodes)} nodes, with a node in every graph.")
    one, two = normalize(nodes1, dim=1), normalize(nodes2, dim=1)
    # whole graphs of each side, so that a tile holds both directions
    return torch.cat([
        torch.cat([_tile(one, first, two, second) for second in _blocks(ptr2, _NODES)], dim=1)
        for first in _blocks(ptr1, _NODES)
    ])  # fmt: skip


@torch.no_grad()
def to_candidates(nodes: Tensor, ptr: Tensor) -> Callable[[int, Tensor], Tensor]:
    """Return a function from a graph and some candidates to their late interactions.

    It is the second stage of a search, see `graphcl.evaluate.ranking.reranked`: the pooled embedding finds candidates,
    the nodes order them.

    Args:
        nodes: representations of all nodes `[N, H]`.
        ptr: boundaries of the graphs in `nodes`, `[n + 1]`, on the CPU.

    Returns:
        Function from the index of a graph and the indices of c others `[c]` to their similarities `[c]`.
    """
    unit, sizes = normalize(nodes, dim=1), ptr.diff()

    @torch.no_grad()
    def score(graph: int, others: Tensor) -> Tensor:
        rows = ranges(ptr[others], sizes[others])
        own, bounds = unit[ptr[graph] : ptr[graph + 1]], torch.stack([ptr[0], sizes[graph]])
        return late_interaction(own, bounds, unit[rows], torch.cat([ptr[:1], sizes[others].cumsum(0)]))[0]

    return score


def _blocks(ptr: Tensor, most: int) -> list[Tensor]:
    """Return the boundaries of consecutive blocks of graphs with at most `most` nodes, or one graph, each."""
    cuts, found, start = ptr.tolist(), [], 0
    while start < len(cuts) - 1:
        end = start + 1
        while end < len(cuts) - 1 and cuts[end + 1] - cuts[start] <= most:
            end += 1
        found.append(ptr[start : end + 1])
        start = end
    return found


def _tile(one: Tensor, ptr1: Tensor, two: Tensor, ptr2: Tensor) -> Tensor:
    """Return the late interaction of the graphs within the boundaries `ptr1` and `ptr2` of unit rows."""
    cosine = one[ptr1[0] : ptr1[-1]] @ two[ptr2[0] : ptr2[-1]].T
    sizes = [ptr.diff().to(cosine.device) for ptr in (ptr1, ptr2)]
    graph1, graph2 = (torch.arange(len(size), device=size.device).repeat_interleave(size) for size in sizes)
    there = scatter(cosine, graph2, dim=1, dim_size=len(sizes[1]), reduce="max")
    back = scatter(cosine, graph1, dim=0, dim_size=len(sizes[0]), reduce="max")
    mean_there = scatter(there, graph1, dim=0, dim_size=len(sizes[0]), reduce="mean")
    return (mean_there + scatter(back, graph2, dim=1, dim_size=len(sizes[1]), reduce="mean")) / 2
