"""Sparse rows against the WL-OA kernel, finite differences and dense matrices."""

import time

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch

from graphcl.extensions.sparse.encoder import WLSparse, frequencies
from graphcl.extensions.sparse.index import SparseRows, shared_columns
from graphcl.graphs import wl
from graphcl.losses import Loss
from tests import memory
from tests.conftest import small_graphs


@pytest.fixture
def batch():
    return Batch.from_data_list(small_graphs(12))


def arguments(batch):
    return batch.x, batch.edge_index, batch.batch


def fitted(batch, seed=0, **options):
    """Return an encoder that has seen `batch`, each graph a group, with random weights."""
    encoder = WLSparse(3, **options).double()
    encoder.fit([batch], torch.arange(batch.num_graphs))
    generator = torch.Generator().manual_seed(seed)
    for each in (encoder.a, encoder.b):
        each.data = torch.randn(each.shape, generator=generator, dtype=torch.float64) / 2
    return encoder


def wl_oa(batch, depth):
    """Return the cosines of the WL optimal assignment kernel, by the library's other code."""
    labels = batch.x.argmax(1).numpy()
    levels = wl.numbered(labels, batch.edge_index.numpy(), depth)
    columns = [wl.unary(wl.histogram(level, batch.batch.numpy())).toarray() for level in levels]
    kernel = np.hstack(columns) @ np.hstack(columns).T
    return torch.from_numpy(kernel / np.sqrt(np.outer(kernel.diagonal(), kernel.diagonal())))


@pytest.mark.parametrize("depth", [0, 2, 3])
def test_weights_of_zero_give_the_cosine_of_wl_oa(batch, depth):
    encoder = WLSparse(3, depth=depth)
    encoder.fit([batch], torch.arange(batch.num_graphs))
    z, rows = encoder(*arguments(batch)).detach().double(), encoder.rows(*arguments(batch))
    torch.testing.assert_close(z @ z.T, wl_oa(batch, depth), atol=1e-6, rtol=0)
    matrix, _ = rows.scipy()
    torch.testing.assert_close(torch.from_numpy((matrix @ matrix.T).toarray()).double(), z @ z.T, atol=1e-6, rtol=0)


@pytest.mark.parametrize("columns", ["unary", "log_counts"])
def test_weights_equal_their_formula(batch, columns):
    encoder = fitted(batch, depth=2, columns=columns)
    one = batch.get_example(3)
    colours = encoder.colours(one.x, one.edge_index)
    known = dict(zip(encoder.colour.tolist(), encoder.b.tolist(), strict=True))
    often = dict(zip(encoder.colour.tolist(), encoder.frequency.tolist(), strict=True))
    wanted = []
    for d in range(3):
        for colour in colours[d].unique().tolist():
            nodes = (colours[d] == colour).nonzero().flatten()
            log = encoder.scale * sum(known.get(colours[k, nodes[0]].item(), 0.0) for k in range(d + 1))
            f = int(np.log2(often.get(colour, 1)))
            counts = range(1, len(nodes) + 1) if columns == "unary" else [len(nodes)]
            for t in counts:
                value = np.exp(log + encoder.a[d, f, int(np.log2(t))].item())
                wanted.append(value if columns == "unary" else value * np.log1p(t))
    wanted = np.sort(wanted) / np.linalg.norm(wanted)
    found = encoder.rows(one.x, one.edge_index).value.detach().sort().values
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_a_permuted_graph_has_a_bit_equal_row(batch):
    encoder = fitted(batch).float()
    graph = batch.get_example(5)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(1))
    edges = order.argsort()[graph.edge_index][:, torch.randperm(graph.num_edges)]
    one, other = encoder.rows(graph.x, graph.edge_index), encoder.rows(graph.x[order], edges)
    assert one.column.equal(other.column)
    assert one.value.equal(other.value)


def test_rows_do_not_depend_on_the_batch(batch):
    encoder = fitted(batch)
    rows = encoder.rows(*arguments(batch))
    alone = SparseRows.cat([encoder.rows(each.x, each.edge_index) for each in batch.to_data_list()])
    assert rows.ptr.equal(alone.ptr)
    assert rows.column.equal(alone.column)
    torch.testing.assert_close(rows.value, alone.value, rtol=1e-14, atol=0)


def trees(count, nodes=60, kinds=40):
    """Return a batch of random labelled trees."""
    generator = torch.Generator().manual_seed(0)
    parent = (torch.rand(count, nodes - 1, generator=generator) * torch.arange(1, nodes)).long()
    first = torch.arange(count)[:, None] * nodes
    ends = torch.stack([(parent + first).flatten(), (torch.arange(1, nodes) + first).flatten()])
    x = torch.randint(kinds, (count * nodes, 1), generator=generator)
    return Batch(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1), batch=torch.arange(count).repeat_interleave(nodes))


@torch.no_grad()
def test_time_and_memory_of_graphs_with_60_nodes():
    """A graph takes 0.07 ms on one core of a server; memory grows with the columns."""
    batch = trees(1000)
    encoder = WLSparse(1).fit([batch], torch.arange(1000) // 2)
    seconds, growth = [], []
    for count in (1000, 1000, 1000, 4000):
        some = trees(count)
        started = time.process_time()
        with memory.peak() as grown:
            rows = encoder.rows(*arguments(some), size=count)
        seconds.append((time.process_time() - started) / count)
        growth.append(grown[0] / len(rows.value))
    assert min(seconds) < 0.3e-3
    assert growth[-1] < 400  # bytes per value


def test_rows_of_an_empty_graph_are_empty(batch):
    x, edge_index, graph = arguments(batch)
    found = fitted(batch).rows(x, edge_index, graph + 1, size=14)
    assert found.ptr[1] == 0
    assert found.ptr[-1] == found.ptr[-2] == len(found.value)


def test_shared_columns_keep_inner_products_and_gradients(batch):
    encoder = fitted(batch)
    rows = encoder.rows(*arguments(batch))
    dense = torch.zeros(len(rows), len(rows.column.unique()), dtype=torch.float64)
    dense[rows.row(), rows.column.unique(return_inverse=True)[1]] = rows.value.detach()
    z = encoder(*arguments(batch))
    torch.testing.assert_close(z @ z.T, dense @ dense.T)
    assert z.size(1) < dense.size(1)


def test_gradients_of_a_loss_equal_finite_differences():
    batch = Batch.from_data_list(small_graphs(4))
    encoder, loss = fitted(batch, depth=1), Loss("adnce", temperature=0.3)

    def of(a, b):
        z = torch.func.functional_call(encoder, {"a": a, "b": b}, arguments(batch))
        return loss(z[:2], z[2:])

    used = torch.zeros_like(encoder.a, dtype=torch.bool)
    used[:, :3, :3] = True  # the other classes do not occur

    def of_used(some, b):
        return of(encoder.a.detach().masked_scatter(used, some), b)

    inputs = encoder.a[used].detach().requires_grad_(), encoder.b.detach().requires_grad_()
    assert torch.autograd.gradcheck(of_used, inputs)


def test_frequencies_count_groups_in_any_chunks():
    generator = torch.Generator().manual_seed(0)
    colours, group = torch.randint(9, (3, 40), generator=generator), torch.randint(6, (40,), generator=generator)
    wanted = {c: len(group[(colours == c).any(0)].unique()) for c in range(9)}
    for size in (40, 7):
        found = frequencies(zip(colours.split(size, 1), group.split(size), strict=True), least=3)
        assert dict(zip(*(each.tolist() for each in found), strict=True)) == {c: f for c, f in wanted.items() if f >= 3}


def test_training_raises_the_weight_of_telling_patterns():
    """Pairs share one rare label; all graphs share a frequent one: training must weigh the rare one more."""
    x = torch.eye(9)
    graphs = [torch.stack([x[8]] * 6 + [x[pair]]) for pair in range(8) for _ in range(2)]
    batch = torch.arange(16).repeat_interleave(7)
    rows, edges = torch.cat(graphs), torch.empty(2, 0, dtype=torch.long)
    encoder = WLSparse(9, depth=0)
    encoder.fit([Batch(x=rows, edge_index=edges, batch=batch)], torch.arange(16) // 2)
    optimiser, loss = torch.optim.Adam(encoder.parameters(), 0.1), Loss("infonce", temperature=0.5)
    for _ in range(20):
        z = encoder(rows, edges, batch)
        optimiser.zero_grad()
        loss(z[::2], z[1::2]).backward()
        optimiser.step()
    value = encoder.rows(graphs[0], edges).value
    rare = encoder.rows(graphs[0], edges).column == encoder.colours(x[:1], edges)[0]
    assert value[rare] > 2 * value[~rare].max()


def test_zero_rows_and_equal_rows_have_finite_gradients():
    rows = SparseRows(torch.tensor([0, 1, 2]), torch.tensor([3, 3]), torch.ones(2, requires_grad=True))
    shared_columns(rows).sum().backward()
    assert rows.value.grad.tolist() == [1, 1]
