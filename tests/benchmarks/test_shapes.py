"""Check that generated data sets have the documented shapes."""

import sys
from pathlib import Path

import networkx as nx
import pytest
import torch
from torch_geometric.data import Batch
from torch_geometric.utils import degree, to_networkx

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from shapes import SHAPES, generate


@pytest.fixture(scope="module", params=SHAPES)
def named(request):
    many = {"molpcba": 2_000, "collab": 1_000}.get(request.param, 600)
    return request.param, generate(request.param, many)


def test_averages(named):
    name, dataset = named
    shape = SHAPES[name]
    assert dataset._data.x.size(0) / len(dataset) == pytest.approx(shape.nodes, rel=0.03)
    # Collab's edges go with the square of few sizes, but the number of edges is met in any case.
    assert dataset._data.edge_index.size(1) / 2 / len(dataset) == pytest.approx(shape.edges, rel=0.03)
    assert len(dataset[0].y) == 1


def test_graphs_are_simple_undirected_sorted_connected(named):
    name, dataset = named
    for graph in dataset[torch.arange(0, len(dataset), len(dataset) // 20)]:
        assert graph.is_undirected()
        assert not graph.has_self_loops()
        assert torch.equal(graph.edge_index, graph.coalesce().edge_index)
        assert nx.is_connected(to_networkx(graph, to_undirected=True))
        if name == "molpcba":
            assert degree(graph.edge_index[0]).max() <= 4


def test_same_seed_same_graphs(named):
    name, _ = named
    first, again, other = generate(name, 50, seed=1), generate(name, 50, seed=1), generate(name, 50, seed=2)
    assert torch.equal(first._data.edge_index, again._data.edge_index)
    assert torch.equal(first._data.x, again._data.x)
    assert not torch.equal(first._data.edge_index, other._data.edge_index)


def test_slices_are_pygs(named):
    _, dataset = named
    some = [dataset[i] for i in range(5)]
    assert Batch.from_data_list(some).num_nodes == int(dataset.slices["x"][5])
