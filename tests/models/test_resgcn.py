"""Test ResGCN against its equation, written with dense matrices."""

import pytest
import torch
from torch.nn.functional import batch_norm

from graphcl.models.resgcn import ResGCN


def normalised(norm, rows):
    return batch_norm(rows, norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.training)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("readout", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [True, False])
def test_equals_the_equation(training, readout, weighted):
    torch.manual_seed(0)
    encoder = ResGCN(3, hidden_channels=5, num_layers=2, readout=readout).double().train(training)
    for norm in encoder.modules():
        if isinstance(norm, torch.nn.BatchNorm1d):
            torch.nn.init.uniform_(norm.weight)
            torch.nn.init.uniform_(norm.bias)
            norm.running_mean.uniform_()
    for conv in encoder.convs:
        torch.nn.init.uniform_(conv.bias)
    x, batch = torch.randn(7, 3).double(), torch.tensor([0, 0, 0, 1, 1, 2, 2])
    ends = torch.tensor([[0, 1, 3, 0], [1, 2, 4, 2]])
    edge_index, weight = torch.cat([ends, ends.flip(0)], dim=1), torch.rand(4).repeat(2).double()

    loops = torch.eye(7).double()
    loops[edge_index[0], edge_index[1]] = weight if weighted else 1.0
    inverse = loops.sum(1).rsqrt().diag()
    adjacency = inverse @ loops @ inverse
    first, linear = encoder.features
    nodes = (normalised(first, x) @ linear.weight.T).relu()
    for norm, conv in zip(encoder.norms, encoder.convs, strict=True):
        nodes = (adjacency @ normalised(norm, nodes) @ conv.weight.T + conv.bias).relu()
    pooled = torch.stack([getattr(nodes[batch == graph], readout)(0) for graph in range(3)])
    before, linear, _, after = encoder.graphs
    expected = normalised(after, (normalised(before, pooled) @ linear.weight.T + linear.bias).relu())
    found = encoder(x, edge_index, batch, edge_weight=weight if weighted else None)
    torch.testing.assert_close(found, expected)


def test_a_batch_of_one_graph_trains_by_the_running_statistics():
    encoder = ResGCN(3, hidden_channels=5)
    x, edge_index = torch.randn(4, 3), torch.tensor([[0, 1], [1, 0]])
    before = encoder.graphs[0].running_mean.clone()
    assert encoder.train()(x, edge_index).isfinite().all()
    assert torch.equal(encoder.graphs[0].running_mean, before)
