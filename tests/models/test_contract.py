"""Tests that every registered encoder must pass: rows of graphs, order of nodes and edges, independence of graphs."""

import pytest
import torch
from torch_geometric.data import Batch

from graphcl.models.interface import make_encoder, takes_categories
from graphcl.registry import encoders
from tests.models.test_molecule import molecules

GRAPHS = molecules()


@pytest.fixture(params=sorted(encoders))
def pair(request):
    """Return an encoder in evaluation mode, and a batch of molecules that it accepts."""
    batch = Batch.from_data_list(GRAPHS)
    batch.x = batch.x if takes_categories(request.param) else batch.x.double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make_encoder(request.param, {"hidden_channels": 16}, 9, 3).double().eval(), batch


def call(encoder, graph, size=None):
    attr = {"edge_attr": graph.edge_attr.to(graph.x.dtype)}
    return encoder(graph.x, graph.edge_index, graph.batch, size=size, **attr)


def test_a_row_for_each_graph_and_zeros_for_empty_graphs_at_the_end(pair):
    encoder, batch = pair
    h = call(encoder, batch, batch.num_graphs + 2)
    assert h.shape == (batch.num_graphs + 2, encoder.out_channels)
    assert (h[-2:] == 0).all()
    assert torch.equal(h[:-2], call(encoder, batch))


def test_the_order_of_nodes_and_edges_does_not_matter(pair):
    encoder, batch = pair
    nodes, edges, moved = torch.randperm(batch.num_nodes), torch.randperm(batch.num_edges), batch.clone()
    moved.x, moved.batch, moved.edge_attr = batch.x[nodes], batch.batch[nodes], batch.edge_attr[edges]  # unsorted
    moved.edge_index = nodes.argsort()[batch.edge_index[:, edges]]
    torch.testing.assert_close(call(encoder, moved, batch.num_graphs), call(encoder, batch))


def test_other_graphs_in_the_batch_change_nothing_in_evaluation_mode(pair):
    encoder, batch = pair
    for graph, row in zip(batch.to_data_list(), call(encoder, batch), strict=True):
        graph.batch = None
        torch.testing.assert_close(call(encoder, graph)[0], row)
