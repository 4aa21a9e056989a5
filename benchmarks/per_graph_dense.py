"""Baseline in the style of research code: graph by graph in NumPy, with a dense adjacency matrix.

Written from descriptions of You et al. 2020, Section 3.1 (arXiv 2010.13902). Counts, ratio and loader are those of
`per_graph.py`, which uses lists of edges:

- node drop: a matrix [n, n] of zeros, ones at the edges, rows and columns of the kept nodes, then `nonzero`.
- subgraph: a list of the region's nodes and a set of their neighbours. Each step takes a random
  neighbour and finds its neighbours by a scan of all edges. Then as node drop.
- edge perturbation: `choice` of the kept edges, and as many random pairs as were lost, looked up in the matrix.
- attribute masking: rows of noise, by the code of `per_graph.py`.
"""

from __future__ import annotations

import numpy as np
import torch
from per_graph import PerGraph, attribute_mask, ratio_count
from torch_geometric.data import Data


def _adjacency(graph: Data) -> np.ndarray:
    n = graph.num_nodes
    source, target = graph.edge_index.numpy()
    adjacency = np.zeros((n, n), dtype=np.float32)
    adjacency[source, target] = 1
    return adjacency


def _restrict(graph: Data, keep: np.ndarray) -> Data:
    """Return the graph of these nodes, in this order."""
    edges = np.stack(_adjacency(graph)[keep][:, keep].nonzero())
    return Data(x=graph.x[torch.from_numpy(keep)], edge_index=torch.from_numpy(edges))


def node_drop(graph: Data, rng: np.random.Generator) -> Data:
    n = graph.num_nodes
    return _restrict(graph, np.sort(rng.permutation(n)[ratio_count(n) :]))


def subgraph(graph: Data, rng: np.random.Generator) -> Data:
    """Grow a subgraph from a random node; restart when a component is exhausted."""
    n = graph.num_nodes
    source, target = graph.edge_index.numpy()
    region: list[int] = []
    neighbours: set[int] = set()
    outside = np.ones(n, dtype=bool)
    while len(region) < n - ratio_count(n):
        listed = list(neighbours) if neighbours else np.flatnonzero(outside).tolist()
        node = listed[rng.integers(len(listed))]
        region.append(node)
        outside[node] = False
        neighbours.discard(node)
        found = target[source == node]
        neighbours.update(found[outside[found]].tolist())
    return _restrict(graph, np.array(region))


def edge_perturb(graph: Data, rng: np.random.Generator) -> Data:
    n = graph.num_nodes
    edges = graph.edge_index.numpy()
    low, high = edges[:, edges[0] < edges[1]]
    count = ratio_count(low.size)
    if count == 0:
        return Data(x=graph.x, edge_index=graph.edge_index)
    adjacency = _adjacency(graph)
    absent = n * (n - 1) // 2 - low.size
    wanted = min(count, absent)
    if absent <= 4 * wanted:  # most draws would hit an edge
        pairs = np.argwhere(np.triu(adjacency == 0, 1))
        new = pairs[rng.choice(absent, wanted, replace=False)].T
    else:
        new = np.empty((2, 0), dtype=np.int64)
        while new.shape[1] < wanted:
            drawn = np.sort(rng.integers(n, size=(2, wanted - new.shape[1])), axis=0)
            drawn = drawn[:, (drawn[0] != drawn[1]) & (adjacency[drawn[0], drawn[1]] == 0)]
            a, b = np.divmod(np.unique(drawn[0] * n + drawn[1]), n)
            adjacency[a, b] = 1
            new = np.concatenate([new, np.stack([a, b])], axis=1)
    kept = rng.choice(low.size, low.size - count, replace=False)
    low, high = np.concatenate([low[kept], new[0]]), np.concatenate([high[kept], new[1]])
    both = np.stack([np.concatenate([low, high]), np.concatenate([high, low])])
    return Data(x=graph.x, edge_index=torch.from_numpy(both))


class PerGraphDense(PerGraph):
    """Augment graph by graph in NumPy with a dense adjacency matrix, then collate by PyG's `DataLoader`."""

    name = "per graph, dense"
    augmentations = (node_drop, subgraph, edge_perturb, attribute_mask)
