"""Edge perturbation (You et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.data.datapipes import functional_transform

from graphcl.arguments import Ratio
from graphcl.augment.decision import Decision
from graphcl.augment.transform import Augmentation
from graphcl.graphs import native
from graphcl.graphs.batching import Layout
from graphcl.graphs.segment import (
    pick,
    pointers,
    positions,
    random_distinct,
    random_subset,
    share,
    shuffled,
    stable_sort,
)
from graphcl.registry import augmentations


@functional_transform("graphcl_edge_perturb")
@augmentations.register("edge_perturb")
class EdgePerturb(Augmentation):
    r"""Remove floor(ratio e) of the e edges of each graph and, with `add`, put as many where there was none.

    An edge is a pair of different nodes with everything between them: both directions, parallel edges. So an undirected
    graph stays undirected. Self-loops are not counted and stay.

    With `add`, each removed edge moves to one of as many absent pairs, uniformly drawn: it keeps its directions and its
    edge attributes. Where a graph has too few absent pairs, the edges left over are only removed.

    Differs: the released GraphCL code only removes, each direction by itself, which makes the graph directed.

    Args:
        ratio: fraction of the edges to remove, in [0, 1).
        add: whether as many absent pairs are connected.

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> graph = FakeDataset(num_graphs=1, avg_num_nodes=20)[0]
        >>> EdgePerturb(ratio=0.2)(graph).is_undirected() == graph.is_undirected()
        True

    References:
        You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020, Section 3.1 (arXiv 2010.13902).
    """

    def __init__(self, ratio: Ratio = 0.2, add: bool = True) -> None:
        self.ratio, self.add = ratio, add

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Draw the edges to remove and the absent pairs to connect."""
        layout = Layout.of(batch)
        if layout.compiled:
            assert layout.edge_ptr is not None
            drawn = native.perturb(
                layout.ptr, layout.edge_ptr, layout.edge_index, graphs, self.ratio, self.add, generator
            )
            if drawn is not None:
                return Decision(None, *drawn) if self.add else Decision(keep_edge=drawn[0])
        entry, pair, low, high, graph = _pairs(layout, graphs)
        edges = torch.bincount(graph, minlength=layout.num_graphs)
        ptr = pointers(edges)
        removed = random_subset(ptr, share(self.ratio, edges), generator)
        keep_edge = torch.ones(layout.num_edges, dtype=torch.bool, device=entry.device)
        if not self.add:
            return Decision(keep_edge=keep_edge.index_fill_(0, pick(entry, positions(pick(removed, pair))), False))

        from_pair = positions(removed)
        from_pair = pick(from_pair, shuffled(pick(graph, from_pair), layout.num_graphs, generator))
        from_graph = pick(graph, from_pair)
        wanted = torch.bincount(from_graph, minlength=layout.num_graphs)
        new_low, new_high, new_graph = _absent(layout, low, high, graph, ptr, wanted, generator)
        # The i-th removed edge of a graph, in random order, moves to the graph's i-th new pair.
        order = stable_sort(new_graph, layout.num_graphs)[1]
        found = torch.bincount(new_graph, minlength=layout.num_graphs)
        rank = torch.arange(from_pair.numel(), device=entry.device) - pick(pointers(wanted), from_graph)
        moves = positions(rank < pick(found, from_graph))
        target = torch.full_like(low, -1)
        place = pick(pointers(found), pick(from_graph, moves)) + pick(rank, moves)
        target.index_copy_(0, pick(from_pair, moves), pick(order, place))

        to = pick(target, pair)
        moving = to >= 0
        keep_edge.index_fill_(0, pick(entry, positions(pick(removed, pair) & ~moving)), False)
        moving = positions(moving)
        moved, to = pick(entry, moving), pick(to, moving)
        source, target = pick(layout.edge_index, moved, dim=1)
        ends = torch.stack([pick(new_low, to), pick(new_high, to)])
        return Decision(keep_edge=keep_edge, moved=moved, moved_to=torch.where(source < target, ends, ends.flip(0)))


def _pairs(layout: Layout, graphs: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The connected pairs of nodes, sorted by graph, then by their lower and their higher node.

    Returns:
        `entry [K]`, the edges that are no self-loop; `pair [K]`, the pair each belongs to; and for each pair its lower
        node, its higher node and its graph, `[P]` each.
    """
    source, target = layout.edge_index
    wanted = source != target
    if graphs is not None:
        wanted &= pick(graphs, layout.edge_graph)
    entry = positions(wanted)
    source, target = pick(layout.edge_index, entry, dim=1)
    low, high = torch.minimum(source, target), torch.maximum(source, target)
    name, order = stable_sort(low * layout.num_nodes + high, layout.num_nodes**2)
    new = torch.ones_like(name, dtype=torch.bool)
    new[1:] = name[1:] != name[:-1]
    pair = torch.empty_like(order).index_copy_(0, order, new.cumsum(0) - 1)
    one = pick(order, positions(new))  # an entry of each pair
    low, high = pick(low, one), pick(high, one)
    return entry, pair, low, high, pick(layout.batch, low)


def _absent(
    layout: Layout,
    low: Tensor,
    high: Tensor,
    graph: Tensor,
    ptr: Tensor,
    wanted: Tensor,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct pairs of nodes that are not connected: `wanted[g]` in graph g, or all there are if those are fewer.

    The pairs of a graph are numbered row by row; the r-th absent one has the number r plus how many connected ones come
    before it. The connected pair at position i of its graph has number - i absent pairs before it, so those are the
    connected pairs with number - i <= r: one binary search.
    """
    n = layout.nodes
    all_pairs = n * (n - 1) // 2
    absent = all_pairs - ptr.diff()
    rank, new_graph = random_distinct(absent, torch.minimum(wanted, absent), generator)

    first = pick(layout.ptr, graph)
    u, v = low - first, high - first
    number = (u * (2 * pick(n, graph) - u - 1) >> 1) + (v - u - 1)
    before = number - (torch.arange(number.numel(), device=number.device) - pick(ptr, graph))
    base = pointers(absent + 1)  # one more, as `before` may equal the number of absent pairs
    position = torch.searchsorted(pick(base, graph) + before, pick(base, new_graph) + rank, right=True)
    position = position - pick(ptr, new_graph)
    number = rank + position

    # Row u holds the numbers from u (2n - u - 1) / 2 on; solved in float64, then mended by at most one.
    size = pick(n, new_graph).double()
    u = ((2 * size - 1 - ((2 * size - 1) ** 2 - 8 * number.double()).clamp(min=0).sqrt()) / 2).floor().long()
    size = pick(n, new_graph)
    u = u - (u * (2 * size - u - 1) // 2 > number).long()
    u = u + ((u + 1) * (2 * size - u - 2) // 2 <= number).long()
    v = number - u * (2 * size - u - 1) // 2 + u + 1
    return pick(layout.ptr, new_graph) + u, pick(layout.ptr, new_graph) + v, new_graph
