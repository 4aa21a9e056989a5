"""Baseline in the style of research code: augment graph by graph in NumPy on access, then batch.

Written from You et al. 2020, Section 3.1 (arXiv 2010.13902), on lists of edges;
`per_graph_dense.py` uses a dense adjacency matrix.
Counts are exact: node drop and subgraph leave n - floor(ratio n) nodes, edge perturbation moves floor(ratio e) of the
undirected edges to absent pairs, attribute masking changes floor(ratio n) rows. Graphs are undirected and simple.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from ours import RATIO
from pyg_pipeline import Epochs
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

Augment = Callable[[Data, np.random.Generator], Data]


def ratio_count(count: int) -> int:
    """Return floor(ratio * count), at most count - 1."""
    return min(int(RATIO * count + 1e-9), max(count - 1, 0))


def _restrict(graph: Data, keep: np.ndarray) -> Data:
    """Return the subgraph of the kept nodes, renumbered."""
    edges = graph.edge_index.numpy()
    name = np.cumsum(keep) - 1
    edges = name[edges[:, keep[edges[0]] & keep[edges[1]]]]
    return Data(x=graph.x[torch.from_numpy(keep)], edge_index=torch.from_numpy(edges))


def node_drop(graph: Data, rng: np.random.Generator) -> Data:
    keep = np.ones(graph.num_nodes, dtype=bool)
    keep[rng.choice(graph.num_nodes, ratio_count(graph.num_nodes), replace=False)] = False
    return _restrict(graph, keep)


def subgraph(graph: Data, rng: np.random.Generator) -> Data:
    """Grow a subgraph from a random node along random boundary edges; restart when a component is exhausted."""
    n = graph.num_nodes
    source, target = graph.edge_index.numpy()
    order = np.argsort(source, kind="stable")
    target, start = target[order].tolist(), np.searchsorted(source[order], np.arange(n + 1)).tolist()
    starts, draw = rng.permutation(n).tolist(), random.Random(int(rng.integers(2**32)))
    keep, kept, boundary = [False] * n, 0, []
    while kept < n - ratio_count(n):
        if boundary:
            at = int(draw.random() * len(boundary))
            node, boundary[at] = boundary[at], boundary[-1]
            boundary.pop()
        else:
            node = starts.pop()
        if keep[node]:
            continue
        keep[node] = True
        kept += 1
        boundary.extend(target[start[node] : start[node + 1]])
    return _restrict(graph, np.array(keep))


def edge_perturb(graph: Data, rng: np.random.Generator) -> Data:
    n = graph.num_nodes
    edges = graph.edge_index.numpy()
    low, high = edges[:, edges[0] < edges[1]]
    count = ratio_count(low.size)
    if count == 0:
        return Data(x=graph.x, edge_index=graph.edge_index)
    names = low * n + high
    absent = n * (n - 1) // 2 - low.size
    wanted = min(count, absent)
    if absent <= 4 * wanted:  # most draws would hit an edge, so all absent pairs are written out
        first, second = np.triu_indices(n, 1)
        new = rng.choice(np.setdiff1d(first * n + second, names), wanted, replace=False)
    else:
        new = np.empty(0, dtype=np.int64)
        while new.size < wanted:
            a, b = rng.integers(n, size=(2, 4 * wanted))
            drawn = np.setdiff1d((np.minimum(a, b) * n + np.maximum(a, b))[a != b], names)
            new = np.union1d(new, drawn)
        new = rng.choice(new, wanted, replace=False)
    kept = np.delete(names, rng.choice(low.size, count, replace=False))
    low, high = np.divmod(np.concatenate([kept, new]), n)
    both = np.stack([np.concatenate([low, high]), np.concatenate([high, low])])
    return Data(x=graph.x, edge_index=torch.from_numpy(both))


def attribute_mask(graph: Data, rng: np.random.Generator) -> Data:
    x = graph.x.numpy().copy()
    rows = rng.choice(graph.num_nodes, ratio_count(graph.num_nodes), replace=False)
    x[rows] = rng.normal(0.5, 0.5, (rows.size, x.shape[1]))
    return Data(x=torch.from_numpy(x), edge_index=graph.edge_index)


class Pairs(torch.utils.data.Dataset):
    """A data set of pairs: a graph and one augmentation of it."""

    def __init__(self, dataset: Any, augmentations: Sequence[Augment], seed: int = 0) -> None:
        self.dataset, self.augmentations, self.rng = dataset, augmentations, np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, position: int) -> tuple[Data, Data]:
        graph = self.dataset[position]
        return graph, self.augmentations[self.rng.integers(len(self.augmentations))](graph, self.rng)


class PerGraph(Epochs):
    """Augment graph by graph, then collate by PyG's `DataLoader`."""

    augmentations: Sequence[Augment]

    def views(self, graphs: list[int]) -> Any:
        sampler = torch.utils.data.SubsetRandomSampler(graphs)
        return DataLoader(Pairs(self.dataset, self.augmentations), self.batch_size, sampler=sampler)


class PerGraphLists(PerGraph):
    """Augment graph by graph in NumPy on lists of edges, then collate by PyG's `DataLoader`."""

    name = "per graph, edge lists"
    augmentations = (node_drop, subgraph, edge_perturb, attribute_mask)
