"""Test node rows: the model for nodes, the encoder `node_gcn` against PyG's, and propagated features."""

import torch
from torch_geometric.nn import GCNConv, SGConv

from graphcl.config import make_config
from graphcl.extensions.nodes.models import NodeModel, node_gcn, product, propagate
from graphcl.models.perceptron import make_projector
from graphcl.models.pooled import gat, sage
from graphcl.registry import encoders
from tests.extensions.nodes.nodes import graph, node_model, node_views


def test_node_gcn_equals_pygs_layers():
    encoder, batch = node_gcn(5, hidden_channels=8, out_channels=6, num_layers=2).double(), graph(30)
    x = batch.x
    for weight, bias in zip(encoder.nodes.weights, encoder.nodes.biases, strict=True):
        layer = GCNConv(weight.in_features, weight.out_features).double()
        layer.lin.weight, layer.bias = weight.weight, torch.nn.Parameter(torch.rand_like(bias))
        with torch.no_grad():
            bias.copy_(layer.bias)
        x = layer(x, _without_loops(batch.edge_index)).relu()
    rows = encoder.with_nodes(batch.x, _without_loops(batch.edge_index))[1]
    torch.testing.assert_close(rows, x, rtol=1e-12, atol=1e-12)


def _without_loops(edge_index):
    return edge_index[:, edge_index[0] != edge_index[1]]


def test_propagated_features_equal_pygs():
    batch = graph(30)
    edges, layer = _without_loops(batch.edge_index), SGConv(5, 5, K=2, bias=False).double()
    with torch.no_grad():
        layer.lin.weight.copy_(torch.eye(5))
        torch.testing.assert_close(propagate(batch.x, edges), layer(batch.x, edges), rtol=1e-12, atol=1e-12)


def test_the_product_of_sparse_features_is_the_dense_one(monkeypatch):
    """Rows without features count too; `every` 10**6 leaves one feature."""
    entries = torch.rand(30, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).flatten()
    weight, row = torch.rand(4, 50, dtype=torch.float64, requires_grad=True), torch.rand(30, 4, dtype=torch.float64)
    monkeypatch.setattr("graphcl.extensions.nodes.models.linear", None)  # the dense product is not called
    for every in (60, 10**6):
        x = torch.where(torch.arange(1500) % every == 7, entries, 0.0).view(30, 50)
        got, expected = product(x, weight), x @ weight.t()
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
        grads = (torch.autograd.grad((each * row).sum(), weight)[0] for each in (got, expected))
        torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-12)


def test_the_gradient_of_node_gcn():
    for norm, activation in [("none", "relu"), ("batch_norm", "prelu"), ("none", "elu")]:
        options = {"hidden_channels": 3, "out_channels": 2, "norm": norm, "activation": activation}
        encoder, batch = node_gcn(5, **options).double(), graph(6)
        given = batch.x.requires_grad_()
        assert torch.autograd.gradcheck(lambda x: encoder.with_nodes(x, batch.edge_index)[1], given), options  # noqa: B023


def test_the_model_returns_a_row_for_each_node():
    model, (view1, view2) = node_model(), node_views()
    h1, h2 = model.encode_views(view1, view2)
    assert torch.equal(h1, model.encode(view1))
    assert torch.equal(h2, model.encoder.with_nodes(view2.x, view2.edge_index, view2.batch)[1])
    other = graph(dtype=torch.float32)
    for encoder in (gat(5, hidden_channels=8), sage(5, hidden_channels=8), encoders["gin"](5)):
        assert NodeModel(encoder).encode(other).shape == (12, NodeModel(encoder).width)


def test_the_projector_of_grace():
    """The released code: elu(z W1 + b1) W2 + b2, and every initial weight in +- 1 / sqrt(columns)."""
    first, activation, last = make_projector(100, 3, "elu")
    z = torch.randn(5, 100)
    torch.testing.assert_close(torch.nn.Sequential(first, activation)(z), torch.nn.functional.elu(first(z)))
    assert make_config({"dataset": "Cora", "method": "grace"}).projector == "elu"
    assert torch.equal(make_projector(100, 100, "none")(z), z)
    for layer in (first, last):
        for each in (layer.weight, layer.bias):
            assert 0 < each.abs().max() <= 0.1
