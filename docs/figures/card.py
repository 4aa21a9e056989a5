"""The picture that links to the documentation show: python docs/figures/card.py writes card.png to this folder."""

from pathlib import Path

import networkx as nx
from matplotlib.figure import Figure

from graphcl.report.style import COLOURS, INK, MUTED, PAPER, style


@style()
def main():
    figure = Figure(figsize=(12, 6.3), facecolor=PAPER)
    figure.text(0.06, 0.72, "graphcl", fontsize=76, weight="bold", color=INK)
    figure.text(0.06, 0.6, "Graph contrastive learning for PyTorch Geometric", fontsize=29, color=INK)
    about = ("batched augmentations,", "exact losses, and beside", "every score what rows", "without training reach")
    for line, text in enumerate(about):
        figure.text(0.06, 0.36 - 0.075 * line, text, fontsize=22, color=MUTED)
    graph = nx.frucht_graph()
    layout = nx.kamada_kawai_layout(graph)
    for place, colour, dropped in ((0.55, COLOURS[0], (3, 9)), (0.77, COLOURS[1], (1, 6))):
        axis = figure.add_axes((place, 0.02, 0.2, 0.5))
        axis.axis("off")
        nx.draw_networkx(
            graph, layout, ax=axis, node_color="#dddddd", edge_color="#dddddd", with_labels=False, node_size=130
        )
        view = graph.subgraph(set(graph) - set(dropped))
        nx.draw_networkx(
            view, layout, ax=axis, node_color=colour, edge_color=colour, with_labels=False, node_size=130, width=2
        )
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    main()
