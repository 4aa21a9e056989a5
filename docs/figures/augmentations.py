"""A graph and its views: python docs/figures/augmentations.py --mirror FOLDER writes augmentations.svg.

`--dataset`, `--graph`, `--ratio` and `--seed` draw another graph or other views.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np
import torch
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from graphcl import load_dataset
from graphcl.registry import augmentations
from graphcl.report.style import COLOURS, INK, MUTED, PAPER, panels, style, to_svg

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


@dataclass(frozen=True)
class Change:
    """Difference between a graph and an augmented view of it; nodes are numbered as in the original graph."""

    nodes: list[int]
    """Nodes of the view."""
    gone: list[int]
    """Nodes of the original that the view lacks."""
    masked: list[int]
    """Nodes of the view whose features differ from the original's."""
    kept: list
    removed: list
    added: list

    @property
    def size(self):
        """The numbers of nodes and edges of the view, as text."""
        return f"{len(self.nodes)} nodes, {len(self.kept) + len(self.added)} edges"

    @property
    def difference(self):
        """The difference from the original graph, as text."""
        gone = [f"{len(each)} {name}" for each, name in ((self.gone, "nodes"), (self.removed, "edges")) if each]
        parts = [f"{' and '.join(gone)} gone"] if gone else []
        parts += [f"{len(self.added)} edges new"] if self.added else []
        parts += [f"{len(self.masked)} nodes masked"] if self.masked else []
        return ", ".join(parts) or "unchanged"


def change(graph, augmentation, generator):
    """Augment a graph with `x` and return the difference between the graph and the view."""
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
def draw(graph, title, views, seed, dataset):
    """Return the figure of a graph and its view under each of `views`, each with its own generator."""
    columns = min(1 + len(views), _COLUMNS)
    figure, axes = panels(1 + len(views), 2.5, 2.75, columns)
    positions, kinds = layout(graph), node_kinds(graph)
    original = Change(list(range(len(positions))), [], [], sorted(_pairs(graph.edge_index.tolist())), [], [])
    _draw(axes[0], positions, kinds, original, dataset)
    _title(axes[0], title, original.size)
    seen = []
    for axis, (label, augmentation) in zip(axes[1:], views.items(), strict=True):
        seen.append(change(graph, augmentation, torch.Generator().manual_seed(seed)))
        _draw(axis, positions, kinds, seen[-1], dataset)
        _title(axis, label, f"{seen[-1].size}\n{seen[-1].difference}")
    marks = _legend(set() if kinds is None else set(kinds.tolist()), seen, dataset)
    figure.legend(handles=marks, loc="outside lower center", ncols=min(len(marks), 2 * columns), fontsize=9)
    return figure


def layout(graph):
    """Return node positions `[N, 2]` from the Kamada-Kawai layout; from a spring layout if the graph is large."""
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


def node_kinds(graph):
    """Return the node labels `[N]` if `x` is one-hot with several columns, else None."""
    x = graph.x if graph.x.dim() == 2 else graph.x[:, None]
    one_hot = bool(((x == 0) | (x == 1)).all()) and bool((x.sum(dim=1) == 1).all())
    return x.argmax(dim=1).numpy() if one_hot and x.size(1) > 1 else None


def _title(axis, name, details):
    axis.text(0, 1.2, name, transform=axis.transAxes, weight="bold", fontsize=9.5, va="bottom")
    axis.text(0, 1.18, details, transform=axis.transAxes, fontsize=8, va="top")


def _draw(axis, positions, kinds, found, dataset):
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


def _dot_size(positions):
    """Return the dot area in square points at which few dots overlap on a drawing two inches wide."""
    if len(positions) == 1:
        return 110.0
    extent = np.ptp(positions, axis=0).max() or 1.0
    distances = np.linalg.norm(positions[:, None] - positions, axis=2) + 9 * extent * np.eye(len(positions))
    apart = 150 * np.percentile(distances.min(axis=1), 20) / extent
    return float(np.clip(0.85 * apart, 2.2, 10.5) ** 2)


def _kind_name(kind, dataset):
    names = _NAMES.get(dataset, ())
    return names[kind] if kind < len(names) else str(kind)


def _legend(kinds, found, dataset):
    """Return legend entries for the changes and the node labels that occur, unless there are too many labels."""
    dot = {"marker": "o", "ls": "", "ms": 8}
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


def _pairs(edge_index):
    """Return the undirected edges without self-loops as pairs `(u, v)`, u < v."""
    return {(min(u, v), max(u, v)) for u, v in zip(*edge_index, strict=True) if u != v}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mirror")
    parser.add_argument("--data-root", default="datasets")
    parser.add_argument("--dataset", default="MUTAG")
    parser.add_argument("--graph", type=int, default=2)
    parser.add_argument("--ratio", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    dataset = load_dataset(given.dataset, given.data_root, given.mirror)
    names = ("node_drop", "subgraph", "edge_perturb", "attribute_mask")
    views = {name: augmentations[name](ratio=given.ratio) for name in names}
    figure = draw(dataset[given.graph], f"{dataset.name} {given.graph}", views, given.seed, dataset.name)
    Path(__file__).with_suffix(".svg").write_text(to_svg(figure))


if __name__ == "__main__":
    main()
