"""Test `infograph` against plain loops over nodes and graphs."""

import copy
import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import softplus
from torch_geometric.data import Batch, Data

from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.losses.engine import pairs
from graphcl.methods import InfoGraph
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.gin import GIN, GINE
from graphcl.models.projector import make_projector
from tests.methods.small import Summed, assert_close_parameters, graphs, make_model, pick, seeded, unit_rows, views_of

DATA = graphs(dtype=torch.float64)
LONE = Data(
    x=torch.rand(1, 4, generator=seeded(3), dtype=torch.float64),
    edge_index=torch.empty(2, 0, dtype=torch.long),
    y=torch.tensor([0]),
)
BATCH = Batch.from_data_list([DATA[0], LONE, *DATA[1:6]])


def build(loss="jsd", seed=7, model=None, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return InfoGraph(model or make_model(projector="residual"), Loss(loss, **options)).double()


def layers_of(encoder, x, edge_index):
    """Return the outputs of all layers of a GIN by plain loops. BatchNorm uses the statistics of the batch."""
    rows, levels = list(x), []
    for conv, norm in zip(encoder.convs, encoder.norms, strict=True):
        sums = list(rows)
        for u, v in edge_index.T.tolist():
            sums[v] = sums[v] + rows[u]
        out = torch.stack([conv.nn(row).relu() for row in sums])
        mean, var = out.mean(0), out.var(0, unbiased=False)
        out = (out - mean) / (var + norm.eps).sqrt() * norm.weight + norm.bias
        rows = list(out)
        levels.append(out)
    return torch.cat(levels, dim=1)


def sides(method, batch):
    """Return the projections of all nodes, the projections of all graphs, and the graph of each node."""
    nodes = layers_of(method.model.encoder, batch.x, batch.edge_index)
    sums = torch.stack([nodes[batch.batch == g].sum(0) for g in range(batch.num_graphs)])
    return method.local(nodes), method.model.projector(sums), batch.batch.tolist()


def jsd(nodes, graphs_, of):
    """Return Eq. 4: the mean over nodes, plus the mean over nodes and other graphs."""
    total = 0.0
    for v, row in enumerate(nodes):
        for g, graph in enumerate(graphs_):
            sign, share = (-1, 1.0) if g == of[v] else (1, 1 / (len(graphs_) - 1))
            total = total + share * softplus(sign * (row * graph).sum(), threshold=40) / len(nodes)
    return total


def cross_entropy(with_own):
    def mean(nodes, graphs_, of):
        total = 0.0
        for v, node in enumerate(unit_rows(nodes)):
            scores = unit_rows(graphs_) @ node / 0.3
            below = scores if with_own else scores[[g for g in range(len(graphs_)) if g != of[v]]]
            total = total + (below.logsumexp(0) - scores[of[v]]) / len(nodes)
        return total

    return mean


@pytest.mark.parametrize("limit", [pairs.DENSE_LIMIT, 0], ids=["dense", "tiled"])
@pytest.mark.parametrize("head", ["residual", "linear"])
@pytest.mark.parametrize(
    ("loss", "by_hand", "options"),
    [
        ("jsd", jsd, {}),
        ("infonce", cross_entropy(True), {"temperature": 0.3}),
        ("dcl", cross_entropy(False), {"temperature": 0.3}),
    ],
)
def test_value_gradient_and_outcome_against_plain_loops(loss, by_hand, options, head, limit, monkeypatch):
    monkeypatch.setattr(pairs, "DENSE_LIMIT", limit)
    method = build(loss, model=make_model(projector=head), **options)
    again = copy.deepcopy(method)
    outcome, (local, globals_, of) = method(BATCH, BATCH), sides(again, BATCH)
    expected = by_hand(local, globals_, of)
    torch.testing.assert_close(outcome.loss, expected, rtol=1e-9, atol=1e-11)
    outcome.loss.backward()
    expected.backward()
    assert_close_parameters(method, again, gradients=True)
    assert all(each.grad.abs().sum() > 0 for each in method.local.parameters())
    torch.testing.assert_close(outcome.z1, torch.stack([local[of.index(g)] for g in range(7)]), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(outcome.z2, globals_, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(outcome.h, method.model.encode(BATCH), rtol=1e-8, atol=1e-10)


class NodesAndSums(Summed):
    """`Summed` with the method `with_nodes`."""

    def with_nodes(self, x, edge_index, batch):
        nodes = self.map(x.index_add(0, edge_index[1], x[edge_index[0]])).tanh()
        return nodes.new_zeros(int(batch.max()) + 1, nodes.size(1)).index_add(0, batch, nodes), nodes


def test_the_gradient_of_the_nodes_representations():
    method, few = build(model=make_model(encoder=NodesAndSums)), Batch.from_data_list([DATA[0], LONE, DATA[1]])

    def value(x):
        batch = copy.copy(few)
        batch.x = x
        return method(batch, batch).loss

    assert gradcheck(value, (few.x.clone().requires_grad_(),))


def test_only_the_first_view_counts_in_any_order_of_nodes_and_graphs():
    method, order = build(), torch.randperm(BATCH.num_nodes, generator=seeded(1))
    moved = copy.copy(BATCH)
    moved.x, moved.batch, moved.edge_index = BATCH.x[order], BATCH.batch[order], order.argsort()[BATCH.edge_index]
    shuffled, ordered = pick(DATA, [4, 0, 5, 2, 1]), pick(DATA, [0, 1, 2, 4, 5])
    for one, other in ((moved, BATCH), (shuffled, ordered)):
        torch.testing.assert_close(method(one, one).loss, method(other, other).loss, rtol=1e-10, atol=1e-12)
    view1, view2 = views_of(DATA, [0, 1, 2, 3], 0)
    assert torch.equal(method(view1, view2).loss, method(view1, view1).loss)
    assert not torch.equal(method(view2, view1).loss, method(view1, view1).loss)
    for each in [*method.local.parameters(), *method.model.projector.parameters()]:
        torch.nn.init.zeros_(each)
    assert method(BATCH, BATCH).loss.item() == pytest.approx(2 * math.log(2), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_with_nodes_returns_the_embedding_and_the_rows_it_sums(dtype):
    """In float32, `forward` uses the compiled layers and `with_nodes` does not."""
    torch.manual_seed(0)
    batch = copy.copy(BATCH)
    batch.x, batch.edge_attr = batch.x.to(dtype), torch.rand(batch.num_edges, 2, generator=seeded(0)).to(dtype)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-12}
    for encoder in (GIN(4, hidden_channels=16, num_layers=3), GINE(4, 2, hidden_channels=8, num_layers=2)):
        model = ContrastiveModel(encoder).to(dtype)
        h, nodes = model.encode_nodes(batch)
        torch.testing.assert_close(h, model.encode(batch), **tolerance)
        torch.testing.assert_close(torch.zeros_like(h).index_add(0, batch.batch, nodes), h, **tolerance)
        assert InfoGraph(model, Loss("jsd")).to(dtype)(batch, batch).loss.isfinite()
        if type(encoder) is GIN:
            torch.testing.assert_close(nodes, layers_of(encoder, batch.x, batch.edge_index), **tolerance)


def test_the_residual_head_is_three_times_linear_and_relu_plus_a_shortcut():
    head = make_projector(3, 2, "residual").double()
    layers = [each for each in head.modules() if isinstance(each, torch.nn.Linear)]
    assert [(each.in_features, each.out_features) for each in layers] == [(3, 3), (3, 3), (3, 2), (3, 2)]
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    row = x
    for layer in layers[:3]:
        row = (layer.weight @ row).clamp(min=0)
    torch.testing.assert_close(head(x[None])[0], row + layers[3].weight @ x)


class Narrow(NodesAndSums):
    def with_nodes(self, x, edge_index, batch):
        h, nodes = super().with_nodes(x, edge_index, batch)
        return h, nodes[:, :2]


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: build(negatives="all"), r"^`negatives` must not be all with method `infograph`, .*other graphs\.$"),
        (lambda: build()(pick(DATA, [0]), None), r"^method `infograph` needs at least two graphs in a batch, got 1\.$"),
        (lambda: build(model=make_model(encoder=Summed)),
         r"^Summed returns no node representations; use gin, gine or Pooled.*, or give it a method .*\[N, H\]\.$"),
        (lambda: build(model=make_model(encoder=Narrow))(BATCH, BATCH),
         rf"^Narrow\.with_nodes must return \[7, 6\] and \[\d+, 6\], got \[7, 6\] and \[{BATCH.num_nodes}, 2\]\.$"),
    ],
)  # fmt: skip
def test_bad_input(call, line):
    with pytest.raises(InputError, match=line):
        call()
