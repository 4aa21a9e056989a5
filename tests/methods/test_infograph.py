"""Test the method `infograph` against plain loops over nodes and graphs."""

import copy
import math

import pytest
import torch
from torch.autograd import gradcheck
from torch_geometric.data import Batch, Data

from graphcl.augment import Identity
from graphcl.datasets.resident import ResidentLoader
from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.losses.engine import pairs
from graphcl.methods import InfoGraph
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.gin import GIN, GINE
from graphcl.models.projector import make_projector
from graphcl.training.loop import train
from tests.methods.small import Summed, dot, graphs, make_model, pick, seeded, trainable, unit, views_of

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
        chosen = Loss(loss, **options) if isinstance(loss, str) else loss
        return InfoGraph(model or make_model(projector="residual"), chosen).double()


def softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def layers_of(encoder, graph_rows, x, edge_index):
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
    nodes = torch.cat(levels, dim=1)
    return nodes, torch.stack([nodes[list(each)].sum(0) for each in graph_rows])


def sides(method, batch):
    """Return the projections of all nodes, the projections of all graphs, and the graph of each node."""
    of = batch.batch.tolist()
    rows = [[v for v, g in enumerate(of) if g == number] for number in range(batch.num_graphs)]
    nodes, pools = layers_of(method.model.encoder, rows, batch.x, batch.edge_index)
    return method.local(nodes), method.model.projector(pools), of


def by_hand(method, batch):
    """Return the InfoGraph loss by its equation: a sum over nodes, and a sum over nodes and other graphs."""
    local, globals_, of = sides(method, batch)
    nodes, graphs_, own, others = local.tolist(), globals_.tolist(), 0.0, 0.0
    for v, row in enumerate(nodes):
        for g, graph in enumerate(graphs_):
            if g == of[v]:
                own += softplus(-dot(row, graph))
            else:
                others += softplus(dot(row, graph))
    return own / len(nodes) + others / (len(nodes) * (len(graphs_) - 1))


# -- the value ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [pairs.DENSE_LIMIT, 0], ids=["dense", "tiled"])
@pytest.mark.parametrize("head", ["residual", "mlp", "linear"])
def test_jsd_against_a_plain_loop(head, limit, monkeypatch):
    monkeypatch.setattr(pairs, "DENSE_LIMIT", limit)
    method = build(model=make_model(projector=head))
    assert method(BATCH, BATCH).loss.item() == pytest.approx(by_hand(method, BATCH), rel=1e-10)


def test_the_gradient_is_that_of_the_loop():
    """Compare the gradients of the encoder and both projectors with those of a loop over torch scalars."""
    method = build()
    again = copy.deepcopy(method)
    method(BATCH, BATCH).loss.backward()
    local, globals_, of = sides(again, BATCH)
    total, b = 0.0, BATCH.num_graphs
    for v, row in enumerate(local):
        for g, graph in enumerate(globals_):
            sign, share = (-1, 1.0) if g == of[v] else (1, 1 / (b - 1))
            total = total + share * torch.nn.functional.softplus(sign * (row * graph).sum(), threshold=40) / len(local)
    total.backward()
    for (key, mine), theirs in zip(method.named_parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-8, atol=1e-11, msg=lambda text, key=key: key + text)


@pytest.mark.parametrize("loss", ["infonce", "dcl"])
def test_other_losses_by_a_plain_loop(loss):
    """Compute the loss from the cosines of a node with its own graph and with the other graphs."""
    method = build(loss, temperature=0.3)
    local, globals_, of = sides(method, BATCH)
    nodes, rows, values = [unit(row) for row in local.tolist()], [unit(row) for row in globals_.tolist()], []
    for v, node in enumerate(nodes):
        scores = [math.exp(dot(node, row) / 0.3) for row in rows]
        below = math.fsum(scores) - (scores[of[v]] if loss == "dcl" else 0.0)
        values.append(-math.log(scores[of[v]] / below))
    assert method(BATCH, BATCH).loss.item() == pytest.approx(math.fsum(values) / len(values), rel=1e-9)


def test_the_gradient_of_the_nodes_representations():
    """Compare with finite differences with respect to the node features."""
    method = build(model=make_model(encoder=NodesAndSums))
    few = Batch.from_data_list([DATA[0], LONE, DATA[1]])

    def value(x):
        batch = copy.copy(few)
        batch.x = x
        return method(batch, batch).loss

    assert gradcheck(value, (few.x.clone().requires_grad_(),))


class NodesAndSums(Summed):
    """`Summed` with the method `with_nodes`."""

    def with_nodes(self, x, edge_index, batch):
        nodes = self.map(x.index_add(0, edge_index[1], x[edge_index[0]])).tanh()
        return nodes.new_zeros(int(batch.max()) + 1, nodes.size(1)).index_add(0, batch, nodes), nodes


# -- invariances -------------------------------------------------------------------------------------------------------


def test_the_order_of_nodes_does_not_matter():
    method = build()
    order = torch.randperm(BATCH.num_nodes, generator=seeded(1))
    moved = copy.copy(BATCH)
    moved.x, moved.batch, moved.edge_index = BATCH.x[order], BATCH.batch[order], order.argsort()[BATCH.edge_index]
    torch.testing.assert_close(method(moved, moved).loss, method(BATCH, BATCH).loss, rtol=1e-10, atol=1e-12)


def test_the_order_of_graphs_does_not_matter():
    method = build()
    ids = [4, 0, 5, 2, 1]
    a, b = pick(DATA, ids), pick(DATA, sorted(ids))
    torch.testing.assert_close(method(a, a).loss, method(b, b).loss, rtol=1e-10, atol=1e-12)


def test_the_second_view_is_not_looked_at():
    method = build()
    view1, view2 = views_of(DATA, [0, 1, 2, 3], 0)
    assert torch.equal(method(view1, view2).loss, method(view1, view1).loss)
    assert not torch.equal(method(view2, view1).loss, method(view1, view1).loss)


def test_the_outcome_shows_the_first_node_of_each_graph_beside_the_graph():
    method = build()
    outcome = method(BATCH, BATCH)
    local, globals_, of = sides(method, BATCH)
    torch.testing.assert_close(outcome.z1, torch.stack([local[of.index(g)] for g in range(7)]), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(outcome.z2, globals_, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(outcome.h, method.model.encode(BATCH), rtol=1e-8, atol=1e-10)


def test_zero_projections_have_a_loss_of_two_log_two():
    """If all projections are 0, the loss is 2 log 2."""
    method = build()
    for head in (method.local, method.model.projector):
        for each in head.parameters():
            torch.nn.init.zeros_(each)
    assert method(BATCH, BATCH).loss.item() == pytest.approx(2 * math.log(2), rel=1e-12)


# -- the nodes of an encoder -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_with_nodes_returns_the_embedding_and_the_rows_it_sums(dtype):
    """In float32, `forward` uses the compiled layers and `with_nodes` does not."""
    torch.manual_seed(0)
    encoder, batch = GIN(4, hidden=16, layers=3).to(dtype), copy.copy(BATCH)
    batch.x = batch.x.to(dtype)
    arguments = batch.x, batch.edge_index, batch.batch
    h, nodes = encoder.with_nodes(*arguments)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(h, encoder(*arguments), **tolerance)
    torch.testing.assert_close(torch.zeros_like(h).index_add(0, batch.batch, nodes), h, **tolerance)
    rows = [(batch.batch == g).nonzero()[:, 0].tolist() for g in range(batch.num_graphs)]
    torch.testing.assert_close(nodes, layers_of(encoder, rows, batch.x, batch.edge_index)[0], **tolerance)


def test_gine_has_nodes_too():
    torch.manual_seed(0)
    encoder, batch = GINE(4, 2, hidden=8, layers=2).double(), copy.copy(BATCH)
    batch.edge_attr = torch.rand(batch.num_edges, 2, generator=seeded(0), dtype=torch.float64)
    model = ContrastiveModel(encoder).double()
    h, nodes = model.encode_nodes(batch)
    torch.testing.assert_close(h, model.encode(batch), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(torch.zeros_like(h).index_add(0, batch.batch, nodes), h, rtol=1e-10, atol=1e-12)
    assert InfoGraph(model, Loss("jsd")).double()(batch, batch).loss.isfinite()


def test_the_residual_head():
    """The projector is three times Linear and ReLU, plus a linear shortcut."""
    head = make_projector(3, 2, "residual").double()
    layers = [each for each in head.modules() if isinstance(each, torch.nn.Linear)]
    assert [(each.in_features, each.out_features) for each in layers] == [(3, 3), (3, 3), (3, 2), (3, 2)]
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    row = x.tolist()
    for layer in layers[:3]:
        row = [max(0.0, dot(weights, row)) for weights in layer.weight.tolist()]
    expected = [a + dot(weights, x.tolist()) for a, weights in zip(row, layers[3].weight.tolist(), strict=True)]
    torch.testing.assert_close(head(x[None])[0].tolist(), expected)


# -- use ---------------------------------------------------------------------------------------------------------------


def test_both_heads_and_the_encoder_train():
    method = InfoGraph(make_model(projector="residual"), Loss("jsd"))
    before = copy.deepcopy(method.state_dict())
    loader = ResidentLoader(graphs(), 8, shuffle=True, generator=seeded(0))
    history = train(method, loader, Identity(), Identity(), epochs=12, generator=seeded(1))
    moved = {key.split(".")[0] for key, value in method.state_dict().items() if not torch.equal(value, before[key])}
    assert moved == {"model", "local"}
    assert history[-1].loss < history[0].loss - 0.1
    assert {id(each) for each in trainable(method)} == {id(each) for each in method.parameters()}
    assert not torch.equal(before["local.shortcut.weight"], before["model.projector.shortcut.weight"])


def test_invalid_settings_are_rejected():
    with pytest.raises(InputError, match=r"^`negatives` must not be all with method `infograph`, .*other graphs\.$"):
        build("jsd", negatives="all")
    one = pick(DATA, [0])
    with pytest.raises(InputError, match=r"^method `infograph` needs at least two graphs in a batch, got 1\.$"):
        build()(one, one)


def test_an_encoder_without_nodes_is_rejected_at_once():
    line = r"^Summed returns no node representations; use gin, gine or Pooled.*, or give it a method .*\[N, H\]\.$"
    with pytest.raises(InputError, match=line):
        build(model=make_model(encoder=Summed))


def test_an_encoder_whose_nodes_have_another_shape_is_rejected():
    class Narrow(NodesAndSums):
        def with_nodes(self, x, edge_index, batch):
            h, nodes = super().with_nodes(x, edge_index, batch)
            return h, nodes[:, :2]

    line = rf"^Narrow\.with_nodes must return \[7, 6\] and \[\d+, 6\], got \[7, 6\] and \[{BATCH.num_nodes}, 2\]\.$"
    with pytest.raises(InputError, match=line):
        build(model=make_model(encoder=Narrow))(BATCH, BATCH)
