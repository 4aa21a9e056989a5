"""Draw one molecule of MUTAG under each augmentation: python examples/draw_augmentations.py --mirror FOLDER

Needs the `viz` extra and MUTAG (from the public server, or MUTAG.zip in FOLDER). Writes augmentations.png; prints how
many nodes each view has: all 13 where only edges or features change, 11 where floor(0.2 * 13) = 2 are removed.
"""

import argparse

import matplotlib
import torch

from graphcl import AttributeMask, EdgePerturb, Identity, NodeDrop, Subgraph, load_dataset

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import networkx as nx
from torch_geometric.utils import to_networkx

ATOMS = ["C", "N", "O", "F", "I", "Cl", "Br"]
# Okabe and Ito's palette, which colour-blind readers can tell apart; a masked atom is none of them.
COLOURS = ["#CCCCCC", "#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#999999"]
REMOVED, ADDED, MASKED = "#AAAAAA", "#D55E00", "#FFFFFF"

parser = argparse.ArgumentParser()
parser.add_argument("--mirror", default=None)
parser.add_argument("--graph", type=int, default=2)
parser.add_argument("--out", default="augmentations.png")
arguments = parser.parse_args()

molecule = load_dataset("MUTAG", mirror=arguments.mirror)[arguments.graph]
molecule.atom = molecule.x.argmax(dim=1)
molecule.name = torch.arange(molecule.num_nodes)  # augmentations carry it, so each view's nodes are recognised
original = to_networkx(molecule, to_undirected=True)
place = nx.kamada_kawai_layout(original)
generator = torch.Generator().manual_seed(0)

views = {
    "original": Identity(),
    "node drop": NodeDrop(0.2),
    "subgraph": Subgraph(0.2),
    "edge perturbation": EdgePerturb(0.2),
    "attribute masking": AttributeMask(0.2, fill="zero"),
}
figure, axes = plt.subplots(1, len(views), figsize=(4 * len(views), 4.4))
for axis, (title, augmentation) in zip(axes, views.items(), strict=True):
    view = augmentation(molecule, generator)
    nodes = view.name.tolist()
    edges = {tuple(sorted((nodes[u], nodes[v]))) for u, v in view.edge_index.T.tolist()}
    before = {tuple(sorted(edge)) for edge in original.edges}
    masked = {node for node, row in zip(nodes, view.x, strict=True) if row.sum() == 0}

    gone_nodes, kept_edges = set(original) - set(nodes), before & edges
    nx.draw_networkx_edges(original, place, before - edges, style="dotted", edge_color=REMOVED, width=2, ax=axis)
    nx.draw_networkx_edges(original, place, kept_edges, edge_color="#444444", width=2, ax=axis)
    nx.draw_networkx_edges(nx.Graph(list(edges - before)), place, edge_color=ADDED, width=2, ax=axis)
    nx.draw_networkx_nodes(original, place, gone_nodes, node_color="#FFFFFF", edgecolors=REMOVED, ax=axis)
    fill = [MASKED if node in masked else COLOURS[molecule.atom[node]] for node in nodes]
    nx.draw_networkx_nodes(original, place, nodes, node_color=fill, edgecolors="#444444", ax=axis)
    labels = {node: "?" if node in masked else ATOMS[molecule.atom[node]] for node in nodes}
    nx.draw_networkx_labels(original, place, labels, font_size=9, ax=axis)
    axis.set_title(f"{title}\n{len(nodes)} atoms, {len(edges)} bonds", fontsize=12)
    axis.set_axis_off()
    print(f"{title:20} {len(nodes)} nodes, {len(edges)} edges, {len(masked)} masked")
figure.text(0.5, 0.02, "dotted grey: removed    orange line: added    ?: features masked", ha="center", fontsize=12)
figure.tight_layout(rect=(0, 0.06, 1, 1))
figure.savefig(arguments.out, dpi=110)
