"""Test the numbers of graphs by WL colours against isomorphism."""

import networkx as nx
import numpy as np

from graphcl.graphs.wl import graph_numbers, numbered


def test_graphs_of_the_same_number_are_the_isomorphic_ones():
    rng = np.random.default_rng(0)
    graphs = [nx.gnp_random_graph(int(rng.integers(2, 6)), 0.5, seed=seed) for seed in range(120)]
    for graph in graphs:
        nx.set_node_attributes(graph, {node: int(rng.integers(2)) for node in graph}, "kind")
    labels = np.concatenate([[graph.nodes[node]["kind"] for node in graph] for graph in graphs])
    of_graph = np.repeat(np.arange(120), [*map(len, graphs)])
    first = np.cumsum([0, *map(len, graphs)])
    pairs = [(first[i] + a, first[i] + b) for i, graph in enumerate(graphs) for a, b in graph.edges()]
    edges = np.array(pairs + [pair[::-1] for pair in pairs]).T
    *_, colours = numbered(labels, edges, 5)
    numbers = graph_numbers(colours, of_graph)
    for i in range(120):
        for j in range(i):
            same = nx.is_isomorphic(graphs[i], graphs[j], node_match=lambda a, b: a["kind"] == b["kind"])
            assert same == (numbers[i] == numbers[j]), (i, j)
