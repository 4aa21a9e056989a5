"""Test batching against PyG, in particular the private bookkeeping of `Batch`."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data, HeteroData

from graphcl.augment.transform import levels, select
from graphcl.errors import InputTypeError
from graphcl.graphs.batching import Layout, as_batch, split, twice
from graphcl.loaders.resident import ResidentLoader
from tests.strategies import (
    EDGE_LEVEL,
    NODE_LEVEL,
    QUICK,
    assert_same_batch,
    assert_same_graphs,
    assert_same_value,
    batches,
    induced,
    make_batch,
    make_graph,
    path,
    seeded,
    snapshot,
    typical_batch,
)


def check_levels(batch):
    expected = {
        key: "node" if key in NODE_LEVEL else "edge" if key in EDGE_LEVEL else "other"
        for key in batch.keys()  # noqa: SIM118
        if key not in ("batch", "ptr", "num_nodes")
    }
    found = levels(batch, Layout.of(batch))
    assert set(found) == set(expected)
    if batch.num_nodes == batch.num_graphs:  # `y` may then be taken for node-level; no node can be removed
        expected |= {key: found[key] for key in ("y", "target") if found.get(key) == "node"}
    assert found == expected


@QUICK
@given(batches())
def test_levels(batch):
    check_levels(batch)
    assert_same_value(Layout.of(Batch(edge_index=batch.edge_index, batch=batch.batch)).ptr, batch.ptr)


def test_levels_where_sizes_leave_a_doubt():
    """As many nodes as edges in one graph, in each or in total; one edge or node in each graph."""
    ring, loop = [(0, 1), (1, 2), (2, 3), (3, 0)], (0, 0)
    for shapes in (
        [(4, ring)],
        [(4, ring), (2, [(1, 0), loop])],
        [(4, [(0, 1)]), (2, [(1, 0), loop, (1, 1), (0, 1), (0, 1)])],
        [(5, [(0, 1)]), (3, [(1, 0)])],
        [(1, []), (1, []), (1, [])],
    ):
        for keys in (("x", "pos", "edge_attr", "edge_weight", "y", "target", "ragged"), ("x",), ("y",)):
            check_levels(make_batch(*shapes, keys=keys))
    # each graph has one edge and one label, whose name does not make it an attribute of nodes or edges
    for key in ("num_node_types", "positive", "node"):
        graphs = [make_graph(5, [(0, 1)], i, keys=()) for i in range(3)]
        for graph in graphs:
            graph[key] = torch.tensor([7])
        batch = Batch.from_data_list(graphs)
        assert levels(batch, Layout.of(batch))[key] == "other", key


@QUICK
@given(batches(), st.data())
def test_select_nodes_and_edges(batch, data):
    flags = data.draw(st.lists(st.booleans(), min_size=batch.num_edges, max_size=batch.num_edges))
    keep_edge, graphs, keep = torch.tensor(flags, dtype=torch.bool), batch.to_data_list(), []
    for g, graph in enumerate(graphs):
        mine = keep_edge[batch.batch[batch.edge_index[0]] == g]
        for key in set(graph.keys()) & set(EDGE_LEVEL):
            graph[key] = graph[key][:, mine] if key == "edge_index" else graph[key][mine]
        dropped = data.draw(st.sets(st.integers(1, graph.num_nodes))) - {graph.num_nodes}
        keep.append([i for i in range(graph.num_nodes) if i not in dropped])
    before, layout = snapshot(batch), Layout.of(batch)
    found = select(batch, layout, None, keep_edge, {"edge_index": layout.edge_index})
    assert_same_batch(found, Batch.from_data_list(graphs))
    keep_node = torch.zeros(layout.num_nodes, dtype=torch.bool)
    for first, kept in zip(layout.ptr.tolist(), keep, strict=False):
        keep_node[[first + i for i in kept]] = True
    expected = Batch.from_data_list([induced(graph, kept) for graph, kept in zip(graphs, keep, strict=True)])
    assert_same_batch(select(batch, layout, keep_node, keep_edge, {"edge_index": layout.edge_index}), expected)
    assert_same_value(snapshot(batch), before)


@QUICK
@given(batches(), st.data())
def test_split(batch, data):
    graphs, parts = batch.to_data_list(), []
    while sum(parts) < len(graphs):
        parts.append(data.draw(st.integers(1, len(graphs) - sum(parts))))
    before = snapshot(batch)
    for part in split(batch, parts):
        assert_same_batch(part, Batch.from_data_list([graphs.pop(0) for _ in range(part.num_graphs)]))
    assert not graphs
    assert_same_value(snapshot(batch), before)


@QUICK
@given(batches())
def test_twice(batch):
    graphs, before = batch.to_data_list(), snapshot(batch)
    assert_same_batch(twice(batch), Batch.from_data_list(graphs + graphs))
    assert_same_value(snapshot(batch), before)


def test_as_batch():
    batch, graph = typical_batch(), make_graph(3, path(3))
    assert as_batch(batch) is batch
    assert_same_batch(as_batch(graph), Batch.from_data_list([graph]))
    for wrong in (HeteroData(), None, [graph], "graph", Batch.from_data_list([HeteroData()])):
        with pytest.raises(InputTypeError, match="homogeneous PyG `Data` or `Batch`, got"):
            as_batch(wrong)


def test_node_indices_are_split():
    edge, face = torch.tensor([[0], [1]]), torch.tensor([[0], [1], [2]])
    graphs = [Data(x=torch.ones(3, 1), edge_index=edge, face=face)] * 3
    batch = Batch.from_data_list(graphs)
    for part, own in zip(split(batch, [2, 1]), (graphs[:2], graphs[2:]), strict=True):
        assert_same_batch(part, Batch.from_data_list(own))
    assert_same_batch(twice(batch), Batch.from_data_list(graphs + graphs))


def test_chunks_of_a_loader_are_the_same_batches():
    graphs = [make_graph(i % 5 + 1, path(i % 5 + 1) * (i % 3 > 0), i) for i in range(23)]
    for least in (1, 12, 1000):
        alone, together = (ResidentLoader(graphs, 4, True, seeded(3)) for _ in range(2))
        for _ in range(2):
            chunks = list(together.chunks(least))
            parts = [part for batch, sizes in chunks for part in split(batch, sizes)]
            for part, batch in zip(parts, alone, strict=True):
                assert_same_graphs(part.to_data_list(), batch.to_data_list())
            assert all(batch.num_graphs >= least for batch, _ in chunks[:-1])
