"""Find the patterns that weigh most, in an encoder or in the cosine of two graphs, with an example of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphcl.extensions.sparse.rows import Patterns


@dataclass(frozen=True)
class Pattern:
    """A pattern, with an example: the neighbourhood of one node.

    Attributes:
        weight: weight of the column "occurs at least once".
        frequency: number of training groups with the pattern, 0 if fewer than two.
        share: fraction of the cosine of two graphs that its columns add; of an encoder's patterns, 0.
        nodes: its nodes in the graphs, [2]; of an encoder's patterns, in the graph of the example.
        depth: depth of the pattern.
        x: features of the neighbourhood's nodes `[n, F]`, the pattern's node first.
        edge_index: its edges `[2, e]`; nodes at distance `depth` have no incoming edges.
        distance: distance of each node to the first one `[n]`.
    """

    weight: float
    frequency: int
    share: float
    nodes: tuple[int, ...]
    depth: int
    x: Tensor
    edge_index: Tensor
    distance: Tensor


@torch.no_grad()
def explain(encoder: Any, one: Data, other: Data, k: int = 10, min_depth: int = 0) -> list[Pattern]:
    """Return the k shared patterns of two graphs that add most to the cosine of their rows by a `WLSparse` encoder.

    The shares of all shared patterns sum to 1. An example is from the first graph. Patterns of a depth below
    `min_depth` are left out.

    Example:
        >>> from graphcl.extensions.sparse.encoder import WLSparse
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> one, other = (Data(x=torch.tensor([[1.0], [0.0], [0.0], [last]]), edge_index=ring) for last in (0.0, 2.0))
        >>> [(p.depth, p.nodes, round(p.share, 2)) for p in explain(WLSparse(1, depth=1), one, other)]
        [(0, (3, 2), 0.4), (0, (1, 1), 0.2), (1, (1, 1), 0.2), (1, (2, 1), 0.2)]
    """
    batch = Batch.from_data_list([one, other])
    patterns = _patterns(encoder, batch)
    rows, of = encoder.rows_of(patterns)
    first, second = (slice(int(a), int(b)) for a, b in zip(rows.ptr[:-1], rows.ptr[1:], strict=True))
    columns, order = rows.column[second].sort()
    place = torch.searchsorted(columns, rows.column[first]).clamp(max=max(len(columns) - 1, 0))
    both = columns[place] == rows.column[first] if len(columns) else torch.zeros(0, dtype=torch.bool)
    product = rows.value[first][both] * rows.value[second][order[place[both]]]
    share = product.new_zeros(len(patterns.colour)).index_add(0, of[first][both], product)
    in_other = torch.zeros(len(patterns.colour), dtype=torch.long)
    in_other[of[first][both]] = patterns.count[of[second][order[place[both]]]]
    total = float(product.sum())
    share[patterns.depth < min_depth] = 0
    best = share.argsort(descending=True, stable=True)[:k]
    return [
        _pattern(encoder, batch, patterns, at, float(share[at]) / total, (int(patterns.count[at]), int(in_other[at])))
        for at in best[share[best] > 0].tolist()
    ]


@torch.no_grad()
def heaviest(encoder: Any, batches: Iterable[Batch], k: int = 12) -> list[Pattern]:
    """Return the k patterns with the largest weights of those that training saw in two groups or more."""
    best: dict[int, Pattern] = {}
    for batch in batches:
        patterns = _patterns(encoder, batch)
        weight = encoder.pattern_weights(patterns)
        weight[encoder.frequencies_of(patterns) == 0] = 0
        order = weight.argsort(descending=True, stable=True)
        _, firsts = np.unique(patterns.colour[order].numpy(), return_index=True)
        for at in order[np.sort(firsts)[:k]].tolist():
            colour = int(patterns.colour[at])
            if weight[at] > 0 and colour not in best:
                best[colour] = _pattern(encoder, batch, patterns, at, 0.0, (int(patterns.count[at]),))
        best = dict(sorted(best.items(), key=lambda item: -item[1].weight)[:k])
    return [*best.values()]


def _patterns(encoder: Any, batch: Batch) -> Patterns:
    return encoder.patterns(batch.x, batch.edge_index, batch.batch, batch.num_graphs, batch.get("edge_attr"))


def _pattern(encoder: Any, batch: Batch, patterns: Patterns, at: int, share: float, nodes: tuple[int, ...]) -> Pattern:
    """Return a pattern of a batch with its example."""
    depth = int(patterns.depth[at])
    kept, edges, distance = ball(batch.edge_index, int(patterns.node[at]), depth, encoder.both)
    weight, frequency = encoder.pattern_weights(patterns)[at], encoder.frequencies_of(patterns)[at]
    return Pattern(float(weight), int(frequency), share, nodes, depth, batch.x[kept], edges, distance)


def ball(edge_index: Tensor, node: int, depth: int, both: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return what a WL colour of a depth sees: the nodes `[n]`, edges among these `[2, e]`, and distances `[n]`.

    A node sees the sources of its incoming edges; with `both`, also the targets of its outgoing ones.

    Example:
        >>> path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> ball(path, 0, 2)
        (tensor([0, 1, 2]), tensor([[0, 1, 2],
                [1, 0, 1]]), tensor([0, 1, 2]))
    """
    distances, seen = {node: 0}, torch.zeros(edge_index.size(1), dtype=torch.bool)
    front = torch.tensor([node])
    for distance in range(1, depth + 1):
        into = torch.isin(edge_index[1], front)
        out = torch.isin(edge_index[0], front) if both else torch.zeros_like(into)
        seen |= into | out
        new = torch.cat([edge_index[0][into], edge_index[1][out]]).unique().tolist()
        new = [neighbour for neighbour in new if neighbour not in distances]
        distances |= dict.fromkeys(new, distance)
        front = torch.tensor(new, dtype=torch.long)
    place = {end: number for number, end in enumerate(distances)}
    edges = [[place[end] for end in ends] for ends in edge_index[:, seen].tolist()]
    kept = edge_index.new_tensor([*distances])
    return kept, edge_index.new_tensor(edges).reshape(2, -1), edge_index.new_tensor([*distances.values()])


@torch.no_grad()
def survey(encoder: Any, batches: Iterable[Batch], k: int = 12) -> dict[str, np.ndarray]:
    """Return arrays of the weight, frequency and depth of an encoder's patterns, and of its k heaviest ones.

    The arrays `weight`, `frequency` and `depth [K]` have one entry for each pattern that training saw in two groups or
    more; `load_patterns` reads the others. Without such patterns in the batches, there are no arrays.
    """
    batches, rows = [*batches], []
    for batch in batches:
        patterns = _patterns(encoder, batch)
        columns = encoder.pattern_weights(patterns), encoder.frequencies_of(patterns), patterns.depth
        kept = torch.from_numpy(np.unique(patterns.colour.numpy(), return_index=True)[1])
        rows.append([column[kept].numpy() for column in (patterns.colour, *columns)])
    colour, weight, frequency, depth = (np.concatenate(column) for column in zip(*rows, strict=True))
    first = np.unique(colour, return_index=True)[1]
    first = first[frequency[first] > 0]
    if not len(first):
        return {}
    best = heaviest(encoder, batches, k)
    balls = {name: [getattr(pattern, name).numpy() for pattern in best] for name in ("x", "edge_index", "distance")}
    return {
        **{"weight": weight[first], "frequency": frequency[first], "depth": depth[first]},
        "sizes": np.array([[len(pattern.x), pattern.edge_index.size(1)] for pattern in best]),
        "of_each": np.array([[pattern.weight, pattern.frequency, pattern.nodes[0], pattern.depth] for pattern in best]),
        **{f"ball_{name}": np.concatenate(values, -1 if name == "edge_index" else 0) for name, values in balls.items()},
    }


def load_patterns(arrays: Mapping[str, np.ndarray]) -> list[Pattern]:
    """Return the heaviest patterns from the arrays of `survey`."""
    nodes, edges = (np.cumsum(counts)[:-1] for counts in arrays["sizes"].T)
    x, distance = (np.split(arrays[f"ball_{name}"], nodes) for name in ("x", "distance"))
    ends = np.split(arrays["ball_edge_index"], edges, axis=1)
    return [
        Pattern(float(weight), int(frequency), 0.0, (int(count),), int(depth), *map(torch.from_numpy, ball))
        for (weight, frequency, count, depth), *ball in zip(arrays["of_each"], x, ends, distance, strict=True)
    ]
