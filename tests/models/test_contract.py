"""Tests that every registered encoder must pass: rows of graphs, order of nodes and edges, independence of graphs."""

import pytest
import torch
from torch_geometric.data import Batch

from graphcl.models.interface import make_encoder, takes_categories
from graphcl.registry import encoders
from tests.models.test_molecule import molecules


def call(encoder, graph, size=None):
    attr = {"edge_attr": graph.edge_attr.to(graph.x.dtype)}
    return encoder(graph.x, graph.edge_index, graph.batch, size=size, **attr)


@pytest.mark.parametrize("name", sorted(encoders))
def test_an_encoder(name):
    batch = Batch.from_data_list(molecules())
    batch.x = batch.x if takes_categories(name) else batch.x.double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = make_encoder(name, {"hidden_channels": 16}, 9, 3).double().eval()
    rows = call(encoder, batch)
    # a row for each graph, and zeros for empty graphs at the end
    h = call(encoder, batch, batch.num_graphs + 2)
    assert h.shape == (batch.num_graphs + 2, encoder.out_channels)
    assert (h[-2:] == 0).all()
    assert torch.equal(h[:-2], rows)
    # the order of nodes and edges does not matter
    nodes, edges, moved = torch.randperm(batch.num_nodes), torch.randperm(batch.num_edges), batch.clone()
    moved.x, moved.batch, moved.edge_attr = batch.x[nodes], batch.batch[nodes], batch.edge_attr[edges]  # unsorted
    moved.edge_index = nodes.argsort()[batch.edge_index[:, edges]]
    torch.testing.assert_close(call(encoder, moved, batch.num_graphs), rows)
    # in evaluation mode, other graphs in the batch change nothing
    for graph, row in zip(batch.to_data_list(), rows, strict=True):
        graph.batch = None
        torch.testing.assert_close(call(encoder, graph)[0], row)
