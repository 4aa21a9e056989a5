"""Test the controls: what each takes out of the graphs, and what it leaves."""

import itertools

import networkx as nx
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import degree

from graphcl.datasets import load_dataset
from graphcl.extensions.diagnosis.controls import (
    CONTROLS,
    controlled,
    rewire,
    rewired,
    shuffled_features,
    without_edges,
)
from tests.conftest import small_graphs


def undirected(graphs):
    """Return the graphs without repeated edges, where both directions share a row of `edge_attr`."""
    for graph in graphs:
        graph.edge_index = graph.edge_index.unique(dim=1)
        graph.edge_attr = graph.edge_index.sum(0, keepdim=True).T.float()
    return graphs


def test_what_every_control_keeps():
    dataset = load_dataset(undirected(small_graphs()))
    before = [dataset[i].clone() for i in range(len(dataset))]
    for name in CONTROLS:
        found = controlled(name, dataset)
        for old, graph, held in zip(before, found, dataset, strict=True):
            assert (graph.num_nodes, int(graph.y), graph.edge_attr.shape) == (
                old.num_nodes,
                int(old.y),
                (graph.num_edges, 1),
            ), name
            assert torch.equal(held.x, old.x)
            assert torch.equal(held.edge_index, old.edge_index)


@pytest.mark.parametrize("directed", [False, True])
def test_random_edges_keep_every_degree_exactly(directed):
    graphs = undirected(small_graphs(n=40))
    if directed:
        for graph in graphs:
            graph.edge_index = graph.edge_index[:, : graph.num_edges * 2 // 3]
            graph.edge_attr = graph.edge_attr[: graph.num_edges]
    dataset = load_dataset(graphs)
    found, changed = rewired(dataset, seed=3), 0
    for old, new in zip(dataset, found, strict=True):
        for row in (0, 1):
            ends = [degree(graph.edge_index[row], old.num_nodes) for graph in (old, new)]
            assert torch.equal(*ends)
        if not directed:
            assert new.is_undirected()
        made = nx.DiGraph(new.edge_index.T.tolist())
        assert made.number_of_edges() == new.num_edges  # no double edge
        assert not nx.number_of_selfloops(made)
        changed += set(map(tuple, new.edge_index.T.tolist())) != set(map(tuple, old.edge_index.T.tolist()))
    assert changed >= 18  # the rings; a star is the only graph of its degrees
    assert torch.equal(found._data.edge_index, rewired(dataset, seed=3)._data.edge_index)


def test_rewiring_draws_all_graphs_of_the_same_degrees_alike():
    path = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])  # of degrees 1, 2, 2, 2, 2, 1
    every = torch.cat([torch.cat([path, path.flip(0)], dim=1) + 6 * i for i in range(3000)], dim=1)
    graph = torch.arange(3000).repeat_interleave(10)
    found = rewire(every, graph, torch.Generator().manual_seed(0)) - 6 * graph
    kinds = {}
    for edges in found.split(10, dim=1):
        key = frozenset(map(frozenset, edges.T.tolist()))
        kinds[key] = kinds.get(key, 0) + 1
    expected = {frozenset(map(frozenset, graph.edges())) for graph in _of_degrees([1, 2, 2, 2, 2, 1])}
    assert kinds.keys() == expected
    assert max(kinds.values()) < 1.5 * 3000 / len(expected)
    assert min(kinds.values()) > 0.6 * 3000 / len(expected)


def _of_degrees(degrees):
    """Yield all simple graphs of these degrees."""
    pairs = list(itertools.combinations(range(len(degrees)), 2))
    for edges in itertools.combinations(pairs, sum(degrees) // 2):
        graph = nx.Graph(edges)
        graph.add_nodes_from(range(len(degrees)))
        if [graph.degree(node) for node in range(len(degrees))] == degrees:
            yield graph


def test_self_loops_and_repeated_edges_stay():
    edges = torch.tensor([[0, 0, 1, 0, 1, 2, 3, 4, 5], [0, 1, 0, 1, 0, 3, 2, 5, 4]])
    for seed in range(5):
        found = rewire(edges, torch.zeros(9, dtype=torch.long), torch.Generator().manual_seed(seed))
        assert torch.equal(found[:, :5], edges[:, :5])
        assert torch.equal(found[0].bincount(), edges[0].bincount())


def test_undirected_graphs_stay_so_beside_directed_ones():
    ring = torch.stack([torch.arange(8), (torch.arange(8) + 1) % 8])
    edges, graph = torch.cat([ring, ring.flip(0), ring + 8], dim=1), torch.arange(3).repeat_interleave(8) // 2
    found = rewire(edges, graph, torch.Generator().manual_seed(0))
    undirected = {tuple(edge) for edge in found[:, :16].T.tolist()}
    assert undirected == {(b, a) for a, b in undirected} != {tuple(edge) for edge in edges[:, :16].T.tolist()}
    assert [found[side, 16:].bincount().tolist()[8:] for side in (0, 1)] == [[1] * 8] * 2


def test_features_move_within_their_graph_and_degrees_are_those_of_the_edges():
    dataset = load_dataset(small_graphs(), features="labels+degree")
    own = dataset.num_features - dataset.degree_columns
    for old, graph, empty in zip(dataset, shuffled_features(dataset), without_edges(dataset), strict=True):
        assert torch.equal(graph.x[:, :own].sum(0), old.x[:, :own].sum(0))
        assert torch.equal(graph.x[:, own:], old.x[:, own:])
        assert torch.equal(empty.x[:, :own], old.x[:, :own])
        assert empty.x[:, own:].argmax(1).tolist() == [0] * old.num_nodes
        assert empty.x[:, own:].sum() == old.num_nodes


def test_controls_do_not_depend_on_the_numbering_of_the_nodes():
    graph = undirected(small_graphs(n=2))[0]
    del graph.edge_attr, graph.num_nodes
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    renamed = Data(x=graph.x[order], edge_index=order.argsort()[graph.edge_index], y=graph.y)
    dataset = load_dataset([graph, renamed])
    for name in ("no edges", "constant features", "sizes only"):
        one, two = CONTROLS[name](dataset)
        assert torch.equal(one.x[order], two.x), name
        edges = {tuple(edge) for edge in order.argsort()[one.edge_index].T.tolist()}
        assert edges == {tuple(edge) for edge in two.edge_index.T.tolist()}, name


def test_a_control_is_left_out_if_it_changes_nothing_and_changes_targets_too():
    dataset, targets = load_dataset(small_graphs(n=4)), load_dataset(small_graphs(n=6), features="constant")
    dataset.targets = targets
    found = controlled("no edges", dataset)
    assert (found._data.num_edges, found.targets._data.num_edges, targets._data.num_edges > 0) == (0, 0, True)
    assert controlled("constant features", dataset) is not None
    assert controlled("constant features", targets) is None
