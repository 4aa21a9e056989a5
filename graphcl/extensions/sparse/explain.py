"""Find and draw the patterns that weigh most, in an encoder or in the cosine of two graphs, with an example."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphcl.extensions.sparse.encoder import Patterns
from graphcl.report.style import COLOURS, INK, MUTED, panel, panels, style


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


READABLE = 24
"""Largest number of nodes whose labels are drawn."""
_TEXT = 8
"""Largest number of letters of a label."""


def patterns_section(arrays: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
    """Return the figures of a run's report: all weights, and the heaviest patterns; None without patterns.

    Args:
        arrays: arrays of `report.npz`; those of `graphcl.extensions.sparse.explain.survey` begin with `patterns_`.
    """
    prefix = "patterns_"
    arrays = {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
    if not arrays:
        return None
    weight, heaviest = arrays["weight"], load_patterns(arrays)
    weights = f"weights of {len(weight)} patterns, {weight.min():.2f} to {weight.max():.2f}"
    return {
        "title": "Patterns",
        "parts": [
            (
                [(weights, weights_figure(arrays["frequency"], weight, arrays["depth"]))],
                "Learned weight of each pattern that occurs in two training groups or more, at its first occurrence in "
                "a graph; before training, all weights are 1.",
            ),
            (
                [(f"the {len(heaviest)} heaviest patterns", pattern_figure(heaviest))],
                "The heaviest patterns, each with an example: the node with the thick border and all that its colour "
                "sees. Numbers are labels: the column of a node's largest feature.",
            ),
        ],
    }


@style()
def pattern_figure(patterns: Sequence[Pattern], names: Sequence[str] | None = None) -> Any:
    """Return a figure of patterns, each as an example: its node has a thick border.

    Args:
        patterns: patterns, such as those of `graphcl.extensions.sparse.explain.explain`.
        names: name of each label; default: its number. The label of a node is the column of its largest feature; or
            its feature, if there is one column.
    """
    figure, axes = panels(max(len(patterns), 1), 1.75, 1.9, columns=4)
    for axis, pattern in zip(axes, patterns, strict=False):
        _draw(axis, pattern, names)
    for axis in axes:
        axis.set_axis_off()
    return figure


@style()
def weights_figure(frequency: np.ndarray, weight: np.ndarray, depth: np.ndarray) -> Any:
    """Return a scatter plot of the weights of patterns over the number of training groups with each; all `[K]`."""
    figure, axis = panel("weight by frequency", 4.6, 2.8)
    jitter = np.random.default_rng(0).uniform(0.9, 1.1, len(frequency))
    for number in np.unique(depth):
        mine = depth == number
        x, colour = frequency[mine] * jitter[mine], COLOURS[int(number) % len(COLOURS)]
        axis.plot(x, weight[mine], "o", color=colour, ms=3, mew=0, alpha=0.5, label=f"depth {number:.0f}")
    axis.set(xscale="log", yscale="log", xlabel="training groups with the pattern", ylabel="weight")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("{x:g}")
    axis.axhline(1, color=MUTED, lw=0.8)
    axis.legend(markerscale=2, handletextpad=0.2, ncols=2)
    return figure


def labels_of(x: Tensor) -> np.ndarray:
    """Return the label of each node `[n]`: the column of its largest feature, or its feature if there is one column."""
    return (x[:, 0] if x.size(1) == 1 else x.argmax(1)).long().cpu().numpy()


def _draw(axis: Any, pattern: Pattern, names: Sequence[str] | None) -> None:
    labels, place = labels_of(pattern.x), _places(pattern)
    for source, target in pattern.edge_index.T.tolist():
        axis.plot(*place[[source, target]].T, color=MUTED, lw=0.8, zorder=1)
    size = 4 if len(labels) > READABLE else 11 if names is None else 7
    text = {"ha": "center", "fontsize": 6.5}
    for number, (label, at) in enumerate(zip(labels, place, strict=True)):
        axis.plot(*at, "o", color=COLOURS[label % len(COLOURS)], ms=size, mec=INK, mew=1.5 * (number == 0))
        if size > 4 and names is None:
            axis.annotate(str(label), at, color="white", va="center", **text)
        elif size > 4 and names is not None:
            axis.annotate(names[label][:_TEXT], at, (0, -5), textcoords="offset points", va="top", **text)
    first, second = f"weight {pattern.weight:.2f}", f"in {pattern.frequency} groups"
    if pattern.share:
        first, second = f"{100 * pattern.share:.1f} % of the cosine", f"{pattern.nodes[0]} and {pattern.nodes[1]} times"
    axis.set_title(f"{first}\n{second}, depth {pattern.depth}", fontsize=7, fontweight="normal", loc="center")
    low, high = place.min(0), place.max(0)
    middle, reach = (low + high) / 2, max((high - low).max() / 2, 0.1) * 1.3
    axis.set(xlim=middle[0] + [-reach, reach], ylim=middle[1] + [-reach, reach], aspect="equal")


def _places(pattern: Pattern) -> np.ndarray:
    """Return the position of each node `[n, 2]`."""
    import networkx

    network = networkx.Graph(pattern.edge_index.T.tolist())
    network.add_node(0)
    layout = networkx.kamada_kawai_layout(network)
    return np.array([layout[node] for node in range(len(layout))])
