"""Draw graphs and their augmented views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from graphcl.augment import Augmentation
from graphcl.report.style import COLOURS, INK, MUTED, PAPER, panels, style

ADDED = COLOURS[1]
_NAMES = {"MUTAG": ("C", "N", "O", "F", "I", "Cl", "Br")}
_FILLS = ("#cccccc", "#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#999999")
"""Fill colours of node labels: light enough for a letter on top, and distinct from the colour of added edges."""
_LETTERS = 60.0
"""Dot area in square points above which a letter fits into the dot."""
_COLUMNS = 5
"""Maximum number of drawings in a row."""
_SPRINGS = 150
"""Number of nodes above which a spring layout is used, as the Kamada-Kawai layout would take seconds."""
Pair = tuple[int, int]


@dataclass(frozen=True)
class Change:
    """Difference between a graph and an augmented view of it; nodes are numbered as in the original graph."""

    nodes: list[int]
    """Nodes of the view."""
    gone: list[int]
    """Nodes of the original that the view lacks."""
    masked: list[int]
    """Nodes of the view whose features differ from the original's."""
    kept: list[Pair]
    removed: list[Pair]
    added: list[Pair]

    @property
    def size(self) -> str:
        """The numbers of nodes and edges of the view, as text."""
        return f"{len(self.nodes)} nodes, {len(self.kept) + len(self.added)} edges"

    @property
    def difference(self) -> str:
        """The difference from the original graph, as text."""
        gone = [f"{len(each)} {name}" for each, name in ((self.gone, "nodes"), (self.removed, "edges")) if each]
        parts = [f"{' and '.join(gone)} gone"] if gone else []
        parts += [f"{len(self.added)} edges new"] if self.added else []
        parts += [f"{len(self.masked)} nodes masked"] if self.masked else []
        return ", ".join(parts) or "unchanged"

    def __str__(self) -> str:
        return f"{self.size}; {self.difference}"


def change(graph: Data, augmentation: Augmentation, generator: torch.Generator | None = None) -> Change:
    """Augment a graph with `x` and return the difference between the graph and the view.

    Example:
        >>> from graphcl import NodeDrop
        >>> path = Data(x=torch.ones(4, 1), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> seen = change(path, NodeDrop(0.25), torch.Generator().manual_seed(0))
        >>> len(seen.gone), len(seen.nodes)
        (1, 3)
    """
    numbered = graph.clone()
    numbered.node_number = torch.arange(graph.x.size(0))  # shows which nodes the view keeps
    view = augmentation(numbered, generator)
    nodes = view.node_number.tolist()
    before, after = _pairs(graph.edge_index.tolist()), _pairs(view.node_number[view.edge_index].tolist())
    other = (view.x != graph.x[view.node_number]).flatten(1).any(dim=1)
    return Change(
        nodes,
        sorted(set(range(graph.x.size(0))) - set(nodes)),
        [node for node, masked in zip(nodes, other.tolist(), strict=True) if masked],
        sorted(before & after),
        sorted(before - after),
        sorted(after - before),
    )


@style()
def augmentations(
    graphs: Mapping[str, Data], views: Mapping[str, Augmentation], seed: int = 0, dataset: str = ""
) -> tuple[Any, list[tuple[str, str, Change]]]:
    """Draw each graph and its view under each augmentation, and return the figure and the differences.

    Each graph (title -> graph with `x`) has a row: first the original, then its views, with the nodes at the same
    positions. Each view draws from its own generator. The name of the data set gives node labels their names.

    Returns:
        The figure, and a tuple for each view: title of the graph, name of the augmentation, difference.
    """
    width = 1 + len(views)
    columns = min(width, _COLUMNS)
    lines = -(-width // columns)
    figure, axes = panels(len(graphs) * lines * columns, 2.5, 2.75, columns)
    seen, kinds_seen = [], set()
    for row, (name, graph) in enumerate(graphs.items()):
        positions, kinds = layout(graph), node_kinds(graph)
        kinds_seen |= set() if kinds is None else set(kinds.tolist())
        mine = axes[row * lines * columns :][: lines * columns]
        edges = sorted(_pairs(graph.edge_index.tolist()))
        original = Change(list(range(len(positions))), [], [], edges, [], [])
        _draw(mine[0], positions, kinds, original, dataset)
        _title(mine[0], name, original.size)
        for axis, (label, augmentation) in zip(mine[1:width], views.items(), strict=True):
            found = change(graph, augmentation, torch.Generator().manual_seed(seed))
            _draw(axis, positions, kinds, found, dataset)
            _title(axis, label, f"{found.size}\n{found.difference}")
            seen.append((name, label, found))
        for axis in mine[width:]:
            axis.remove()
    if marks := _legend(kinds_seen, [found for *_, found in seen], dataset):
        figure.legend(handles=marks, loc="outside lower center", ncols=min(len(marks), 2 * columns), fontsize=9)
    return figure, seen


def layout(graph: Data) -> np.ndarray:
    """Return node positions `[N, 2]` from the Kamada-Kawai layout; from a spring layout if the graph is large."""
    import networkx as nx

    network = nx.empty_graph(graph.x.size(0))
    network.add_edges_from(sorted(_pairs(graph.edge_index.tolist())))
    if len(network) > _SPRINGS:
        positions = nx.spring_layout(network, seed=0, iterations=60)
    else:
        distances = dict(nx.all_pairs_shortest_path_length(network))
        # the layout needs finite distances, so nodes of different components get the longest distance plus one
        far = 1 + max(max(row.values()) for row in distances.values())
        every = {u: {v: distances[u].get(v, far) for v in network} for u in network}
        positions = nx.kamada_kawai_layout(network, dist=every)
    return np.array([positions[node] for node in range(len(network))])


def node_kinds(graph: Data) -> np.ndarray | None:
    """Return the node labels `[N]` if `x` is one-hot with several columns, else None."""
    x = graph.x if graph.x.dim() == 2 else graph.x[:, None]
    one_hot = bool(((x == 0) | (x == 1)).all()) and bool((x.sum(dim=1) == 1).all())
    return x.argmax(dim=1).numpy() if one_hot and x.size(1) > 1 else None


def _title(axis: Any, name: str, details: str) -> None:
    axis.text(0, 1.2, name, transform=axis.transAxes, weight="bold", fontsize=9.5, va="bottom")
    axis.text(0, 1.18, details, transform=axis.transAxes, fontsize=8, va="top")


def _draw(axis: Any, positions: np.ndarray, kinds: np.ndarray | None, found: Change, dataset: str) -> None:
    from matplotlib.collections import LineCollection

    size = _dot_size(positions)
    fine = len(found.kept) + len(found.removed) > 60
    lines = ((found.removed, MUTED, ":", 0.7), (found.kept, INK, "-", 0.35 if fine else 0.75))
    for pairs, colour, line, alpha in (*lines, (found.added, ADDED, "--", 1.0)):
        ends = [(positions[u], positions[v]) for u, v in pairs]
        width = (0.7 if fine else 1.4) * (1.4 if colour == ADDED else 1)
        axis.add_collection(LineCollection(ends, colors=colour, linestyles=line, linewidths=width, alpha=alpha))
    rim = 0.8 if size > _LETTERS else 0.4
    axis.scatter(
        *positions[found.gone].T, s=size, facecolors=PAPER, edgecolors=MUTED, linewidths=rim, alpha=0.6, zorder=3
    )
    masked = set(found.masked)
    there = [node for node in found.nodes if node not in masked]
    fill = [_FILLS[0 if kinds is None else kinds[node] % len(_FILLS)] for node in there]
    axis.scatter(*positions[there].T, s=size, c=fill, edgecolors=INK, linewidths=rim, zorder=3)
    axis.scatter(*positions[found.masked].T, s=size, facecolors=PAPER, edgecolors=ADDED, linewidths=2.2 * rim, zorder=4)
    if size > _LETTERS:
        letters = dict.fromkeys(found.masked, "?")
        letters |= {} if kinds is None else {node: _kind_name(int(kinds[node]), dataset) for node in there}
        for node, text in letters.items():
            axis.text(*positions[node], text, ha="center", va="center_baseline", fontsize=7, zorder=5)
    axis.margins(0.14)
    axis.set_aspect("equal", adjustable="datalim")
    axis.set_axis_off()


def _dot_size(positions: np.ndarray) -> float:
    """Return the dot area in square points at which few dots overlap on a drawing two inches wide."""
    if len(positions) == 1:
        return 110.0
    extent = np.ptp(positions, axis=0).max() or 1.0
    distances = np.linalg.norm(positions[:, None] - positions, axis=2) + 9 * extent * np.eye(len(positions))
    apart = 150 * np.percentile(distances.min(axis=1), 20) / extent
    return float(np.clip(0.85 * apart, 2.2, 10.5) ** 2)


def _kind_name(kind: int, dataset: str) -> str:
    names = _NAMES.get(dataset, ())
    return names[kind] if kind < len(names) else str(kind)


def _legend(kinds: set[int], found: list[Change], dataset: str) -> list[Any]:
    """Return legend entries for the changes and the node labels that occur, unless there are too many labels."""
    from matplotlib.lines import Line2D

    dot: dict[str, Any] = {"marker": "o", "ls": "", "ms": 8}
    prefix = "" if dataset in _NAMES else "label "
    marks = [
        Line2D([], [], **dot, mec=INK, mew=0.8, mfc=_FILLS[kind], label=f"{prefix}{_kind_name(kind, dataset)}")
        for kind in (sorted(kinds) if max(kinds, default=0) < len(_FILLS) else ())
    ]
    if any(each.gone or each.removed for each in found):
        marks.append(Line2D([], [], color=MUTED, ls=":", alpha=0.7, label="gone", marker="o", mfc=PAPER, mec=MUTED))
    if any(each.added for each in found):
        marks.append(Line2D([], [], color=ADDED, ls="--", lw=2, label="new edge"))
    if any(each.masked for each in found):
        marks.append(Line2D([], [], **dot, mfc=PAPER, mec=ADDED, mew=2, label="features replaced"))
    return marks


def _pairs(edge_index: list[list[int]]) -> set[Pair]:
    """Return the undirected edges without self-loops as pairs `(u, v)`, u < v."""
    return {(min(u, v), max(u, v)) for u, v in zip(*edge_index, strict=True) if u != v}
