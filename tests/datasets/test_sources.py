"""Test the kinds of sources besides PyG's own, and a kind that the user registers."""

import json
import os

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import sparse
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.transforms import ToSparseTensor
from torch_geometric.utils import from_networkx, from_scipy_sparse_matrix

from graphcl import GraphCL
from graphcl.datasets import load_dataset, write_on_disk
from graphcl.errors import InputWarning
from graphcl.registry import import_files, sources
from tests.datasets.graphs import Held, Saved, one_line

WEIGHTS = np.array([[0, 0.5, 0], [2.0, 0, 0], [0, 0, 1]])
PAIR = torch.tensor([[0, 1], [1, 0]])
RING = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]])


def edges(data):
    return {tuple(edge) for edge in data.edge_index.t().tolist()}


def named(number, **more):
    """Return a path whose first and last nodes were added first, with attributes of nodes, edges and the graph."""
    graph = nx.Graph(y=number % 2, **more)
    for node in range(3 + number):
        graph.add_node(f"n{node}", charge=float(node), mass=node + number)
    graph.add_edges_from((f"n{node}", f"n{node + 1}", {"weight": 0.5 + node, "order": 1}) for node in range(2 + number))
    return graph


def test_settings_of_other_sources_are_warned_of(tmp_path):
    torch.save([Data(x=torch.ones(2, 1), edge_index=PAIR) for _ in range(3)], tmp_path / "own.pt")
    for given, line in (
        ({"mirror": "there"}, "`mirror` there has no effect on this source, which is never downloaded"),
        ({"tu_features": "both"}, "`tu_features` both has no effect on this source, which is no TU set"),
    ):
        for source in (str(tmp_path / "own.pt"), load_dataset("synthetic")):
            with pytest.warns(InputWarning) as warned:
                load_dataset(source, **given)
            assert [str(each.message) for each in warned] == [line]


def test_matrices_are_adjacencies():
    made = sparse.coo_array((np.array([0.5, 1.0, 1.0, 0.0, 1.0]), ([0, 1, 1, 0, 2], [1, 0, 0, 2, 2])), shape=(3, 3))
    expected, weight = from_scipy_sparse_matrix(sparse.coo_matrix(WEIGHTS))
    for matrix in (WEIGHTS, np.asmatrix(WEIGHTS), sparse.csr_matrix(WEIGHTS), sparse.dok_array(WEIGHTS), made):
        for source in (matrix, [matrix], (each for each in [matrix])):
            (found,) = load_dataset(source)
            assert found.edge_index.equal(expected), type(matrix)
            assert (found.edge_weight.dtype, found.edge_weight.tolist()) == (torch.float32, weight.tolist())
            assert found.num_nodes == 3
    for source in ([RING, RING > 0], np.stack([RING, RING]), [RING, Data(edge_index=PAIR, num_nodes=2)]):
        found = load_dataset(source)
        assert edges(found[0]) == {(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)}
        assert "edge_weight" not in found[0]
    weights = load_dataset([RING, WEIGHTS])
    assert [graph.edge_weight.tolist() for graph in weights] == [[1] * 6, [0.5, 2, 1]]
    assert GraphCL(epochs=1, batch_size=2).fit([RING] * 4).transform([RING]).shape == (1, 96)
    for wrong in (RING[:2], RING.astype(complex), sparse.csr_matrix(RING[:2])):
        one_line(lambda: load_dataset([RING, wrong]), "graph 1 must be a square adjacency matrix of real")  # noqa: B023


def test_sparse_adjacencies_of_pyg(tmp_path):
    graphs = [Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=5, y=i % 2) for i in range(3)]
    with_adjacency = [ToSparseTensor(layout=torch.sparse_coo)(each.clone()) for each in graphs]
    with_values = []
    for graph in graphs:
        given = Data(**graph.to_dict() | {"edge_weight": torch.tensor([0.5, 1.0, 2.0])})
        with_values.append(ToSparseTensor(attr="edge_weight", layout=torch.sparse_csr)(given))
    InMemoryDataset.save(with_adjacency, str(tmp_path / "adj.pt"))
    for source in (with_adjacency, with_values, Held(with_adjacency), tmp_path / "adj.pt", Saved(tmp_path / "adj.pt")):
        for found in load_dataset(source):
            assert edges(found) == {(0, 1), (1, 2), (2, 0)}
            assert (found.num_nodes, "adj_t" in found) == (5, False)
            if source is with_values:
                own = dict(zip(map(tuple, found.edge_index.t().tolist()), found.edge_weight.tolist(), strict=True))
                assert own == {(0, 1): 0.5, (1, 2): 1, (2, 0): 2}


def test_igraph():
    igraph = pytest.importorskip("igraph")
    graph = igraph.Graph([(0, 1), (1, 2)], directed=False)
    graph.vs["x"], graph.vs["name"], graph["y"] = [[1.0], [2.0], [3.0]], list("abc"), "a"
    graph.es["weight"] = [0.5, 2.0]
    for source in (graph, [graph]):
        (found,) = load_dataset(source, edge_weight="weight")
        assert (found.x.flatten().tolist(), edges(found)) == ([1, 2, 3], {(0, 1), (1, 0), (1, 2), (2, 1)})
        assert found.edge_weight.tolist() == [0.5, 0.5, 2, 2]
    assert load_dataset([graph]).classes.tolist() == ["a"]
    del graph.vs["x"]
    assert load_dataset(graph).features == "constant"


WRITE = {
    "graphml": nx.write_graphml,
    "gml": nx.write_gml,
    "json": lambda graph, path: path.write_text(json.dumps(nx.node_link_data(graph))),
}


@pytest.mark.parametrize("kind", WRITE)
def test_files_of_networkx(kind, tmp_path):
    chosen = {"node_attrs": ["mass", "charge"], "edge_attrs": "order", "edge_weight": "weight"}
    graphs = [named(0), named(1)]
    for name, graph in zip("ba", graphs, strict=True):
        WRITE[kind](graph, tmp_path / f"{name}.{kind}")
    expected = [from_networkx(graph, ["mass", "charge"], ["order"]) for graph in graphs]
    folder = load_dataset(tmp_path, **chosen)
    assert (folder.name, folder.ids.tolist(), folder.y.tolist()) == (tmp_path.name, ["a", "b"], [1, 0])
    packed = write_on_disk(tmp_path, tmp_path / "packed", **chosen)
    for found in (folder, packed, load_dataset(graphs[::-1], **chosen)):
        for graph, own in zip(found, expected[::-1], strict=True):
            assert graph.x.equal(own.x.float())
            assert graph.edge_index.equal(own.edge_index)
            assert graph.edge_weight.equal(own.weight.float())
            assert graph.edge_attr.tolist() == own.edge_attr.tolist()
    one = load_dataset(tmp_path / f"a.{kind}", **chosen)
    assert (one.name, one[0].x.tolist()) == ("a", folder[0].x.tolist())
    one_line(lambda: load_dataset(tmp_path), "nodes of graph 0 have 'charge' and 'mass', but no 'x'", "`node_attrs`")
    (tmp_path / f"c.{kind}").write_text("{}<x")
    one_line(lambda: load_dataset(tmp_path, **chosen), f"c.{kind}' is not ")


def test_defaults_of_graphml(tmp_path):
    graph = nx.Graph([("a", "b"), ("b", "c")], node_default={"charge": -1.0}, edge_default={"weight": 2.0})
    graph.nodes["b"]["charge"], graph.edges["a", "b"]["weight"] = 0.5, 0.25
    nx.write_graphml(graph, tmp_path / "a.graphml")
    found = load_dataset(tmp_path / "a.graphml", node_attrs="charge", edge_weight="weight")[0]
    assert (found.x.flatten().tolist(), found.edge_weight.tolist()) == ([-1, 0.5, -1], [0.25, 0.25, 2, 2])


def test_attributes_of_networkx(tmp_path):
    graph = named(0)
    everything = load_dataset([graph], node_attrs="all", edge_attrs="all")[0]
    assert everything.x.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert everything.edge_attr.tolist() == [[0.5, 1], [0.5, 1], [1.5, 1], [1.5, 1]]
    chosen = {"node_attrs": "all", "edge_attrs": "all", "edge_weight": "weight"}
    assert load_dataset([graph], **chosen)[0].edge_attr.tolist() == [[1]] * 4
    graph.add_node("far", mass=1)
    vectors = nx.Graph()
    vectors.add_node(0, u=np.array([1.0, 2.0]), v=3)
    assert load_dataset([vectors], node_attrs=["v", "u"])[0].x.tolist() == [[3, 1, 2]]
    for given, *words in (
        ({"node_attrs": "charge"}, "nodes of graph 0: 1 of 4 have no 'charge'"),
        ({"node_attrs": "mass", "edge_attrs": ["order", "length"]}, "edges of graph 0: 2 of 2 have no 'length'"),
    ):
        one_line(lambda: load_dataset([graph], **given), *words)  # noqa: B023, called at once
    one_line(lambda: load_dataset("synthetic", edge_weight="w"), "`edge_weight` 'w' is for networkx graphs")
    one_line(lambda: load_dataset([Data(edge_index=PAIR)], node_attrs="x"), "`node_attrs` names attributes of networkx")
    nx.write_gml(nx.path_graph(2), tmp_path / "a.gml")
    nx.write_graphml(nx.path_graph(2), tmp_path / "b.graphml")
    one_line(lambda: load_dataset(tmp_path), "holds .graphml and .gml files; keep one kind in a folder.")


@pytest.mark.parametrize("name", ["a.pt", "a.csv", "a.parquet", "a.graphml", "A_graph_labels.txt"])
def test_a_named_pipe_is_refused(name, tmp_path):
    os.mkfifo(tmp_path / name)
    (tmp_path / "A_A.txt").touch()
    for source in (tmp_path / name, tmp_path, str(tmp_path)):
        one_line(lambda: load_dataset(source, tmp_path / "root"), f"{name}' is a named pipe, a socket or a device")  # noqa: B023
    one_line(lambda: write_on_disk(tmp_path / name, tmp_path / "out"), f"{name}' is a named pipe")
    one_line(lambda: load_dataset(tmp_path / name, nodes=True), f"{name}' is a named pipe")


OWN = """
from pathlib import Path
import networkx
from graphcl.datasets.sources import Source
from graphcl.registry import sources

@sources.register("link_list", takes="a .links file with an edge per line")
class LinkList(Source):
    def claims(self, source, request):
        return isinstance(source, Path) and source.suffix == ".links"

    def read(self, source, request):
        return networkx.read_edgelist(source)
"""


def test_a_kind_of_the_user(tmp_path):
    (tmp_path / "kind.py").write_text(OWN)
    (tmp_path / "own.links").write_text("a b\nb c\n")
    one_line(lambda: load_dataset(tmp_path / "own.links"), "own.links' is not a data set")
    import_files([str(tmp_path / "kind.py")])
    try:
        assert edges(load_dataset(tmp_path / "own.links")[0]) == {(0, 1), (1, 0), (1, 2), (2, 1)}
        one_line(lambda: load_dataset(tmp_path), "a .links file with an edge per line; ")
    finally:
        for table in (sources._targets, sources._facts, sources._arguments):
            del table["link_list"]
