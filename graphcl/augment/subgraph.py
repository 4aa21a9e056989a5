"""Subgraph sampling (You et al. 2020)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import Ratio
from graphcl.augment import triton_growth
from graphcl.augment.decision import Decision
from graphcl.augment.transform import Augmentation
from graphcl.graphs import native
from graphcl.graphs.batching import Layout
from graphcl.graphs.segment import group, nonzero, pick, pointers, ratio_count, segment_ids, shuffled, to_device
from graphcl.registry import augmentations


@augmentations.register("subgraph")
class Subgraph(Augmentation):
    r"""Keep a connected random region of n - floor(ratio n) nodes in each graph of n nodes.

    The region starts at a uniformly drawn node. Each step adds the node at the other end of a uniformly drawn boundary
    edge; edge directions are ignored. When a connected component is exhausted, growth continues from a uniformly drawn
    node of another component.

    This growth is first-passage percolation: if each edge has an independent Exp(1) travel time, nodes join in the
    order in which a signal from the start reaches them. All graphs can therefore grow at once, by a shortest-path
    search.

    Args:
        ratio: fraction of the nodes to remove, in [0, 1). At least one node stays.
        growth: `boundary` as above, or `one_hop`, which adds only neighbours of the start node and may keep fewer
            nodes. The released GraphCL code does the latter, as it discards the result of a set union.

    Example:
        >>> import networkx as nx
        >>> from torch_geometric.utils import from_networkx, to_networkx
        >>> region = Subgraph(ratio=0.5)(from_networkx(nx.cycle_graph(10)))
        >>> nx.is_connected(to_networkx(region, to_undirected=True)), region.num_nodes
        (True, 5)

    References:
        You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020, Section 3.1 (arXiv 2010.13902).
        Richardson, "Random growth in a tessellation", 1973.
    """

    def __init__(self, ratio: Ratio = 0.2, growth: Literal["boundary", "one_hop"] = "boundary") -> None:
        self.ratio, self.growth = ratio, growth

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Return a decision with the drawn region of nodes to keep."""
        layout = Layout.of(batch)
        device, removed = layout.ptr.device, ratio_count(self.ratio, layout.host_nodes)
        shrinks = removed > 0 if graphs is None else (removed > 0) & graphs.cpu()
        chosen = nonzero(shrinks)
        sizes = layout.host_nodes[chosen]
        # Skip graphs that stay whole, so that growth costs nothing there; renumber the nodes of the others 0, 1, ...
        ptr, total = pointers(sizes), int(sizes.sum())
        shift = layout.host_starts[chosen] - ptr[:-1]
        shift, kept, sizes = to_device(torch.stack([shift, sizes - removed[chosen], sizes]), device)
        graph, place = segment_ids(sizes, total), torch.arange(total, device=device)
        nodes = place + pick(shift, graph)
        number = torch.full((layout.num_nodes,), -1, device=device).index_copy_(0, nodes, place)
        edges = layout.edges_of(shrinks)
        ends = pick(number, pick(layout.edge_index, edges, dim=1).view(-1)).view(2, -1)

        order = shuffled(graph, chosen.numel(), generator)
        counts = None  # of edges, which only the kernel reads
        if device.type == "cuda" and layout.host_edge_ptr is not None:
            counts = layout.host_edge_ptr.diff()[chosen]
        keep = _grow(ptr, kept, graph, ends, counts, _travel(edges, generator), order, self.growth == "one_hop")
        keep_node = torch.ones(layout.num_nodes, dtype=torch.bool, device=device)
        return Decision(keep_node=keep_node.index_copy_(0, nodes, keep))


def _travel(edges: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return Exp(1) travel times `[E]`; inverse transform sampling is three times as fast as torch's `exponential_`."""
    times = torch.rand(edges.numel(), generator=generator, dtype=torch.float64, device=edges.device)
    return times.neg_().log1p_().neg_()


def _grow(
    ptr: Tensor,
    size: Tensor,
    graph: Tensor,
    ends: Tensor,
    counts: Tensor | None,
    travel: Tensor,
    order: Tensor,
    one_hop: bool,
) -> Tensor:
    """Return a mask `[N]` of the region that random growth reaches, at most size[g] nodes in graph g.

    Growth starts from each graph's first node in `order [N]`, which is sorted by graph; with `one_hop`, only neighbours
    of that node are kept. `graph [N]` is the graph of each node, and `ptr` holds the graphs' boundaries `[B + 1]` on
    the CPU. `ends [2, E]` and `travel` time `[E]` are those of the edges. Of these, graph g has counts[g], on the CPU;
    `counts` is None if the edges are not ordered by graph, or not on CUDA.
    """
    # Node order[i] starts a signal at time i * gap, where gap exceeds the length of any path. So the signal of a
    # component's first node reaches the whole component first, and components are reached one after the other.
    gap = travel.max() * order.numel() + 1 if travel.numel() else travel.new_ones(())
    source, target = ends
    if not one_hop and not order.is_cuda:
        row, target, travel = _adjacency(source, target, travel, order.numel())
        if native.takes(ptr, size, row, target, order):
            return native.grow(ptr, size, row, target, travel, order, float(gap))
        source = segment_ids(row.diff())
    rank = torch.arange(order.numel(), device=order.device) - pick(to_device(ptr, order.device), graph)
    start = torch.empty_like(rank, dtype=torch.double).index_copy_(0, order, rank * gap)
    if one_hop:
        start = start.masked_fill_(start > 0, torch.inf)
        time = start.scatter_reduce(0, target, pick(start, source) + travel, "amin")
    elif counts is not None and triton_growth.takes(start, counts):
        places = to_device(torch.stack([pointers(counts)[:-1], counts]), order.device)
        time = triton_growth.first_passage(start, ends, travel, places, int(counts.max()))
    elif order.is_cuda:
        most = int(ptr.diff().max()) - 1 if ptr.numel() > 1 else 0
        time = first_passage(start, ends.view(-1), ends.flip(0).view(-1), travel.repeat(2), most)
    else:
        time = first_passage(start, source, target, travel)
    # Non-negative floats sort like the integers with the same bits, which torch sorts faster.
    by_time = time.view(torch.long).sort(stable=True).indices
    first, _ = group(pick(graph, by_time), size.numel(), by_time)
    keep = torch.empty_like(order, dtype=torch.bool).index_copy_(0, first, rank < pick(size, graph))
    return keep & time.isfinite()


def _adjacency(source: Tensor, target: Tensor, travel: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the symmetric CSR adjacency of the edges: row boundaries `[N + 1]`, targets and travel times."""
    order, row = group(source, num_nodes)
    reverse, column = group(target, num_nodes, source)
    # If every edge has its reverse, each direction has its own travel time. Otherwise add reverse edges of equal time.
    # The distribution is the same, as growth crosses an edge only from the end that it reaches first.
    if not (torch.equal(row, column) and torch.equal(pick(target, order), reverse)):
        source, target, travel = torch.cat([source, target]), torch.cat([target, source]), travel.repeat(2)
        order, row = group(source, num_nodes)
    return row, pick(target, order), pick(travel, order)


def first_passage(start: Tensor, source: Tensor, target: Tensor, travel: Tensor, most: int | None = None) -> Tensor:
    """Return the earliest time `[N]` at which a signal arrives at each node, if every node u sends one at start[u].

    Each round of the Bellman-Ford algorithm relaxes all edges whose source has improved. The number of rounds is the
    largest number of edges on a shortest path. `source`, `target` and `travel` time of the edges are `[E]`. With
    `most`, a bound on the rounds, every round relaxes all edges, and the host waits only after rounds 16, 20, 24, 28,
    32, 40, 48, 56, 64, 80, ...
    """
    waits = {each << k for each in (16, 20, 24, 28) for k in range(32)}
    time, active = start.clone(), torch.arange(source.numel() if most is None else 0, device=source.device)
    for number in range(1, (most or 0) + 1):
        before = time.clone() if number in waits else None
        time.scatter_reduce_(0, target, pick(time, source).add_(travel), "amin")
        if before is not None and torch.equal(before, time):
            break
    while active.numel() > 0:
        arrival = time[source[active]] + travel[active]
        earlier = time.scatter_reduce(0, target[active], arrival, "amin")
        active = (earlier < time)[source].nonzero().flatten()
        time = earlier
    return time
