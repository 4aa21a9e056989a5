"""Test the conversion of networkx graphs; the reference is PyG's own converter."""

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.utils import from_networkx

from graphcl import errors
from graphcl.datasets import load_dataset
from graphcl.loaders.loader import make_loader


def with_x(graph, value=lambda node: [1.0, 0.0]):
    nx.set_node_attributes(graph, {node: value(node) for node in graph}, "x")
    return graph


@settings(deadline=None, max_examples=15)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 8), st.floats(0, 1), st.booleans()), min_size=2, max_size=4),
    kind=st.sampled_from([nx.Graph, nx.MultiGraph]),
    columns=st.integers(1, 2),
)
def test_nodes_and_edges_as_in_pyg(sizes, kind, columns):
    graphs = [nx.gnp_random_graph(n, p, seed=n, directed=directed) for n, p, directed in sizes]
    graphs = [graph if graph.is_directed() else kind(graph) for graph in graphs]
    for graph in graphs:
        for low, high, values in graph.edges(data=True):
            values["edge_attr"] = [low + high, low * high][:columns]
    expected = [from_networkx(graph) for graph in graphs]
    for own, graph in zip(load_dataset(graphs), expected, strict=True):
        assert own.num_nodes == graph.num_nodes  # including isolated nodes
        assert torch.equal(own.edge_index, graph.edge_index)
        if any(graph.num_edges for graph in expected):
            attributes = graph.edge_attr if graph.num_edges else torch.empty(0, columns)
            assert torch.equal(own.edge_attr, attributes.to(own.edge_attr.dtype))


def test_features_labels_and_order():
    first, second = nx.Graph([("b", "a")], y=3), changed(y=1)
    first.add_node("alone")
    dataset = load_dataset([with_x(first, lambda node: [node == "b", node == "a"]), with_x(second)])
    assert dataset[0].x.tolist() == [[1, 0], [0, 1], [0, 0]]
    assert (dataset.y.tolist(), dataset.classes.tolist(), dataset.features) == ([1, 0], [1, 3], "labels")
    assert "x" in first.nodes["a"]  # the input is not modified


def test_kinds_of_numbers():
    for kind in (float, np.float32, lambda v: np.array([v]), lambda v: torch.tensor([float(v)])):
        graphs = [with_x(nx.path_graph(3), kind), with_x(nx.MultiGraph([(0, 1), (0, 1)]), kind)]
        dataset = load_dataset(graphs)
        assert dataset[0].x.tolist() == [[0.0], [1.0], [2.0]]
        assert [graph.num_edges for graph in dataset] == [4, 4]


def test_id_is_kept_and_ignored_attributes_are_named():
    for ids, kept in (("ab", ["a", "b"]), (np.array([7, 9]), [7, 9])):
        batch = next(iter(make_loader(load_dataset([changed(id=each) for each in ids]), 2)))
        assert (batch.id if isinstance(batch.id, list) else batch.id.tolist()) == kept
    graphs = [changed(name="ring"), changed(y_true=1)]
    graphs[1].edges[0, 1]["weight"] = 2.0
    errors._SHOWN.clear()
    with pytest.warns(UserWarning, match="ignored") as caught:
        load_dataset(graphs)
    says = "own: ignored edge attribute 'weight', graph attribute 'name', graph attribute 'y_true';"
    assert [says in str(warning) for warning in caught] == [True]


def changed(nodes=None, **graph):
    result = nx.path_graph(3)
    if nodes:
        nx.set_node_attributes(result, {0: {"symbol": nodes, "charge": 0}})
    result.graph.update(graph)
    return result


def test_wrong_graphs(refused):
    for graphs, *words in (
        ([nx.path_graph(2), "graph"], "graph 1 must be a networkx graph, got str"),
        ([changed("C"), changed()], "nodes of graph 0 have 'charge' and 'symbol', but no 'x'; set 'x'"),
        ([with_x(nx.path_graph(2), str), nx.path_graph(2)], "nodes of graph 0: 'x' must be numbers"),
        ([with_x(nx.path_graph(3), range), nx.path_graph(2)], "nodes of graph 0: 'x' must be numbers, the same count"),
        ([changed(y={"a": 1})], "'y' of graph 0 must be numbers", "{'a': 1}"),
        ([nx.Graph([(0, 1, {"edge_attr": 1}), (1, 2)])] * 2, "edges of graph 0: 1 of 2 have no 'edge_attr'"),
        ([nx.Graph([(0, 1, {"edge_attr": "C"})])] * 2, "edges of graph 0: 'edge_attr' must be numbers"),
    ):
        refused(graphs, *words)
