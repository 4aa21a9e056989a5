"""Test GIN and GINE against plain loops; test_explain.py compares them with PyG's layers."""

import copy

import pytest
import torch
from torch_geometric.data import Batch, Data

from graphcl.models.gin import GIN, GINE
from tests.datasets.graphs import one_line
from tests.strategies import seeded

POOLS = {
    "sum": lambda rows: rows.sum(0),
    "mean": lambda rows: rows.mean(0),
    "max": lambda rows: rows.max(0).values,
    "log_sum": lambda rows: (1 + rows.sum(0)).log(),
}


@pytest.fixture(scope="module")
def batch():
    generator = seeded(0)

    def graph(n: int, e: int) -> Data:
        x, attr = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((n, 5), (e, 3)))
        return Data(x=x, edge_index=torch.randint(n, (2, e), generator=generator), edge_attr=attr)

    return Batch.from_data_list([graph(6, 14), graph(1, 0), graph(9, 30), graph(4, 2)])


@pytest.mark.parametrize("readout", POOLS)
@pytest.mark.parametrize("kind", ["gin", "gine"])
def test_readouts_and_edge_weights_by_a_plain_loop(kind, readout, batch):
    """The second layer reads normalised rows, but `log_sum` pools the rows before BatchNorm."""
    torch.manual_seed(0)
    encoder = (GIN(5, 16, 2, readout) if kind == "gin" else GINE(5, 3, 16, 2, readout)).double()
    x, weight = batch.x.clone().requires_grad_(), torch.rand(batch.num_edges, dtype=torch.float64)
    rows, pooled = x, []
    for conv, norm in zip(encoder.convs, encoder.norms, strict=True):
        sums = list(rows)
        for (u, v), w, attr in zip(batch.edge_index.T.tolist(), weight, batch.edge_attr, strict=True):
            sums[v] = sums[v] + w * (rows[u] if kind == "gin" else (rows[u] + conv.lin(attr)).relu())
        raw = conv.nn(torch.stack(sums)).relu()
        rows = torch.nn.functional.batch_norm(raw, None, None, norm.weight, norm.bias, training=True)
        parts = (raw if readout == "log_sum" else rows).split(batch.ptr.diff().tolist())
        pooled.append(torch.stack([POOLS[readout](part) for part in parts]))
    arguments, options = (x, batch.edge_index, batch.batch), {"size": 5, "edge_attr": batch.edge_attr}
    h = encoder(*arguments, edge_weight=weight, **options)
    expected = torch.cat(pooled, dim=1)
    torch.testing.assert_close(h[:4], expected)
    slopes = (torch.autograd.grad(each.square().sum(), x, retain_graph=True)[0] for each in (h, expected))
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-9)
    if readout != "log_sum":
        with_nodes, nodes = encoder.with_nodes(*arguments, edge_weight=weight, **options)
        torch.testing.assert_close(with_nodes, h)
        torch.testing.assert_close(nodes[:, -16:], rows)
    h.sum().backward()  # DistributedDataParallel raises if a parameter that needs a gradient gets none
    assert all((each.grad is not None) == each.requires_grad for each in encoder.parameters())


def test_edge_attributes_of_gine_and_messages():
    encoder = GINE(2, edge_dim=1)
    x, edge_index = torch.randn(3, 2), torch.tensor([[0, 1], [1, 2]])
    assert encoder(x, edge_index, edge_attr=torch.tensor([1, 2])).shape == (1, 96)
    one_line(
        lambda: encoder(x, edge_index),
        "GINE needs `edge_attr`, but got none; use gin, or name it in the module around GINE.",
    )
    one_line(lambda: encoder(x, edge_index, edge_attr=torch.ones(2, 1, 1)), "`edge_attr` of shape [E] or [E, D], got")
    one_line(lambda: GIN(3, hidden_channels=0), "`hidden_channels` must be in [1, 16384], got 0.")


@pytest.mark.skipif(torch.__version__ < "2.6", reason="torch 2.4's tracer cannot get past a compiled function")
def test_traced_by_torchs_compiler_it_is_the_same():
    """Trace the encoder into a single graph and run that graph without compiling it."""
    x, graph = torch.randn(16, 4, generator=seeded(0)), torch.tensor([0] * 5 + [1] * 8 + [2] * 3)
    encoder, edges = GIN(4, hidden_channels=16, num_layers=1), torch.randint(16, (2, 40), generator=seeded(1))
    traced = torch.compile(copy.deepcopy(encoder), backend="eager", fullgraph=True)
    a, b = (module(x, edges, graph, size=3) for module in (encoder, traced))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    a.square().sum().backward()
    b.square().sum().backward()
    for one, other in zip(encoder.parameters(), traced.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-3 * float(one.grad.abs().max()))
