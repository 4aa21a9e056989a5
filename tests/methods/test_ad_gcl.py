"""Test the method `ad_gcl` against plain loops over edges, and the gradients of the model and the adversary."""

import copy
import math

import pytest
import torch
from torch.autograd import gradcheck
from torch_geometric.data import Batch, Data

import graphcl.models.gin
from graphcl.augment import Identity
from graphcl.datasets.resident import ResidentLoader
from graphcl.errors import InputError
from graphcl.graphs.segment import connected_pairs
from graphcl.losses import Loss, dcl
from graphcl.methods import ADGCL
from graphcl.methods.ad_gcl import drop_ratio
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.gin import GIN
from graphcl.training.loop import train
from tests.methods.small import Summed, graphs, make_model, pick, seeded

DATA = graphs(dtype=torch.float64)
LONE = Data(
    x=torch.ones(1, 4, dtype=torch.float64), edge_index=torch.empty(2, 0, dtype=torch.long), y=torch.zeros(1).long()
)
# One edge without its reverse, one pair with parallel edges in both directions, and a self-loop.
ODD = Data(
    x=torch.rand(4, 4, generator=seeded(5), dtype=torch.float64),
    edge_index=torch.tensor([[0, 1, 2, 2, 1, 3], [1, 2, 1, 1, 2, 3]]),
    y=torch.zeros(1).long(),
)
BATCH = Batch.from_data_list([DATA[0], LONE, ODD, *DATA[1:5]])


def build(seed=7, model=None, loss=None, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ADGCL(model or make_model(), loss or Loss("dcl"), **options).double()


def players(method):
    """Return the parameters of the encoder with its projector, and those of the adversary."""
    return list(method.model.parameters()), [*method.adversary.encoder.parameters(), *method.edge_scorer.parameters()]


def numbered(edge_index):
    """Return, for each edge, the index of its node pair among all sorted node pairs."""
    pairs = [tuple(sorted(edge)) for edge in edge_index.T.tolist()]
    return [sorted(set(pairs)).index(pair) for pair in pairs]


def perceptron(edge_scorer, u, v):
    """Return the logit of an edge from node u to node v: Linear, ReLU, Linear on the concatenated rows."""
    weight = torch.cat([edge_scorer.source.weight, edge_scorer.target.weight], dim=1)
    hidden = (weight @ torch.cat([u, v]) + edge_scorer.source.bias).relu()
    return (edge_scorer.last.weight @ hidden + edge_scorer.last.bias).item()


# -- weights in the encoder --------------------------------------------------------------------------------------------


def test_a_weighted_sum_of_neighbours_by_a_plain_loop():
    encoder = GIN(4, hidden=8, layers=1).double().eval()
    weight = torch.rand(BATCH.num_edges, generator=seeded(0), dtype=torch.float64)
    rows = list(BATCH.x)
    for (u, v), w in zip(BATCH.edge_index.T.tolist(), weight.tolist(), strict=True):
        rows[v] = rows[v] + w * BATCH.x[u]
    norm, expected = encoder.norms[0], [0.0] * BATCH.num_graphs
    for row, g in zip(rows, BATCH.batch.tolist(), strict=True):
        out = encoder.convs[0].nn(row).relu()
        expected[g] = expected[g] + (out - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    h = encoder(BATCH.x, BATCH.edge_index, BATCH.batch, size=BATCH.num_graphs, edge_weight=weight)
    torch.testing.assert_close(h, torch.stack(expected), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_of_one_and_of_zero(dtype):
    """Weight 1 equals no weights (in float32 computed by compiled layers). Weight 0 removes an edge."""
    torch.manual_seed(0)
    encoder, x = GIN(4, hidden=16, layers=3).to(dtype), BATCH.x.to(dtype)
    keep = torch.rand(BATCH.num_edges, generator=seeded(0)) < 0.6
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-12}
    ones = encoder(x, BATCH.edge_index, BATCH.batch, edge_weight=torch.ones_like(keep, dtype=dtype))
    torch.testing.assert_close(ones, encoder(x, BATCH.edge_index, BATCH.batch), **tolerance)
    some = encoder(x, BATCH.edge_index, BATCH.batch, edge_weight=keep.to(dtype))
    torch.testing.assert_close(some, encoder(x, BATCH.edge_index[:, keep], BATCH.batch), **tolerance)
    assert not torch.allclose(ones, some)


def test_the_gradient_of_the_weights():
    encoder = GIN(4, hidden=4, layers=2).double()
    few = Batch.from_data_list([DATA[0], LONE, ODD])
    weight = torch.rand(few.num_edges, generator=seeded(0), dtype=torch.float64).requires_grad_()
    assert gradcheck(lambda w: encoder(few.x, few.edge_index, few.batch, edge_weight=w), (weight,))


def test_the_compiled_layers_are_left_out(monkeypatch):
    """The compiled layers do not support edge weights."""

    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr(graphcl.models.gin, "fused_sums", refuse)
    encoder, weight = GIN(4, hidden=16), torch.ones(BATCH.num_edges)
    assert encoder(BATCH.x.float(), BATCH.edge_index, BATCH.batch, edge_weight=weight).isfinite().all()
    with pytest.raises(AssertionError):
        encoder(BATCH.x.float(), BATCH.edge_index, BATCH.batch)


# -- the adversary -----------------------------------------------------------------------------------------------------


def test_pairs_are_numbered_as_by_a_loop():
    assert connected_pairs(BATCH.edge_index, BATCH.num_nodes).tolist() == numbered(BATCH.edge_index)
    assert connected_pairs(torch.empty(2, 0, dtype=torch.long), 3).tolist() == []


def test_what_is_kept_by_a_plain_loop():
    method = build()
    weight = method.edge_weights(BATCH, seeded(3)).tolist()
    _, nodes = copy.deepcopy(method.adversary).encoder.with_nodes(BATCH.x, BATCH.edge_index, BATCH.batch)
    draws = torch.rand(BATCH.num_edges, generator=seeded(3), dtype=torch.float64).tolist()
    pairs, logits = numbered(BATCH.edge_index), {}
    for pair, (u, v) in zip(pairs, BATCH.edge_index.T.tolist(), strict=True):
        logits.setdefault(pair, []).append(perceptron(method.edge_scorer, nodes[u], nodes[v]))
    for pair, got in zip(pairs, weight, strict=True):
        u = 1e-4 + (1 - 2e-4) * draws[pair]
        gate = math.fsum(logits[pair]) / len(logits[pair]) + math.log(u / (1 - u))
        assert got == pytest.approx(1 / (1 + math.exp(-gate)), rel=1e-9)


def test_an_undirected_graph_stays_undirected():
    weight = build().edge_weights(BATCH, seeded(0))
    seen = {}
    for pair, each in zip(numbered(BATCH.edge_index), weight.tolist(), strict=True):
        assert seen.setdefault(pair, each) == each
    assert len(set(seen.values())) == len(seen) < BATCH.num_edges
    assert all(0 < each < 1 for each in seen.values())


def test_the_generator_decides():
    method = build()
    torch.manual_seed(0)
    first = method.edge_weights(BATCH, seeded(1))
    torch.manual_seed(1)
    assert torch.equal(first, method.edge_weights(BATCH, seeded(1)))
    assert not torch.equal(first, method.edge_weights(BATCH, seeded(2)))


def test_the_order_of_nodes_does_not_matter(monkeypatch):
    method = build()
    monkeypatch.setattr(torch, "rand", lambda shape, generator, **options: torch.full(shape, 0.3, **options))
    order = torch.randperm(BATCH.num_nodes, generator=seeded(1))
    moved = copy.copy(BATCH)
    moved.x, moved.batch, moved.edge_index = BATCH.x[order], BATCH.batch[order], order.argsort()[BATCH.edge_index]
    torch.testing.assert_close(method.edge_weights(moved), method.edge_weights(BATCH), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(method(moved, moved).loss, method(BATCH, BATCH).loss, rtol=1e-9, atol=1e-11)


def test_the_share_that_is_dropped_by_a_plain_loop():
    """Graphs without edges do not count."""
    weight = torch.rand(BATCH.num_edges, generator=seeded(0), dtype=torch.float64)
    of = {}
    for (u, _), w in zip(BATCH.edge_index.T.tolist(), weight.tolist(), strict=True):
        of.setdefault(int(BATCH.batch[u]), []).append(1 - w)
    assert len(of) == 6 < BATCH.num_graphs
    means = [math.fsum(each) / len(each) for each in of.values()]
    assert drop_ratio(BATCH, weight).item() == pytest.approx(math.fsum(means) / len(means), rel=1e-12)


def test_the_adversary_starts_with_weights_of_its_own():
    method = build()
    for key, each in method.adversary.encoder.named_parameters():
        mine = method.model.encoder.get_parameter(key)
        assert each.data_ptr() != mine.data_ptr()
        assert torch.equal(each, mine) == (not key.endswith("weight") or "norms" in key), key


# -- the game ----------------------------------------------------------------------------------------------------------


def by_hand(method, batch, generator):
    """Return the objective without negating any gradient."""
    weight = method.edge_weights(batch, generator)
    z1 = method.model(batch)
    z2 = method.model.projector(method.model.encode(batch, weight))
    return dcl(z1, z2) - method.drop_penalty * drop_ratio(batch, weight)


@pytest.mark.parametrize("penalty", [0.0, 5.0])
def test_one_player_descends_and_the_other_ascends(penalty):
    method = build(drop_penalty=penalty)
    again = copy.deepcopy(method)
    got, expected = method(BATCH, BATCH, generator=seeded(1)).loss, by_hand(again, BATCH, seeded(1))
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    got.backward()
    expected.backward()
    for sign, mine, theirs in zip((1, -1), players(method), players(again), strict=True):
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a.grad, sign * b.grad, rtol=1e-9, atol=1e-12)
        assert sum(float(each.grad.abs().sum()) for each in mine) > 1e-3


@pytest.mark.parametrize(("player", "sign"), [(0, -1), (1, 1)], ids=["encoder", "adversary"])
def test_each_player_alone_gets_its_way(player, sign):
    method = build(drop_penalty=0.5)
    optimiser = torch.optim.Adam(players(method)[player], lr=0.01)
    values = []
    for _ in range(30):
        loss = method(BATCH, BATCH, generator=seeded(1)).loss
        method.zero_grad()
        loss.backward()
        optimiser.step()
        values.append(loss.item())
    assert sign * (values[-1] - values[0]) > 0.1, values


def test_a_graph_is_found_again_after_its_edges_were_dropped_at_random():
    """The training loss can rise because of the adversary, so measure the loss on randomly dropped edges."""
    data = graphs(48)
    batch = pick(data, range(48))
    weight = (torch.rand(batch.num_edges, generator=seeded(9)) < 0.7).float()

    def loss_of(model):
        with torch.no_grad():
            return float(dcl(model(batch), model.projector(model.encode(batch, weight))))

    method = ADGCL(make_model(), Loss("dcl"))
    before = loss_of(method.model)
    loader = ResidentLoader(data, 16, shuffle=True, generator=seeded(0))
    train(method, loader, Identity(), Identity(), epochs=10, generator=seeded(1))
    assert loss_of(method.model) < before - 0.3


def test_a_higher_price_keeps_more_edges():
    kept = []
    for penalty in (0.0, 20.0):
        method = ADGCL(make_model(), Loss("dcl"), drop_penalty=penalty)
        loader = ResidentLoader(graphs(), 8, shuffle=True, generator=seeded(0))
        train(method, loader, Identity(), Identity(), epochs=10, generator=seeded(1))
        batch = pick(graphs(), range(24))
        kept.append(1 - drop_ratio(batch, method.edge_weights(batch, seeded(0))).item())
    assert kept[1] > kept[0] + 0.1, kept


def test_graphs_without_any_edge():
    batch = Batch.from_data_list([LONE, Data(x=DATA[0].x, edge_index=LONE.edge_index, y=LONE.y)])
    outcome = build()(batch, batch, generator=seeded(0))
    outcome.loss.backward()
    torch.testing.assert_close(outcome.z1, outcome.z2, rtol=1e-10, atol=1e-12)
    assert outcome.loss.isfinite()


# -- messages ----------------------------------------------------------------------------------------------------------


def test_an_encoder_without_edge_weights_is_rejected():
    with pytest.raises(InputError, match=r"^Summed takes no `edge_weight`; use gin, or add it to its forward\.$"):
        build(model=make_model(encoder=Summed))
    with pytest.raises(InputError, match=r"^Summed takes no `edge_weight`"):
        ContrastiveModel(Summed()).encode(BATCH, torch.ones(BATCH.num_edges))


def test_an_encoder_without_nodes_is_rejected():
    class Weighted(Summed):
        def forward(self, x, edge_index, batch, size, edge_weight=None):
            return super().forward(x, edge_index, batch, size)

    with pytest.raises(InputError, match=r"^Weighted returns no node representations; use gin, gine or Pooled"):
        build(model=make_model(encoder=Weighted))
