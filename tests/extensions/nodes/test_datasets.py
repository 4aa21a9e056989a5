"""Test data sets of nodes: own graphs, masks, the generated set, and messages."""

import pytest
import torch
from torch_geometric.data import Data

from graphcl.datasets import load_dataset
from graphcl.extensions.nodes.datasets import NodeDataset
from graphcl.loaders.resident import ResidentLoader
from tests.datasets.graphs import one_line

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def own(n=30, **more):
    return Data(**{"x": torch.rand(n, 3), "edge_index": EDGES, "y": torch.arange(n) % 3 + 5, **more})


def masks(n=30):
    parts = torch.arange(n) // 10
    return {f"{name}_mask": parts == number for number, name in enumerate(("train", "val", "test"))}


def test_one_graph_of_ones_own(tmp_path):
    graph = own(**masks())
    torch.save(graph, tmp_path / "own.pt")
    for source in (graph, [graph], str(tmp_path / "own.pt")):
        dataset = load_dataset(source, nodes=True)
        assert isinstance(dataset, NodeDataset)
        assert repr(dataset) == "NodeDataset('own', 30 nodes, 1 graph, x: 3 columns (numbers), 3 classes)"
        assert dataset.classes.tolist() == [5, 6, 7]
        assert dataset.y.tolist() == [number % 3 for number in range(30)]
        assert {part: nodes.tolist() for part, nodes in dataset.split.items()} == {
            "train": [*range(10)], "valid": [*range(10, 20)], "test": [*range(20, 30)],
        }  # fmt: skip
        assert "train_mask" not in dataset[0]
    named = type("PygNodePropPredDataset", (list,), {"name": "ogbn-arxiv"})([graph])  # as OGB's class
    assert torch.equal(load_dataset(named, nodes=True)[0].x, graph.x)
    del graph.x
    graph.num_nodes = 30
    assert load_dataset(graph, nodes=True)[0].x.tolist() == [[1.0]] * 30


def test_a_few_graphs_are_one_batch():
    dataset = load_dataset([own(30), own(20)], nodes=True)
    (batch,) = ResidentLoader(dataset, 2)
    assert (batch.y.tolist(), len(dataset.y), dataset.split) == (dataset.y.tolist(), 50, None)
    assert batch.edge_index[:, 4:].tolist() == (EDGES + 30).tolist()


ONE_CLASS = "`y` must be one class, from 0 on, for each of the 30 nodes (of whole graphs: --method two_views), got "
TRUTHS = "`train_mask` must hold True or False for each node of a graph"
CHANGES = [
    ({"y": torch.tensor([1])}, f"{ONE_CLASS}shape [1]; leave nodes without a class out"),
    (
        {"edge_index": torch.tensor([[0], [40]])},
        "has the edge [0, 40], but 30 nodes, numbered from 0; correct the data.",
    ),
    ({"train_mask": torch.ones(30, dtype=torch.bool)}, "train_mask, val_mask and test_mask must not share"),
    ({"train_mask": torch.full((30,), 0.4)}, TRUTHS),
    (masks(31), TRUTHS),
]
SOURCES = [
    *((own(**{**masks(), **change}), says) for change, says in CHANGES),
    ([own(30, **masks(20)), own(20, **masks(30))], TRUTHS),
    ([own(**masks()), own()], "graph 1 has no `test_mask`, graph 0 has one"),
    ([own(**masks()), own(**{key: mask.view(-1, 1) for key, mask in masks().items()})], "_mask` of graph 1 has"),
    ([], "own holds no graph"),
    ("sbm-30", "`sbm-30` must have at least 400 nodes, got 30."),
]
FILES = [({"a": 1}, "must be one Data"), (None, "must be one Data"), ((), "own holds no graph")]


def test_invalid_sources_get_one_line(tmp_path):
    for source, says in SOURCES:
        one_line(lambda source=source: load_dataset(source, nodes=True), says)
    for content, says in FILES:
        torch.save(content, tmp_path / "own.pt")
        one_line(lambda: load_dataset(str(tmp_path / "own.pt"), nodes=True), says)


def test_the_generated_graph():
    dataset = load_dataset("sbm-800", nodes=True)
    graph, again = dataset[0], load_dataset("sbm-800", nodes=True)[0]
    assert torch.equal(graph.edge_index, again.edge_index)
    assert torch.equal(graph.x, again.x)
    assert (graph.is_undirected(), graph.has_self_loops()) == (True, False)
    assert graph.num_edges == pytest.approx(800 * 13.8, rel=0.05)
    assert graph.y.bincount().tolist() == [100] * 8
    same = (graph.y[graph.edge_index[0]] == graph.y[graph.edge_index[1]]).float().mean()
    assert same.item() == pytest.approx(0.7 + 0.3 / 8, abs=0.03)
    assert torch.cat(list(dataset.split.values())).sort().values.tolist() == [*range(800)]
