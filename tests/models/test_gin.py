"""Test GIN and GINE against PyG's layers with the same weights."""

import copy

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv, GINEConv, global_add_pool

from graphcl.errors import InputError
from graphcl.models.gin import GIN, GINE


@pytest.fixture(scope="module")
def batch():
    generator = torch.Generator().manual_seed(0)

    def graph(n: int, e: int) -> Data:
        edge_index = torch.randint(n, (2, e), generator=generator)
        return Data(
            x=torch.randn(n, 5, generator=generator, dtype=torch.float64),
            edge_index=edge_index,
            edge_attr=torch.randn(e, 3, generator=generator, dtype=torch.float64),
        )

    return Batch.from_data_list([graph(6, 14), graph(1, 0), graph(9, 30), graph(4, 2)])


@pytest.fixture(params=["gin", "gine"])
def pair(request, batch):
    """Return the encoder, a function that calls it, the same function with PyG's layers, and the edge attributes."""
    torch.manual_seed(0)
    encoder = (
        GIN(5, hidden_channels=8, num_layers=3)
        if request.param == "gin"
        else GINE(5, 3, hidden_channels=8, num_layers=3)
    )
    encoder = encoder.double()
    edge_attr = () if request.param == "gin" else (batch.edge_attr,)
    layers = []
    for conv in encoder.convs:
        layer = GINConv(_copy(conv.nn)) if request.param == "gin" else GINEConv(_copy(conv.nn), edge_dim=3)
        layer.load_state_dict(conv.state_dict(), strict=False)  # the parameters are named as in PyG
        layers.append(layer.double())

    def ours(x, edge_index, batch_vector, size, *attr):
        return encoder(x, edge_index, batch_vector, size=size, edge_attr=attr[0] if attr else None)

    def reference(x, edge_index, batch_vector, size, *attr):
        pools = []
        for layer, norm in zip(layers, encoder.norms, strict=True):
            x = norm(layer(x, edge_index, *attr).relu())
            pools.append(global_add_pool(x, batch_vector, size))
        return torch.cat(pools, dim=1)

    return encoder, ours, reference, edge_attr


def _copy(mlp: torch.nn.Sequential) -> torch.nn.Sequential:
    return torch.nn.Sequential(*(torch.nn.Linear(m.in_features, m.out_features) if isinstance(m, torch.nn.Linear)
                                 else torch.nn.ReLU() for m in mlp))  # fmt: skip


@pytest.mark.parametrize("shuffle", [False, True], ids=["as given", "edges shuffled"])
@pytest.mark.parametrize("training", [False, True])
def test_it_is_pyg_layer_by_layer(pair, batch, shuffle, training):
    encoder, ours, reference, attr = pair
    encoder.train(training)
    order = torch.randperm(batch.num_edges) if shuffle else torch.arange(batch.num_edges)
    x = batch.x.clone().requires_grad_()
    arguments = (x, batch.edge_index[:, order], batch.batch, 4, *(a[order] for a in attr))
    a, b = ours(*arguments), reference(*arguments)
    assert torch.allclose(a, b, rtol=1e-12)
    (grad_a,), (grad_b,) = (torch.autograd.grad(h.square().sum(), x) for h in (a, b))
    assert torch.allclose(grad_a, grad_b, rtol=1e-10)


def test_empty_graphs_at_the_end_keep_their_rows(pair, batch):
    encoder, ours, _, attr = pair
    h = ours(batch.x, batch.edge_index, batch.batch, 7, *attr)
    assert h.shape == (7, encoder.out_channels)
    assert (h[4:] == 0).all()
    assert (h[:4] != 0).any(dim=1).all()


@pytest.mark.parametrize("kind", ["gin", "gine", "gin compiled"])
@pytest.mark.parametrize("training", [True, False])
def test_the_mean_is_the_sum_over_the_number_of_nodes(kind, training, batch):
    kwargs = {"edge_dim": 3} if kind == "gine" else {}
    make, more = (GINE, {"edge_attr": batch.edge_attr}) if kind == "gine" else (GIN, {})
    dtype = torch.float32 if kind == "gin compiled" else torch.float64  # the compiled layers need float32
    by_sum, by_mean = (
        make(5, hidden_channels=16, num_layers=2, readout=readout, **kwargs).to(dtype).train(training)
        for readout in ("sum", "mean")
    )
    by_mean.load_state_dict(by_sum.state_dict())
    arguments = (batch.x.to(dtype), batch.edge_index, batch.batch)
    more["size"] = batch.num_graphs
    sums, means = by_sum(*arguments, **more), by_mean(*arguments, **more)
    nodes = torch.tensor([graph.num_nodes for graph in batch.to_data_list()])[:, None]
    assert torch.allclose(means * nodes, sums, atol=1e-5)
    h, _ = by_mean.with_nodes(*arguments, **more)
    assert torch.allclose(h, by_mean(*arguments, **more), atol=1e-4)


@pytest.mark.parametrize("kind", ["gin", "gine"])
def test_log_sum_by_a_plain_loop(kind, batch):
    """The second layer reads normalised rows, but the readout of each layer is of the rows before BatchNorm."""
    encoder = GIN(5, 16, 2, "log_sum") if kind == "gin" else GINE(5, 3, 16, 2, "log_sum")
    encoder, rows, pooled = encoder.double(), batch.x, []
    for conv, norm in zip(encoder.convs, encoder.norms, strict=True):
        sums = list(rows)
        for (u, v), attr in zip(batch.edge_index.T.tolist(), batch.edge_attr, strict=True):
            sums[v] = sums[v] + (rows[u] if kind == "gin" else (rows[u] + conv.lin(attr)).relu())
        raw = conv.nn(torch.stack(sums)).relu()
        pooled.append(torch.stack([(1 + part.sum(0)).log() for part in raw.split(batch.ptr.diff().tolist())]))
        rows = torch.nn.functional.batch_norm(raw, None, None, norm.weight, norm.bias, training=True)
    h = encoder(batch.x, batch.edge_index, batch.batch, size=5, edge_attr=batch.edge_attr)
    torch.testing.assert_close(h[:4], torch.cat(pooled, dim=1))
    assert (h[4] == 0).all()
    h.sum().backward()  # DistributedDataParallel raises if a parameter that needs a gradient gets none
    assert all((each.grad is not None) == each.requires_grad for each in encoder.parameters())


@pytest.mark.parametrize("kind", ["gin", "gine"])
def test_max_readout_and_edge_weights_by_a_plain_loop(kind, batch):
    """Compute one layer node by node; the embedding of a graph without nodes is zero."""
    encoder = GIN(5, 8, 1, "max") if kind == "gin" else GINE(5, 3, 8, 1, "max")
    encoder, weight = encoder.double().eval(), torch.rand(batch.num_edges, dtype=torch.float64)
    rows, conv = list(batch.x), encoder.convs[0]
    for (u, v), w, attr in zip(batch.edge_index.T.tolist(), weight, batch.edge_attr, strict=True):
        rows[v] = rows[v] + w * (batch.x[u] if kind == "gin" else (batch.x[u] + conv.lin(attr)).relu())
    nodes = encoder.norms[0](conv.nn(torch.stack(rows)).relu())
    expected = torch.stack([part.max(0).values for part in nodes.split(batch.ptr.diff().tolist())])
    options = {"edge_weight": weight, "edge_attr": batch.edge_attr}
    h, found = encoder.with_nodes(batch.x, batch.edge_index, batch.batch, size=5, **options)
    torch.testing.assert_close(found, nodes)
    torch.testing.assert_close(h[:4], expected)
    torch.testing.assert_close(h, encoder(batch.x, batch.edge_index, batch.batch, size=5, **options))
    assert (h[4] == 0).all()


def test_order_of_nodes_and_edges_does_not_matter(pair, batch):
    encoder, ours, _, attr = pair
    encoder.eval()
    h = ours(batch.x, batch.edge_index, batch.batch, 4, *attr)
    order = torch.randperm(batch.num_nodes)
    name = order.argsort()
    moved = ours(batch.x[order], name[batch.edge_index], batch.batch[order], 4, *attr)  # batch is unsorted here
    assert torch.allclose(h, moved, rtol=1e-10)


def test_another_graph_in_the_batch_changes_nothing_in_evaluation_mode():
    torch.manual_seed(0)
    encoder = GIN(2).eval()
    graph = Data(x=torch.randn(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    other = Data(x=torch.randn(5, 2), edge_index=torch.tensor([[0], [4]]))
    alone = encoder(graph.x, graph.edge_index)
    both = Batch.from_data_list([graph, other])
    assert torch.allclose(encoder(both.x, both.edge_index, both.batch)[:1], alone, atol=1e-6)


def test_gine_takes_a_single_edge_weight_and_refuses_none():
    encoder = GINE(2, edge_dim=1)
    x, edge_index = torch.randn(3, 2), torch.tensor([[0, 1], [1, 2]])
    assert encoder(x, edge_index, edge_attr=torch.tensor([1, 2])).shape == (1, 96)
    with pytest.raises(InputError, match=r"^GINE needs `edge_attr`, but these graphs have none; use gin\.$"):
        encoder(x, edge_index)
    for shape in ((3, 1), (3, 2, 1), (3,)):
        with pytest.raises(InputError, match=r"^GINE takes `x` of shape \[N, 2\], got \[3"):
            encoder(torch.ones(shape), edge_index, edge_attr=torch.ones(2))


def test_sizes_are_checked():
    with pytest.raises(InputError, match=r"`hidden` must be in \[1, 16384\], got 0\."):
        GIN(3, hidden_channels=0)


@pytest.mark.skipif(torch.__version__ < "2.6", reason="torch 2.4's tracer cannot get past a compiled function")
def test_traced_by_torchs_compiler_it_is_the_same():
    """Trace the encoder into a single graph and run that graph without compiling it."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    batch = Batch.from_data_list(
        [Data(x=torch.randn(n, 4, generator=generator), edge_index=torch.randint(n, (2, 3 * n), generator=generator))
         for n in (5, 8, 3)]
    )  # fmt: skip
    encoder = GIN(4, hidden_channels=16, num_layers=2)
    traced = torch.compile(copy.deepcopy(encoder), backend="eager", dynamic=True, fullgraph=True)
    for module in (encoder, traced):
        module(batch.x, batch.edge_index, batch.batch, size=3).square().sum().backward()
    a, b = (module(batch.x, batch.edge_index, batch.batch, size=3) for module in (encoder, traced))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    for one, other in zip(encoder.parameters(), traced.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-3 * float(one.grad.abs().max()))
