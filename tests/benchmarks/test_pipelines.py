"""Check that the compared pipelines have the same counts, encoder and loss."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import contains_self_loops, is_undirected, to_networkx

from graphcl import AttributeMask, EdgePerturb, NodeDrop, Subgraph
from graphcl.losses import infonce

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import per_graph
import per_graph_dense
import pyg_pipeline
import shapes
from ours import Ours
from per_graph import PerGraphLists
from per_graph_dense import PerGraphDense
from pipelines import PIPELINES


@pytest.fixture(scope="module")
def graphs():
    return [*shapes.generate("proteins", 30), *shapes.generate("collab", 4), *shapes.generate("reddit", 4)]


OURS = [NodeDrop(0.2), Subgraph(0.2), EdgePerturb(0.2), AttributeMask(0.2)]
PAIRS = [
    pytest.param(ours, theirs, id=f"{theirs.__module__}.{theirs.__name__}")
    for pipeline in (PerGraphLists, PerGraphDense)
    for ours, theirs in zip(OURS, pipeline.augmentations, strict=True)
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_per_graph_augmentations_keep_as_much_as_ours(graphs, ours, theirs):
    rng = np.random.default_rng(0)
    for graph in graphs:
        a, b = ours(graph), theirs(graph, rng)
        assert a.num_nodes == b.num_nodes
        assert is_undirected(b.edge_index, num_nodes=b.num_nodes)
        assert not contains_self_loops(b.edge_index)
        assert b.is_coalesced() or isinstance(ours, EdgePerturb)
        if isinstance(ours, (EdgePerturb, AttributeMask)):
            assert a.num_edges == b.num_edges

        def moved(view, graph=graph):
            pairs = [set(map(tuple, each.edge_index.T.tolist())) for each in (view, graph)]
            return len(pairs[0] - pairs[1])

        if isinstance(ours, EdgePerturb):
            assert len(set(map(tuple, b.edge_index.T.tolist()))) == b.num_edges
            assert moved(a) == moved(b)
        if isinstance(ours, AttributeMask):
            assert (a.x != graph.x).any(1).sum() == (b.x != graph.x).any(1).sum()


@pytest.mark.parametrize("module", [per_graph, per_graph_dense])
def test_per_graph_restriction_keeps_all_edges_between_nodes_kept(graphs, module):
    rng = np.random.default_rng(0)
    for graph in graphs:
        named = Data(x=torch.arange(graph.num_nodes)[:, None], edge_index=graph.edge_index)
        for view in (module.node_drop(named, rng), module.subgraph(named, rng)):
            names = view.x[:, 0]
            induced = {pair for pair in map(tuple, graph.edge_index.T.tolist()) if set(pair) <= set(names.tolist())}
            assert set(map(tuple, names[view.edge_index].T.tolist())) == induced


def test_per_graph_regions_start_anew_where_a_component_ends():
    graph = Data(x=torch.zeros(10, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    for module in (per_graph, per_graph_dense):
        assert module.subgraph(graph, np.random.default_rng(0)).num_nodes == 8


def test_dense_edge_perturb_finds_the_few_absent_pairs():
    both = torch.tensor([(a, b) for a in range(8) for b in range(8) if a != b and {a, b} != {2, 5}]).T
    view = per_graph_dense.edge_perturb(Data(x=torch.zeros(8, 1), edge_index=both), np.random.default_rng(0))
    assert view.num_edges == 2 * (27 - 5 + 1)
    assert (2, 5) in set(map(tuple, view.edge_index.T.tolist()))


@pytest.mark.parametrize("module", [per_graph, per_graph_dense])
def test_per_graph_region_is_connected(graphs, module):
    import networkx as nx

    rng = np.random.default_rng(0)
    for graph in graphs:
        assert nx.is_connected(to_networkx(module.subgraph(graph, rng), to_undirected=True))


def test_encoders_and_losses_are_the_same(graphs):
    dataset = shapes.generate("proteins", 40)
    ours = Ours(dataset)
    theirs = pyg_pipeline.PyGModel(dataset.num_features)
    theirs.load_state_dict(ours.model.state_dict(), strict=False)
    batch = Batch.from_data_list(list(dataset))

    def assert_near(a, b):  # sums over whole graphs: float32 errs by a share of the largest
        torch.testing.assert_close(a, b, rtol=0, atol=1e-4 * float(b.detach().abs().max()))

    z1, z2 = ours.model(batch), theirs(batch)
    assert_near(z1, z2)
    view = pyg_pipeline.augment(batch)
    h = ours.model.encoder(view.x, view.edge_index, batch=view.batch, size=view.num_graphs)
    assert_near(h, theirs.encode(view))
    torch.testing.assert_close(infonce(z1, theirs(view)), pyg_pipeline.info_nce(z1, theirs(view)))


def test_pyg_augmentations_hold_on_average():
    batch = Batch.from_data_list(list(shapes.generate("dd", 20)))
    n, e = batch.num_nodes, batch.num_edges

    def augmented(kind):
        return pyg_pipeline.augment(batch, torch.full((20,), kind))

    assert augmented(0).num_nodes == pytest.approx(0.8 * n, rel=0.05)
    assert 0 < augmented(1).num_nodes < n
    assert augmented(2).num_edges == pytest.approx(e, rel=0.05)
    assert augmented(2).num_nodes == n
    changed = (augmented(3).x != batch.x).any(1).float().mean()
    assert float(changed) == pytest.approx(0.2, abs=0.03)
    for kind in range(4):
        view = augmented(kind)
        assert is_undirected(view.edge_index, num_nodes=view.num_nodes)
        assert (view.batch[view.edge_index[0]] == view.batch[view.edge_index[1]]).all()


@pytest.mark.parametrize("pipeline", PIPELINES.values())
def test_pipelines_train(pipeline):
    dataset = shapes.generate("molpcba", 300)
    run = pipeline(dataset, batch_size=64)
    before = [each.clone() for each in run.model.parameters()]
    assert run.epoch() == 300
    assert 0 < run.data_share < 1
    assert run.epoch(limit=128) >= 128
    assert any((a != b).any() for a, b in zip(before, run.model.parameters(), strict=True))
