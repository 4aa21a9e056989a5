"""Generate data sets with the shape of well-known ones, for machines without a download.

| name     | like          | graphs  | nodes | edges | structure                                         | features   |
|----------|---------------|---------|-------|-------|---------------------------------------------------|------------|
| dd       | DD            | 1,178   | 284   | 716   | a chain folded into a cube, contacts in space     | 89 labels  |
| reddit   | REDDIT-BINARY | 2,000   | 430   | 498   | a few hubs, answers to answers                    | constant   |
| collab   | COLLAB        | 5,000   | 74    | 2,458 | cliques, and one person who knows everybody       | constant   |
| molpcba  | ogbg-molpcba  | 437,929 | 26    | 28    | a tree with rings, no degree above 4              | 9 numbers  |
| proteins | PROTEINS      | 1,113   | 39    | 73    | as dd                                             | 3 labels   |
| nci1     | NCI1          | 4,110   | 30    | 32    | as molpcba                                        | 37 labels  |

Nodes and undirected edges are averages over the graphs, sizes are log-normal, and graphs are connected. The sets share
what determines speed: numbers, degrees, widths. Labels `y` and features are random, so there is nothing to learn.

All graphs are made at once. Each set has required edges and optional ones; as many optional edges are drawn as the
average needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch_geometric.data import Data, InMemoryDataset


@dataclass(frozen=True)
class Shape:
    num_graphs: int
    nodes: float
    edges: float
    """Undirected edges per graph."""
    spread: float
    """Standard deviation of the logarithm of the number of nodes."""
    least: int
    most: int
    structure: str
    labels: int | None
    """Number of one-hot columns; 1 for a constant, None for the nine numbers of an atom."""
    classes: int = 2


SHAPES = {
    "dd": Shape(1_178, 284.32, 715.66, 0.7, 30, 5_748, "fold", 89),
    "reddit": Shape(2_000, 429.63, 497.75, 0.9, 6, 3_782, "hubs", 1),
    "collab": Shape(5_000, 74.49, 2_457.78, 0.72, 32, 492, "cliques", 1, classes=3),
    "molpcba": Shape(437_929, 26.0, 28.1, 0.25, 6, 120, "molecule", None),
    "proteins": Shape(1_113, 39.06, 72.82, 0.8, 4, 620, "fold", 3),
    "nci1": Shape(4_110, 29.87, 32.3, 0.43, 3, 111, "molecule", 37),
}


class Generated(InMemoryDataset):
    """Graphs in memory, collated as in PyG."""

    relation = None

    def __init__(self, data: Data, slices: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self._data, self.slices = data, slices


def generate(name: str, num_graphs: int | None = None, seed: int = 0) -> Generated:
    """Return a data set of the shape `name`; the same seed gives the same graphs."""
    shape = SHAPES[name]
    rng = np.random.default_rng(seed)
    sizes = _sizes(rng, shape, num_graphs or shape.num_graphs)
    low, high, must = STRUCTURES[shape.structure](rng, sizes)
    wanted = shape.edges * sizes.size
    probability = (wanted - must.sum()) / max(1, (~must).sum())
    kept = must | (rng.random(must.size) < probability)
    return _collate(rng, shape, sizes, low[kept], high[kept])


def _sizes(rng: np.random.Generator, shape: Shape, count: int) -> np.ndarray:
    """Return log-normal numbers of nodes with the given mean, `[B]`."""
    draw = np.exp(shape.spread * rng.standard_normal(count))
    scale = shape.nodes
    for _ in range(20):  # limits and rounding move the mean
        sizes = np.clip(np.rint(draw * scale), shape.least, shape.most).astype(np.int64)
        scale *= shape.nodes / sizes.mean()
    return sizes


def _starts(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)])


def _members(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the graph of each node, and its number within the graph."""
    graph = np.repeat(np.arange(sizes.size), sizes)
    return graph, np.arange(graph.size) - _starts(sizes)[graph]


def _distinct(low: np.ndarray, high: np.ndarray, must: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each pair once, without loops; a pair that is required anywhere stays required."""
    low, high = np.minimum(low, high), np.maximum(low, high)
    name = (low * (high.max() + 1) + high) * 2 + ~must
    name = np.sort(name[low != high])
    pair = name >> 1
    first = np.concatenate([[True], pair[1:] != pair[:-1]])
    low, rest = np.divmod(pair[first], high.max() + 1)
    return low, rest, name[first] % 2 == 0


def _fold(rng: np.random.Generator, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pairs: a chain fills a cube row by row; neighbours in space, also diagonal ones, may be in contact."""
    graph, number = _members(sizes)
    side = np.ceil(np.cbrt(sizes)).astype(np.int64)[graph]
    z, rest = np.divmod(number, side**2)
    y, x = np.divmod(rest, side)
    y = np.where(z % 2, side - 1 - y, y)
    x = np.where((y + z) % 2, side - 1 - x, x)
    cell = _starts(np.ceil(np.cbrt(sizes)).astype(np.int64) ** 3)
    node_at = np.full(cell[-1], -1)
    place = cell[graph] + (z * side + y) * side + x
    node_at[place] = np.arange(graph.size)

    ends = []
    for dx, dy, dz in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, -1, 0), (0, 1, 1), (1, 0, 1)):
        inside = (x + dx < side) & (y + dy < side) & (y + dy >= 0) & (z + dz < side)
        nodes = inside.nonzero()[0]
        other = node_at[place[nodes] + ((dz * side + dy) * side + dx)[nodes]]
        ends.append(np.stack([nodes, other])[:, other >= 0])
    chain = (number > 0).nonzero()[0]
    low, high = np.concatenate([*ends, [chain - 1, chain]], axis=1)
    return _distinct(low, high, np.arange(low.size) >= low.size - chain.size)


def _hubs(rng: np.random.Generator, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pairs: three of four nodes join a hub, the others answer any earlier node; some pairs are extra."""
    graph, number = _members(sizes)
    start = _starts(sizes)[graph]
    hubs = rng.integers(1, 5, sizes.size)[graph]
    child = (number > 0).nonzero()[0]
    before = np.where(rng.random(child.size) < 0.75, np.minimum(hubs, number)[child], number[child])
    parent = start[child] + (rng.random(child.size) * before).astype(np.int64)
    some = np.repeat(np.arange(graph.size), rng.random(graph.size) < 0.6)
    reach = np.where(rng.random(some.size) < 0.5, np.minimum(hubs, sizes[graph])[some], sizes[graph][some])
    other = start[some] + (rng.random(some.size) * reach).astype(np.int64)
    low, high = np.concatenate([child, some]), np.concatenate([parent, other])
    return _distinct(low, high, np.arange(low.size) < child.size)


def _cliques(rng: np.random.Generator, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pairs: node 0 is linked to all, the others form one to ten cliques, with optional pairs in between."""
    graph, number = _members(sizes)
    cliques = rng.choice([1, 2, 3, 4, 6, 10], sizes.size)[graph]
    clique = (rng.random(graph.size) * cliques).astype(np.int16)
    later = sizes[graph] - 1 - number
    low = np.repeat(np.arange(graph.size), later)
    high = low + 1 + np.arange(low.size) - _starts(later)[low]
    return low, high, (clique[low] == clique[high]) | (number[low] == 0)


def _molecule(rng: np.random.Generator, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pairs: each atom is bound to one of the two before it; a few bonds over five atoms close rings."""
    _, number = _members(sizes)
    later = (number > 0).nonzero()[0]
    tree = later - np.where((number[later] > 1) & (rng.random(later.size) < 0.25), 2, 1)
    left = np.repeat(sizes, sizes) - number > 5
    closing = (left & (number % 6 == 0)).nonzero()[0]
    low, high = np.concatenate([tree, closing]), np.concatenate([later, closing + 5])
    return low, high, np.arange(low.size) < later.size


STRUCTURES = {"fold": _fold, "hubs": _hubs, "cliques": _cliques, "molecule": _molecule}


def _collate(rng: np.random.Generator, shape: Shape, sizes: np.ndarray, low: np.ndarray, high: np.ndarray) -> Generated:
    """Return both directions of each pair, sorted by source, then target; nodes are numbered within their graph."""
    starts, total = _starts(sizes), int(sizes.sum())
    name = np.sort(np.concatenate([low * total + high, high * total + low]))
    source, target = np.divmod(name, total)
    graph, number = _members(sizes)
    edges = _starts(np.bincount(graph[source], minlength=sizes.size))
    edge_index = torch.from_numpy(np.stack([number[source], number[target]]))
    if shape.labels is None:
        x = torch.from_numpy(rng.integers(0, 4, (total, 9), dtype=np.int8)).float()
    elif shape.labels == 1:
        x = torch.ones(total, 1)
    else:
        x = torch.zeros(total, shape.labels)
        x[torch.arange(total), torch.from_numpy(rng.integers(0, shape.labels, total))] = 1.0
    y = torch.from_numpy(rng.permutation(np.arange(sizes.size) % shape.classes))
    slices = {"x": starts, "edge_index": edges, "y": np.arange(sizes.size + 1)}
    data = Data(x=x, edge_index=edge_index, y=y)
    return Generated(data, {key: torch.from_numpy(value) for key, value in slices.items()})
