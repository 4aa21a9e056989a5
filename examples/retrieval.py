"""Find graphs like a given one, without labels: python examples/retrieval.py [--mirror FOLDER]

Trains on unlabelled graphs, embeds them, and draws the nearest neighbours of three queries into retrieval.png:
molecules of MUTAG, from MUTAG.zip in FOLDER, or the embedded data set. Prints how many of all
graphs' five nearest neighbours share their class: expect 80 to 84 % (MUTAG), 75 to 80 % (embedded set; chance is 25 %,
an untrained encoder reaches 60 %).
"""

import argparse

import matplotlib
import networkx as nx
import numpy as np
from scipy.spatial.distance import pdist
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch_geometric.utils import to_networkx

from graphcl import GraphCL, load_dataset

matplotlib.use("Agg")
import matplotlib.pyplot as plt

parser = argparse.ArgumentParser()
parser.add_argument("--mirror", default=None)
parser.add_argument("--data-root", default="datasets")
parser.add_argument("--queries", type=int, nargs="*")
parser.add_argument("--out", default="retrieval.png")
arguments = parser.parse_args()
molecules = arguments.mirror is not None

dataset = load_dataset("MUTAG" if molecules else "synthetic", arguments.data_root, arguments.mirror)
graphs = [graph.clone() for graph in dataset]
for graph in graphs:
    del graph.y
h = make_pipeline(GraphCL(loss="adnce", epochs=20), StandardScaler()).fit_transform(graphs)
distance, index = NearestNeighbors(n_neighbors=6, metric="cosine").fit(h).kneighbors(h)
classes = dataset.y.numpy()[index]  # first use of labels
print(f"{100 * (classes[:, 1:] == classes[:, :1]).mean():.1f} % of the five nearest neighbours share the graph's class")

# Okabe and Ito's palette, which colour-blind readers can tell apart.
INK, PALE, QUERY = "#3A3F47", "#C9CDD2", "#EEF3F8"
ATOMS = ["", "N", "O", "F", "I", "Cl", "Br"]  # carbon has no letter, as in chemical drawings
ATOM_COLOURS = [INK, "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
KIND_COLOURS = ["#0072B2", "#56B4E9", "#D55E00", "#E69F00", PALE, PALE, PALE]


def draw(graph, axis):
    """Draw a graph and return the largest coordinate."""
    network, kinds = to_networkx(graph, to_undirected=True), graph.x.argmax(dim=1).tolist()
    # Some starts end with a twisted ring; keep the layout with the largest distance between atoms.
    starts = [nx.random_layout(network, seed=seed) for seed in range(8)] if molecules else [None]
    places = [nx.kamada_kawai_layout(network, pos=start) for start in starts]
    points = max(
        (np.stack([place[node] for node in network]) for place in places), key=lambda points: pdist(points).min()
    )
    points = points @ np.linalg.svd(points - points.mean(0))[2].T  # longer side horizontal
    points /= np.median([np.linalg.norm(points[u] - points[v]) for u, v in network.edges])  # median bond of length 1
    place = dict(enumerate(points - (points.max(0) + points.min(0)) / 2))
    faint = [(u, v) for u, v in network.edges if not molecules and max(kinds[u], kinds[v]) > 3]
    width = 1.6 if molecules else 0.9
    nx.draw_networkx_edges(network, place, faint, edge_color=PALE, width=0.4, ax=axis)
    nx.draw_networkx_edges(network, place, network.edges - set(faint), edge_color=INK, width=width, ax=axis)
    colours, sizes = (ATOM_COLOURS, [4] + 6 * [120]) if molecules else (KIND_COLOURS, 4 * [36] + 3 * [8])
    look = {"node_color": [colours[kind] for kind in kinds], "node_size": [sizes[kind] for kind in kinds]}
    nx.draw_networkx_nodes(network, place, edgecolors="none", ax=axis, **look)
    text = {node: ATOMS[kind] for node, kind in enumerate(kinds) if molecules}
    nx.draw_networkx_labels(network, place, text, font_size=7, font_color="white", font_weight="bold", ax=axis)
    return np.abs(list(place.values())).max()


queries = arguments.queries or ([20, 100, 150] if molecules else [1, 12, 7])
figure, axes = plt.subplots(len(queries), 6, figsize=(13, 2.3 * len(queries)), squeeze=False)
for row, query in zip(axes, queries, strict=True):
    reach = 1.15 * max(draw(graphs[each], axis) for each, axis in zip(index[query], row, strict=True))
    for rank, axis in enumerate(row):
        same = "same class" if classes[query, rank] == classes[query, 0] else "another class"
        axis.set_title("query" if rank == 0 else f"{1 - distance[query, rank]:.2f}, {same}", fontsize=9, color=INK)
        axis.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", facecolor=QUERY if rank == 0 else "white")
        axis.tick_params(left=False, bottom=False)
        axis.spines[:].set_visible(False)
caption = "nearest by cosine similarity of the embeddings; classes were not used"
figure.text(0.5, 0.012, caption, ha="center", fontsize=9, color=INK)
figure.tight_layout(rect=(0, 0.03, 1, 1))
figure.savefig(arguments.out, dpi=120)
