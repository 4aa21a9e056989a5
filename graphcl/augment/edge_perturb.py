"""Edge dropping (Zhu et al. 2020) and edge perturbation (You et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import Ratio
from graphcl.augment.decision import Decision
from graphcl.augment.transform import Augmentation
from graphcl.graphs import native
from graphcl.graphs.batching import Layout
from graphcl.graphs.segment import nonzero, pick, pointers, random_sample, ranges, ratio_count, repeat, sort_pairs
from graphcl.registry import augmentations


@augmentations.register("edge_drop")
class EdgeDrop(Augmentation):
    r"""Remove each directed edge independently, with probability `ratio`; all nodes stay.

    $$\tilde A = A \circ R, \qquad R_{uv} \sim \mathrm{Bernoulli}(1 - p)$$

    where A is the adjacency matrix and p is `ratio`. The two directions of an edge are drawn independently, so a view
    of an undirected graph is directed. `edge_perturb` with `add=False` removes an exact number of undirected edges.

    Args:
        ratio: probability p of removing an edge, in [0, 1).

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> graph = FakeDataset(num_graphs=1, avg_num_nodes=20)[0]
        >>> EdgeDrop(ratio=0.5)(graph).num_nodes == graph.num_nodes
        True

    References:
        Zhu et al., "Deep Graph Contrastive Representation Learning", 2020, Section 3.2.2 (arXiv 2006.04131).
    """

    def __init__(self, ratio: Ratio = 0.2) -> None:
        self.ratio = ratio

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Return a decision with the drawn edges to keep."""
        layout = Layout.of(batch)
        keep = torch.rand(layout.num_edges, generator=generator, device=layout.ptr.device) >= self.ratio
        return Decision(keep_edge=keep if graphs is None else keep | ~pick(graphs, layout.edge_graph))


@augmentations.register("edge_perturb")
class EdgePerturb(Augmentation):
    r"""Remove floor(ratio e) of the e edges of each graph and, with `add`, insert as many new edges.

    An edge here is a pair of connected nodes, with both directions and all parallel edges, so an undirected graph stays
    undirected. Self-loops are not counted and stay.

    With `add`, each removed edge moves to a uniformly drawn pair of unconnected nodes and keeps its directions and edge
    attributes. If a graph has too few unconnected pairs, the remaining edges are only removed.

    Differs: the released GraphCL code only removes edges, each direction separately, which makes the graph directed.

    Args:
        ratio: fraction of the edges to remove, in [0, 1).
        add: whether to insert as many edges as are removed.

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
        """Return a decision with the drawn edges to remove and, with `add`, their new ends."""
        layout = Layout.of(batch)
        entry, pair_ptr, low, high, edges = _pairs(layout, graphs)
        device, k = entry.device, ratio_count(self.ratio, edges)
        removed = random_sample(pointers(edges), k, generator, device)
        keep_edge = torch.ones(layout.num_edges, dtype=torch.bool, device=device)
        if not self.add:
            ((gone, _),) = _entries(entry, pair_ptr, removed)
            return Decision(keep_edge=keep_edge.index_fill_(0, gone, False))

        nodes = layout.host_nodes
        found = torch.minimum(k, nodes * (nodes - 1) // 2 - edges)
        pairs = _draw_unconnected(layout, low, high, edges, found, generator)
        # The removed pairs of a graph are in random order, so moving the first found[g] of them is unbiased.
        moves = ranges(torch.zeros_like(k), k, device) < repeat(found, k, device)
        moving, staying = nonzero(moves, pairs.numel()), nonzero(~moves, removed.numel() - pairs.numel())
        (moved, counts), (gone, _) = _entries(entry, pair_ptr, pick(removed, moving), pick(removed, staying))
        pair = repeat(pairs, counts, size=moved.numel())
        ends = torch.stack([pair // layout.num_nodes, pair % layout.num_nodes])
        source, target = pick(layout.edge_index, moved, dim=1)
        return Decision(
            keep_edge=keep_edge.index_fill_(0, gone, False),
            moved=moved,
            moved_to=torch.where(source < target, ends, ends.flip(0)),
        )


def _pairs(layout: Layout, graphs: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the connected pairs of nodes in the given graphs, sorted by lower, then by higher node index.

    The results are the indices of all edges except self-loops, sorted by pair, `[K]`; the boundaries of the pairs in
    them, `[P + 1]`; the lower and the higher node of each pair, `[P]`; and the number of pairs in each graph, `[B]`, on
    the CPU.
    """
    among = None if graphs is None else layout.edges_of(graphs.cpu())
    if native.takes(layout.edge_index, among):
        entry, pair_ptr, low, high = native.pairs(layout.edge_index, among, layout.num_nodes)
        return entry, pair_ptr, low, high, torch.bincount(pick(layout.batch, low), minlength=layout.num_graphs)
    source, target = layout.edge_index
    low, high = torch.minimum(source, target), torch.maximum(source, target)
    order, is_new = sort_pairs(low, high, layout.num_nodes)
    low, high = pick(low, order), pick(high, order)
    graph = pick(layout.batch, low)
    counted = low != high if graphs is None else (low != high) & pick(graphs, graph)
    edges = torch.zeros_like(layout.nodes).scatter_add_(0, graph, (is_new & counted).long())
    read = torch.cat([edges, counted.sum()[None]]).cpu()  # both at once
    edges, kept = read[:-1], nonzero(counted, int(read[-1]))
    start = nonzero(pick(is_new, kept), int(edges.sum()))
    first = pick(kept, start)
    pair_ptr = torch.cat([start, start.new_full((1,), kept.numel())])
    return pick(order, kept), pair_ptr, pick(low, first), pick(high, first), edges


def _entries(entry: Tensor, pair_ptr: Tensor, *pairs: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the edges of each set of pairs, and the number of edges of each pair, `[Q]`.

    `entry` and `pair_ptr` are results of `_pairs`; each of `pairs [Q]` holds positions in them.
    """
    starts = [pick(pair_ptr, each) for each in pairs]
    counts = [pick(pair_ptr, each + 1) - start for each, start in zip(pairs, starts, strict=True)]
    sizes = torch.stack([each.sum() for each in counts]).tolist()  # one read for all
    found = zip(starts, counts, sizes, strict=True)
    return [(pick(entry, ranges(start, count, size=size)), count) for start, count, size in found]


def _draw_unconnected(
    layout: Layout, low: Tensor, high: Tensor, edges: Tensor, wanted: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Return wanted[g] distinct unconnected pairs drawn from each graph g, as low * N + high.

    If a graph has few unconnected pairs, all of them are listed, and the result is sampled from the list. Otherwise
    pairs are drawn independently, and connected and repeated pairs are discarded. In both cases all sets of unconnected
    pairs are equally likely. `edges` and `wanted [B]` are on the CPU, `low` and `high [P]` those of `_pairs`.
    """
    n, device = layout.host_nodes, low.device
    ptr, possible = pointers(n), n * (n - 1) // 2
    connected = low * layout.num_nodes + high  # ascending, as `_contains` requires
    graph = repeat(torch.arange(n.numel()), wanted, device)
    few = 4 * (edges + wanted) >= possible
    pair = torch.empty_like(graph)

    listed = nonzero(few & (wanted > 0))
    if listed.numel():
        squares = n[listed] ** 2
        place, order = ranges(torch.zeros_like(squares), squares, device), repeat(n[listed], squares, device)
        shift = repeat(ptr[listed], squares, device)
        u, v = place // order, place % order
        candidate = (u + shift) * layout.num_nodes + v + shift
        absent = (u < v) & ~_contains(connected, candidate)
        absents = (possible - edges)[listed]
        chosen = random_sample(pointers(absents), wanted[listed], generator, device)
        slots = nonzero(pick(few.to(device, non_blocking=True), graph), chosen.numel())
        pair.index_copy_(0, slots, pick(pick(candidate, nonzero(absent, int(absents.sum()))), chosen))

    left, place, drawn = wanted.masked_fill(few, 0), pointers(wanted)[:-1], [connected]
    while bool((left > 0).any()):
        # Draw more than are left and use the first valid ones, so that one round nearly always suffices.
        tries = torch.where(left > 0, left + left // 2 + 8, 0)
        graph = repeat(torch.arange(n.numel()), tries, device)
        ends = torch.rand(2, graph.numel(), generator=generator, dtype=torch.float64, device=device)
        u, v = (ends * pick(layout.nodes, graph)).long() + pick(layout.ptr, graph)
        key = torch.minimum(u, v) * layout.num_nodes + torch.maximum(u, v)
        ascending, order = key.sort(stable=True)
        fresh = pick(u != v, order)
        fresh[1:] &= ascending[1:] != ascending[:-1]
        fresh &= ~_contains(torch.cat(drawn).sort().values if len(drawn) > 1 else connected, ascending)
        valid = torch.empty_like(fresh).index_copy_(0, order, fresh)
        before = pointers(valid.long())
        first, most, slot = (each.to(device, non_blocking=True) for each in (pointers(tries)[:-1], left, place))
        start = pick(before, first)
        used = valid & (before[:-1] < pick(start + most, graph))
        done = torch.zeros_like(layout.nodes).scatter_add_(0, graph, used.long()).cpu()
        taken = nonzero(used, int(done.sum()))
        graph, key = pick(graph, taken), pick(key, taken)
        pair.index_copy_(0, pick(before, taken) + pick(slot - start, graph), key)
        left, place = left - done, place + done
        drawn.append(key)
    return pair


def _contains(ascending: Tensor, values: Tensor) -> Tensor:
    """Return a mask `[K]` of the `values [K]` that occur in the sorted `ascending [P]`."""
    if ascending.numel() == 0:
        return torch.zeros_like(values, dtype=torch.bool)
    return ascending[torch.searchsorted(ascending, values).clamp(max=ascending.numel() - 1)] == values
