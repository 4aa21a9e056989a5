"""Subgraph sampling (You et al. 2020): all graphs of a batch grow at once, by a search for shortest paths."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import Ratio
from graphcl.augment.transform import Augmentation, Decision
from graphcl.graphs import native
from graphcl.graphs.batching import Layout
from graphcl.graphs.segment import group, nonzero, pick, pointers, ratio_count, segment_ids, shuffled, to_device
from graphcl.registry import augmentations
from graphcl.system.kernels import jit, tl, triton

MOST_EDGES = 2**15
"""Most edges of a graph that the kernel supports, as one program relaxes them block by block."""
BLOCK = 1024
"""Most edges of a block."""
READS = {count << shift for count in (16, 20, 24, 28) for shift in range(32)}
"""Rounds of `relax` after which the host reads whether a time has improved: 16, 20, 24, 28, 32, 40, 48, 56, 64, ..."""


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
        if self.growth == "boundary" and layout.compiled:
            assert layout.edge_ptr is not None
            removed = removed if graphs is None else removed * graphs
            _, num_nodes, num_edges = native.sample_sizes(removed, layout.ptr, layout.edge_ptr)
            draws = torch.randperm(num_nodes, generator=generator), _travel_times(num_edges, generator, device)
            return Decision(keep_node=native.grow(layout.ptr, removed, layout.edge_ptr, layout.edge_index, *draws))
        shrinks = removed > 0 if graphs is None else (removed > 0) & graphs.cpu()
        # Graphs that stay whole cost nothing: the nodes of the others are renumbered 0, 1, ...
        chosen = nonzero(shrinks)
        sizes = layout.host_nodes[chosen]
        ptr, total = pointers(sizes), int(sizes.sum())
        table = torch.stack([layout.host_starts[chosen] - ptr[:-1], sizes - removed[chosen], sizes, ptr[:-1]])
        shift, kept, lengths, first = to_device(table, device)
        graph, place = segment_ids(lengths, total), torch.arange(total, device=device)
        nodes = place + pick(shift, graph)
        number = torch.full((layout.num_nodes,), -1, device=device).index_copy_(0, nodes, place)
        edges = layout.edges_of(shrinks)
        ends = pick(number, pick(layout.edge_index, edges, dim=1).view(-1)).view(2, -1)

        # `order` lists the nodes by graph, in random order within a graph. Node order[i] starts a signal at time
        # i * gap, where gap exceeds the length of any path. So the signal of a component's first node reaches the whole
        # component first, and components are reached one after the other.
        order = shuffled(graph, chosen.numel(), generator)
        travel = _travel_times(edges.numel(), generator, device)
        gap = travel.max() * total + 1 if travel.numel() else travel.new_ones(())
        rank = place - pick(first, graph)
        start = torch.empty_like(rank, dtype=torch.double).index_copy_(0, order, rank * gap)
        if self.growth == "one_hop":
            start = start.masked_fill_(start > 0, torch.inf)
            time = start.scatter_reduce(0, ends[1], pick(start, ends[0]) + travel, "amin")
        elif order.is_cuda:
            counts = None if layout.host_edge_ptr is None else layout.host_edge_ptr.diff()[chosen]
            time = _arrivals_on_cuda(start, ends, travel, counts, int(sizes.max()) - 1 if chosen.numel() else 0)
        else:
            time = _dijkstra(start, *_adjacency(ends[0], ends[1], travel, total))
        # Non-negative floats sort like the integers with the same bits, which torch sorts faster.
        by_time = time.view(torch.long).sort(stable=True).indices
        by_graph, _ = group(pick(graph, by_time), chosen.numel(), by_time)
        keep = torch.empty_like(order, dtype=torch.bool).index_copy_(0, by_graph, rank < pick(kept, graph))
        keep &= time.isfinite()
        keep_node = torch.ones(layout.num_nodes, dtype=torch.bool, device=device)
        return Decision(keep_node=keep_node.index_copy_(0, nodes, keep))


def _travel_times(size: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
    """Return independent Exp(1) numbers `[size]` in float64, three times as fast as torch's `exponential_`."""
    uniform = torch.rand(size, generator=generator, dtype=torch.float64, device=device)
    return uniform.neg_().log1p_().neg_()


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


# -- the earliest time `[N]` at which a signal arrives at each node, if every node u sends one at start[u] -------------


def _dijkstra(start: Tensor, row: Tensor, target: Tensor, travel: Tensor) -> Tensor:
    """Return the arrival times on the CPU, by SciPy: the signals start as one, at a node that no edge leads to."""
    from scipy.sparse import csr_matrix  # csr_array of SciPy 1.11 keeps 64-bit indices, which its dijkstra refuses
    from scipy.sparse.csgraph import dijkstra

    n = start.numel()
    lengths, ends = torch.cat([travel, start]), torch.cat([target, torch.arange(n)])
    rows = torch.cat([row, row[-1:] + n])
    graph = csr_matrix((lengths.numpy(), ends.numpy(), rows.numpy()), shape=(n + 1, n + 1))
    return torch.from_numpy(dijkstra(graph, indices=n)[:n])


def _arrivals_on_cuda(start: Tensor, ends: Tensor, travel: Tensor, counts: Any, longest: int) -> Tensor:
    """Return the arrival times on CUDA: by the kernel if it supports graphs with counts[g] edges, else in rounds.

    `counts [B]` are on the CPU; None if edges are not ordered by graph. Paths have at most `longest` edges.
    """
    most = int(counts.max()) if counts is not None and counts.numel() else MOST_EDGES + 1
    if most > MOST_EDGES or triton is None or torch.cuda.get_device_capability(start.device) < (7, 0):
        return relax(start, ends, travel, longest)
    places = to_device(torch.stack([pointers(counts)[:-1], counts]), start.device)
    return first_passage(start, ends, travel, places, most)


def relax(start: Tensor, ends: Tensor, travel: Tensor, most: int) -> Tensor:
    """Return the arrival times by at most `most` rounds of the Bellman-Ford algorithm, each of which relaxes all edges.

    Signals cross the edges, with `ends [2, E]` and `travel` time `[E]`, in both directions.
    """
    time, source, target, travel = start.clone(), ends.view(-1), ends.flip(0).view(-1), travel.repeat(2)
    for number in range(1, most + 1):
        before = time.clone() if number in READS else None
        time.scatter_reduce_(0, target, pick(time, source).add_(travel), "amin")
        if before is not None and torch.equal(before, time):
            break
    return time


def first_passage(start: Tensor, ends: Tensor, travel: Tensor, places: Tensor, most: int) -> Tensor:
    """Return the arrival times by one Triton kernel with a program for each graph; see `relax`.

    `places [2, B]` holds the first edge of each graph and their number, at most `most`. Times are not negative, in
    float64.
    """
    time = start.clone()
    block = min(max(triton.next_power_of_2(most), 32), BLOCK)
    # Non-negative floats sort like the integers with the same bits, of which the hardware has an atomic minimum.
    bits = time.view(torch.long)
    sizes = {"EDGES": block, "num_warps": max(block // 128, 1)}
    with torch.cuda.device_of(time):  # Triton launches on the current device
        _relax[(places.size(1),)](bits, ends, travel, places, travel.numel(), **sizes)
    return time


@jit("edges")
def _relax(time, ends, travel, places, edges, EDGES: tl.constexpr):  # type: ignore[no-untyped-def]
    """Relax the edges of a graph until no time improves: the Bellman-Ford algorithm.

    The results do not depend on the order in which threads run: each is the least of the same rounded sums.
    """
    graph = tl.program_id(0)
    begin = tl.load(places + graph)
    end = begin + tl.load(places + tl.num_programs(0) + graph)
    improved = tl.full((), 1, tl.int32)
    while improved > 0:
        improved = tl.full((), 0, tl.int32)
        for first in range(begin, end, EDGES):
            edge = first + tl.arange(0, EDGES)
            inside = edge < end
            u = tl.load(ends + edge, inside, 0)
            v = tl.load(ends + edges + edge, inside, 0)
            length = tl.load(travel + edge, inside, 0.0)
            # Volatile, as another thread may have changed a time since it was last read.
            at_u = tl.load(time + u, inside, 0, volatile=True)
            at_v = tl.load(time + v, inside, 0, volatile=True)
            through_u = (at_u.to(tl.float64, bitcast=True) + length).to(tl.int64, bitcast=True)
            through_v = (at_v.to(tl.float64, bitcast=True) + length).to(tl.int64, bitcast=True)
            at_v_improves, at_u_improves = inside & (through_u < at_v), inside & (through_v < at_u)
            tl.atomic_min(time + v, through_u, at_v_improves, sem="relaxed")
            tl.atomic_min(time + u, through_v, at_u_improves, sem="relaxed")
            improved += tl.sum((at_v_improves | at_u_improves).to(tl.int32))
        tl.debug_barrier()  # the next round reads what all threads wrote
