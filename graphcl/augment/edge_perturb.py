"""Edge dropping (Zhu et al. 2020) and edge perturbation (You et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import Ratio
from graphcl.augment.transform import Augmentation, Decision
from graphcl.graphs import native
from graphcl.graphs.batching import Layout
from graphcl.graphs.segment import (
    nonzero,
    pick,
    pointers,
    random_sample,
    ranges,
    ratio_count,
    segment_ids,
    sort_pairs,
    to_device,
)
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
        if layout.compiled:
            return self._decide_compiled(layout, generator, graphs)
        entry, pair_ptr, connected, edges = _pairs(layout, graphs)
        device, k = entry.device, ratio_count(self.ratio, edges)
        removed = random_sample(pointers(edges), k, generator, device)
        keep_edge = torch.ones(layout.num_edges, dtype=torch.bool, device=device)
        if not self.add:
            gone, _, _ = _entries(entry, pair_ptr, removed)
            return Decision(keep_edge=keep_edge.index_fill_(0, gone, False))

        nodes = layout.host_nodes
        moves = torch.minimum(k, nodes * (nodes - 1) // 2 - edges)
        pairs = _draw_unconnected(layout, connected, edges, moves, generator)
        # The removed pairs of a graph are in random order, so moving the first moves[g] of them is unbiased.
        first = pointers(k)[:-1]
        moving_first = ranges(torch.cat([first, first + moves]), torch.cat([moves, k - moves]), device)
        changed, pair, moving = _entries(entry, pair_ptr, pick(removed, moving_first), pairs.numel())
        moved, gone = changed[:moving], changed[moving:]
        pair = pick(pairs, pair[:moving])
        ends = torch.stack([pair // layout.num_nodes, pair % layout.num_nodes])
        source, target = pick(layout.edge_index, moved, dim=1)
        return Decision(
            keep_edge=keep_edge.index_fill_(0, gone, False),
            moved=moved,
            moved_to=torch.where(source < target, ends, ends.flip(0)),
        )

    def _decide_compiled(self, layout: Layout, generator: torch.Generator | None, graphs: Tensor | None) -> Decision:
        """Return the decision of `decide` by compiled loops, from the same random numbers."""
        assert layout.edge_ptr is not None
        pairs = native.EdgePairs(layout.ptr, layout.edge_ptr, layout.edge_index, graphs, self.ratio, self.add)
        order = torch.randperm(pairs.removable, generator=generator)
        listed = torch.randperm(pairs.absent, generator=generator) if pairs.absent else None
        while pairs.tries or listed is not None:
            uniform = torch.rand(2, pairs.tries, generator=generator, dtype=torch.float64) if pairs.tries else None
            pairs.draw_ends(listed, uniform)
            listed = None
        keep_edge, moved, moved_to = pairs.replace(order)
        return Decision(None, keep_edge, moved, moved_to) if self.add else Decision(keep_edge=keep_edge)


def _pairs(layout: Layout, graphs: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the connected pairs of nodes in the graphs of the mask, sorted by lower, then by higher node index.

    The results are the indices of all edges except self-loops, sorted by pair, `[K]`; the boundaries of the pairs in
    them, `[P + 1]`; the pairs as low * N + high, `[P]`; and the number of pairs in each graph, `[B]`, on the CPU.
    """
    n, among = layout.num_nodes, None if graphs is None else layout.edges_of(graphs.cpu())
    source, target = layout.edge_index if among is None else pick(layout.edge_index, among, dim=1)
    entry, key, is_new = sort_pairs(torch.minimum(source, target), torch.maximum(source, target), n)
    counted = key % (n + 1) != 0  # no self-loop
    is_new &= counted
    edges_before, pairs_before = pointers(counted), pointers(is_new)
    of_graphs = pick(pairs_before, torch.searchsorted(key, layout.ptr * n))
    read = torch.cat([of_graphs, edges_before[-1:]]).cpu()  # both at once
    num_pairs, num_edges = read[-2:].tolist()
    start = nonzero(is_new, num_pairs, pairs_before)
    if num_edges < entry.numel():
        entry = pick(entry, nonzero(counted, num_edges, edges_before))
    entry = entry if among is None else pick(among, entry)
    end = start.new_full((1,), key.numel())
    return entry, pick(edges_before, torch.cat([start, end])), pick(key, start), read[:-1].diff()


def _entries(entry: Tensor, pair_ptr: Tensor, pairs: Tensor, first: int = 0) -> tuple[Tensor, Tensor, int]:
    """Return the edges of the pairs `[Q]`, the position of the pair of each, and the number of edges of the first ones.

    `entry` and `pair_ptr` are results of `_pairs`; `pairs [Q]` holds positions in them.
    """
    start = pick(pair_ptr, pairs)
    counts = pick(pair_ptr, pairs + 1) - start
    before = pointers(counts)
    of_first, size = torch.stack([before[first], before[-1]]).tolist()  # one read for both
    pair = segment_ids(counts, size)
    place = torch.arange(size, device=pair.device) + pick(start - before[:-1], pair)
    return pick(entry, place), pair, of_first


def _draw_unconnected(
    layout: Layout, connected: Tensor, edges: Tensor, wanted: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Return wanted[g] distinct unconnected pairs drawn from each graph g, as low * N + high.

    If a graph has few unconnected pairs, all of them are listed, and the result is sampled from the list. Otherwise
    pairs are drawn independently, and connected and repeated pairs are discarded. In both cases all sets of unconnected
    pairs are equally likely. `edges` and `wanted [B]` are on the CPU, `connected [P]` is that of `_pairs`.
    """
    n, device = layout.host_nodes, connected.device
    possible, first = n * (n - 1) // 2, pointers(wanted)[:-1]
    few = 4 * (edges + wanted) >= possible
    pair = torch.empty(int(wanted.sum()), dtype=torch.long, device=device)

    listed = nonzero(few & (wanted > 0))
    if listed.numel():
        absents = (possible - edges)[listed]
        absent = _list_unconnected(layout, connected, listed, int(absents.sum()))
        chosen = random_sample(pointers(absents), wanted[listed], generator, device)
        pair.index_copy_(0, ranges(first[listed], wanted[listed], device), pick(absent, chosen))

    left, place, drawn = wanted.masked_fill(few, 0), first, connected
    while bool((left > 0).any()):
        # Draw more than are left and use the first valid ones, so that one round nearly always suffices.
        tries = torch.where(left > 0, left + left // 2 + 8, 0)
        key, slot, done = _try(layout, drawn, tries, left, place, generator)
        pair.index_copy_(0, slot, key)
        left, place = left - done, place + done
        if bool((left > 0).any()):
            drawn = torch.cat([drawn, key]).sort().values
    return pair


def _list_unconnected(layout: Layout, connected: Tensor, graphs: Tensor, size: int) -> Tensor:
    """Return all unconnected pairs `[size]` of the graphs with these numbers, sorted, as low * N + high."""
    n, device = layout.host_nodes[graphs], connected.device
    squares = n**2
    table = to_device(torch.stack([squares, pointers(squares)[:-1], n, layout.host_starts[graphs]]), device)
    graph = segment_ids(table[0], int(squares.sum()))
    before, order, shift = (pick(values, graph) for values in table[1:])
    place = torch.arange(graph.numel(), device=device) - before
    u, v = place // order, place % order
    candidate = (u + shift) * layout.num_nodes + v + shift
    absent = (u < v) & ~_contains(connected, candidate)
    return pick(candidate, nonzero(absent, size))


def _try(
    layout: Layout, drawn: Tensor, tries: Tensor, most: Tensor, place: Tensor, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw tries[g] pairs from each graph g, and return the first ones that are valid, at most most[g].

    Valid are pairs of two nodes that do not occur in the sorted `drawn [P]`, once each. The results are the pairs as
    low * N + high, `[Q]`; their slots, place[g] and on for graph g, `[Q]`; and the numbers of them, `[B]`, on the CPU.
    """
    n, bounds = layout.num_nodes, pointers(tries)
    first, tries = to_device(torch.stack([bounds[:-1], tries]), drawn.device)
    graph = segment_ids(tries, int(bounds[-1]))
    ends = torch.rand(2, graph.numel(), generator=generator, dtype=torch.float64, device=drawn.device)
    u, v = (ends * pick(layout.nodes, graph)).long() + pick(layout.ptr, graph)
    key = torch.minimum(u, v) * n + torch.maximum(u, v)
    ascending, order = key.sort(stable=True)
    fresh = ~_contains(drawn, ascending)
    fresh &= ascending % (n + 1) != 0  # no self-loop
    fresh[1:] &= ascending[1:] != ascending[:-1]
    valid = torch.empty_like(fresh).index_copy_(0, order, fresh)
    before = pointers(valid)
    start = pick(before, first)
    done = torch.minimum((pick(before, first + tries) - start).cpu(), most)
    part = pointers(done)[:-1]
    part, slot, counts = to_device(torch.stack([part, place - part, done]), key.device)
    graph = segment_ids(counts, int(done.sum()))
    number = torch.arange(graph.numel(), device=key.device)
    taken = torch.searchsorted(before[1:], number + pick(start - part, graph), right=True)
    return pick(key, taken), number + pick(slot, graph), done


def _contains(ascending: Tensor, values: Tensor) -> Tensor:
    """Return a mask `[K]` of the `values [K]` that occur in the sorted `ascending [P]`."""
    if ascending.numel() == 0:
        return torch.zeros_like(values, dtype=torch.bool)
    return pick(ascending, torch.searchsorted(ascending, values).clamp_(max=ascending.numel() - 1)) == values
