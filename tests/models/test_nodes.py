"""Test node rows: the model for nodes, the encoder `node_gcn` against PyG's, and propagated features."""

import pytest
import torch
from torch_geometric.nn import GCNConv, SGConv

from graphcl.config import make_config
from graphcl.errors import InputError
from graphcl.models.node_gcn import node_gcn, product, propagate
from graphcl.models.nodes import NodeModel
from graphcl.models.projector import make_projector
from graphcl.models.pyg import gat, sage
from graphcl.registry import encoders
from tests.methods.nodes import graph, node_model, node_views


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


@pytest.mark.parametrize("every", [60, 200, 10**6])
def test_the_product_of_sparse_features_is_the_dense_one(every, monkeypatch):
    """Rows without features count too; `every` 10**6 leaves one feature."""
    entries = torch.rand(30, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).flatten()
    x = torch.where(torch.arange(1500) % every == 7, entries, 0.0).view(30, 50)
    weight = torch.rand(4, 50, dtype=torch.float64, requires_grad=True)
    row = torch.rand(30, 4, dtype=torch.float64)
    expected = torch.autograd.grad((x @ weight.t() * row).sum(), weight)[0]
    monkeypatch.setattr("graphcl.models.node_gcn.linear", None)  # the dense product is not called
    got = product(x, weight)
    torch.testing.assert_close(got, x @ weight.t(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad((got * row).sum(), weight)[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("activation", ["relu", "prelu", "elu"])
@pytest.mark.parametrize("norm", ["none", "batch_norm"])
def test_the_gradient_of_node_gcn(activation, norm):
    encoder, batch = node_gcn(5, hidden_channels=3, out_channels=2, norm=norm, activation=activation).double(), graph(6)
    x = batch.x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: encoder.with_nodes(x, batch.edge_index)[1], x)


def test_the_model_returns_a_row_for_each_node():
    model, (view1, view2) = node_model(), node_views()
    assert model(view1).shape == (12, 6)
    h1, h2 = model.encode_views(view1, view2)
    assert torch.equal(h1, model.encode(view1))
    assert torch.equal(h2, model.encoder.with_nodes(view2.x, view2.edge_index, view2.batch)[1])


@pytest.mark.parametrize(
    "make", [lambda: gat(5, hidden_channels=8), lambda: sage(5, hidden_channels=8), lambda: encoders["gin"](5)]
)
def test_other_encoders_give_rows_of_nodes(make):
    model, batch = NodeModel(make()), graph(dtype=torch.float32)
    assert model.encode(batch).shape == (12, model.width)


def test_the_projector_of_grace():
    """The released code: elu(z W1 + b1) W2 + b2, and every initial weight in +- 1 / sqrt(columns)."""
    first, activation, last = make_projector(100, 3, "elu")
    z = torch.randn(5, 100)
    torch.testing.assert_close(torch.nn.Sequential(first, activation)(z), torch.nn.functional.elu(first(z)))
    assert make_config({"dataset": "Cora", "method": "grace"}).projector == "elu"
    for layer in (first, last):
        for each in (layer.weight, layer.bias):
            assert 0 < each.abs().max() <= 0.1


def test_no_projector():
    z = torch.rand(3, 4)
    assert torch.equal(make_projector(4, 4, "none")(z), z)
    with pytest.raises(InputError, match=r"^`projection` must be the encoder's width 4 with projector none, got 3\.$"):
        make_projector(4, 3, "none")
