"""Take information out of a data set, to see which a score needs: edges, or features of nodes.

Every function returns a copy; labels, groups and the order of the graphs stay. Columns of degrees are computed anew.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from graphcl.datasets.dataset import GraphDataset
from graphcl.graphs.segment import pointers, repeat, shuffled


def without_edges(dataset: GraphDataset, seed: int = 0) -> GraphDataset:
    """Return the graphs without edges."""
    data, slices, values = dataset._data, dict(dataset.slices or {}), dict[str, Tensor]()
    for key, cuts in slices.items():
        if data.is_edge_attr(key) and torch.equal(cuts, slices["edge_index"]):
            values[key] = data[key][:, :0] if key == "edge_index" else data[key][:0]
    no_edges = dict.fromkeys(values, torch.zeros_like(slices["edge_index"]))
    if dataset.degree_columns:
        degrees = torch.zeros(len(data.x), dataset.degree_columns, dtype=data.x.dtype)
        degrees[:, 0] = 1
        values["x"] = torch.cat([data.x[:, : dataset.num_features - dataset.degree_columns], degrees], dim=1)
    changed = _changed(dataset, **values)
    changed.slices = slices | no_edges
    return changed


def rewired(dataset: GraphDataset, seed: int = 0) -> GraphDataset:
    """Return the graphs with random edges, where every node keeps its degree; see `rewire`.

    Attributes of edges stay in their column.
    """
    counts = _sizes(dataset, "edge_index")
    shift = repeat(pointers(_sizes(dataset))[:-1], counts)
    generator = torch.Generator().manual_seed(seed)
    graph = repeat(torch.arange(len(counts)), counts)
    return _changed(dataset, edge_index=rewire(dataset._data.edge_index + shift, graph, generator) - shift)


def shuffled_features(dataset: GraphDataset, seed: int = 0) -> GraphDataset:
    """Return the graphs with the rows of `x` in random order within each graph, without the columns of degrees."""
    sizes = _sizes(dataset)
    graph = repeat(torch.arange(len(sizes)), sizes)
    x, columns = dataset._data.x.clone(), dataset.num_features - dataset.degree_columns
    x[:, :columns] = x[shuffled(graph, len(sizes), torch.Generator().manual_seed(seed)), :columns]
    return _changed(dataset, x=x)


def constant_features(dataset: GraphDataset, seed: int = 0) -> GraphDataset:
    """Return the graphs with the same features at all nodes: ones, or category 0; columns of degrees stay."""
    x = dataset._data.x.clone()
    x[:, : dataset.num_features - dataset.degree_columns] = 1 if x.is_floating_point() else 0
    return _changed(dataset, x=x)


def sizes_only(dataset: GraphDataset, seed: int = 0) -> GraphDataset:
    """Return the graphs without edges and with the same features at all nodes, so that only their sizes differ."""
    return constant_features(without_edges(dataset))


CONTROLS = {
    "no edges": without_edges,
    "random edges": rewired,
    "shuffled features": shuffled_features,
    "constant features": constant_features,
    "sizes only": sizes_only,
}
"""Name of a control -> function of a data set and a seed."""


def controlled(name: str, dataset: GraphDataset, seed: int = 0) -> GraphDataset | None:
    """Return the data set, and its targets, under a control of `CONTROLS`; None if it changes nothing."""
    changed = [CONTROLS[name](side, seed) for side in dataset.sides]
    both = [(side._data, other._data) for side, other in zip(dataset.sides, changed, strict=True)]
    if all(torch.equal(old[key], new[key]) for old, new in both for key in ("edge_index", "x")):
        return None
    changed[0].targets = changed[1] if len(changed) > 1 else None
    return changed[0]


def _sizes(dataset: GraphDataset, key: str = "x") -> Tensor:
    """Return the number of nodes, or of rows of another attribute, of each graph."""
    return (dataset.slices or {})[key].diff()


def _changed(dataset: GraphDataset, **values: Tensor) -> GraphDataset:
    """Return a copy of the data set with other values of some attributes; all others are shared."""
    changed, changed._data, changed._data_list = copy.copy(dataset), copy.copy(dataset._data), None
    changed.slices = dict(dataset.slices or {})
    for key, value in values.items():
        changed._data[key] = value
    return changed


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
    taken = torch.cat([code(*ends), fixed])
    legal = (a != d) & (c != b) & ~torch.isin(new, taken).any(0) & (_counts(new.flatten()) == 1).view(2, -1).all(0)
    out = ends.clone()
    out[:, one[legal]] = torch.stack([a, d])[:, legal]
    out[:, two[legal]] = torch.stack([c, b])[:, legal]
    return out


def _counts(values: Tensor) -> Tensor:
    """Return how often each of the `values [E]` occurs."""
    _, number, counts = values.unique(return_inverse=True, return_counts=True)
    return counts[number]
