"""Subgraph sampling (You et al. 2020)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.data.datapipes import functional_transform

from graphcl.arguments import Ratio
from graphcl.augment.decision import Decision
from graphcl.augment.transform import Augmentation
from graphcl.graphs import native
from graphcl.graphs.batching import Layout
from graphcl.graphs.segment import pick, pointers, positions, ranges, share, shuffled, stable_sort
from graphcl.registry import augmentations


@functional_transform("graphcl_subgraph")
@augmentations.register("subgraph")
class Subgraph(Augmentation):
    r"""Keep a connected random region of n - floor(ratio n) nodes of each graph and remove the rest.

    The region starts at a uniformly drawn node and grows along a uniformly drawn boundary edge at a time, whatever the
    edge's direction. Where the start's component is exhausted, growth goes on from a uniformly drawn node outside.

    Growing by random boundary edges is first-passage percolation: give each edge an independent Exp(1) travel time,
    and the nodes join in the order in which a signal from the start arrives. So all graphs grow at once, in as many
    steps as the deepest shortest path has edges.

    Args:
        ratio: fraction of the nodes to remove, in [0, 1). At least one node stays.
        growth: `boundary` as above; `one_hop` never leaves the start's neighbours, so it may keep fewer nodes: what the
            released GraphCL code does, by a discarded set union.

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
        """Draw the region to keep."""
        layout = Layout.of(batch)
        removed = share(self.ratio, layout.nodes)
        if self.growth == "boundary" and layout.compiled:
            assert layout.edge_ptr is not None
            size = layout.nodes - (removed if graphs is None else removed * graphs)
            return Decision(keep_node=native.grow(layout.ptr, layout.edge_ptr, size, layout.edge_index, generator))
        shrinks = removed > 0 if graphs is None else (removed > 0) & graphs
        busy = positions(shrinks)
        sizes = layout.nodes[busy]
        ptr = pointers(sizes)
        # From here on, only the graphs that shrink are there, their nodes numbered 0, 1, ...
        nodes = ranges(layout.ptr[busy], sizes)
        graph = torch.arange(busy.numel(), device=nodes.device).repeat_interleave(sizes)
        rank = torch.arange(nodes.numel(), device=nodes.device) - pick(ptr, graph)
        name = torch.empty(layout.num_nodes, dtype=torch.long, device=nodes.device)
        name.index_copy_(0, nodes, torch.arange(nodes.numel(), device=nodes.device))
        edges = positions(pick(shrinks, layout.edge_graph))
        source, target = (pick(name, ends) for ends in pick(layout.edge_index, edges, dim=1))

        time = _arrival(source, target, graph, rank, busy.numel(), self.growth == "one_hop", generator)
        by_time = time.argsort()
        order = pick(by_time, stable_sort(pick(graph, by_time), busy.numel())[1])
        arrived = pick(order, positions(rank < pick(sizes - removed[busy], graph)))
        if self.growth == "one_hop":
            arrived = pick(arrived, positions(pick(time, arrived).isfinite()))
        keep_node = torch.ones(layout.num_nodes, dtype=torch.bool, device=nodes.device)
        keep_node.index_fill_(0, nodes, False).index_fill_(0, pick(nodes, arrived), True)
        return Decision(keep_node=keep_node)


def _arrival(
    source: Tensor,
    target: Tensor,
    graph: Tensor,
    rank: Tensor,
    num_graphs: int,
    one_hop: bool,
    generator: torch.Generator | None,
) -> Tensor:
    """When growth reaches each node, `[N]`, inf for never; `graph` and `rank` say which node of which graph it is."""
    device = graph.device
    # An Exp(1) time is -log of a uniform number, here from (0, 1]; torch's `exponential_` takes three times as long.
    travel = torch.rand(source.numel(), generator=generator, dtype=torch.float64, device=device).neg_().log1p_().neg_()
    order = shuffled(graph, num_graphs, generator)
    start = torch.full(graph.shape, torch.inf, dtype=torch.float64, device=device)
    if one_hop:
        start[pick(order, positions(rank == 0))] = 0.0
        return start.scatter_reduce(0, target, pick(start, source) + travel, "amin")
    # Every node is a start, delayed by its place in that order times more than any path takes. So within a component
    # the foremost node reaches all others first, and components follow one another by their foremost nodes.
    longest = travel.max() * graph.numel() if source.numel() else travel.new_zeros(())
    start.index_copy_(0, order, rank * (longest + 1))
    if device.type == "cuda":
        return first_passage(start, source, target, travel)
    # Where each edge has its reverse, both have times of their own, and growth crosses from the end that it reaches
    # first: looking at the times out of that end alone leaves the law as it is, and halves SciPy's work.
    return first_passage_cpu(start, source, target, travel, both_ways=not _undirected(source, target, graph.numel()))


def _undirected(source: Tensor, target: Tensor, num_nodes: int) -> bool:
    """Whether each edge has its reverse; seen only if edges are sorted by source, then target."""
    from scipy.sparse import csr_matrix

    rows = pointers(torch.bincount(source, minlength=num_nodes)).numpy()
    if not bool((source[1:] >= source[:-1]).all()):
        return False
    ones = np.empty(source.numel(), dtype=np.int8)
    reverse = csr_matrix((ones, target.numpy(), rows), shape=(num_nodes, num_nodes)).tocsc()
    return bool(np.array_equal(rows, reverse.indptr) and np.array_equal(target.numpy(), reverse.indices))


def first_passage(start: Tensor, source: Tensor, target: Tensor, travel: Tensor) -> Tensor:
    """Earliest arrival at each node, `[N]`: min over nodes u of start[u] + the shortest travel time from u.

    All edges with news relax at once (Bellman and Ford), until there is no news: as many rounds as the deepest shortest
    path has edges.

    Args:
        start: when each node starts by itself, `[N]`, in float64; inf for never.
        source: one end of each edge, `[E]`; edges are travelled both ways.
        target: the other end, `[E]`.
        travel: how long it takes, `[E]`, > 0.
    """
    source, target, travel = torch.cat([source, target]), torch.cat([target, source]), travel.repeat(2)
    time = start
    active = torch.arange(source.numel(), device=source.device)
    while active.numel() > 0:
        arrival = time[source[active]] + travel[active]
        earlier = time.scatter_reduce(0, target[active], arrival, "amin")
        active = (earlier < time)[source].nonzero().flatten()  # only news travels on
        time = earlier
    return time


def first_passage_cpu(start: Tensor, source: Tensor, target: Tensor, travel: Tensor, both_ways: bool = True) -> Tensor:
    """`first_passage` by SciPy's compiled Dijkstra, provided that the starts lie further apart than any path is long.

    Then the earliest start of a component decides, and only that one has to be followed. `both_ways`: whether an edge
    is travelled against its direction too.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components, dijkstra

    n = start.numel()
    if not bool((source[1:] >= source[:-1]).all()):
        source, order = stable_sort(source, n)
        target, travel = pick(target, order), pick(travel, order)
    # Written out row by row, as SciPy would add up the times of parallel edges.
    rows = pointers(torch.bincount(source, minlength=n)).int()
    graph = csr_matrix((travel.numpy(), target.int().numpy(), rows.numpy()), shape=(n, n))
    component = torch.from_numpy(connected_components(graph, directed=False)[1]).long()
    delay = pick(start.new_full((n,), torch.inf).scatter_reduce(0, component, start, "amin"), component)
    first = positions((start == delay) & start.isfinite())
    if first.numel() == 0:
        return start
    return delay + torch.from_numpy(dijkstra(graph, directed=not both_ways, indices=first.numpy(), min_only=True))
