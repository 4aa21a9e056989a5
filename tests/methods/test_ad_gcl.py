"""Test `ad_gcl` against plain loops over edges, and the gradients of the model and the adversary."""

import copy
import math

import pytest
import torch
from torch.autograd import gradcheck
from torch_geometric.data import Batch, Data

import graphcl.models.gin
from graphcl.augment import Identity
from graphcl.errors import InputError
from graphcl.loaders.resident import ResidentLoader
from graphcl.losses import Loss, dcl
from graphcl.methods import ADGCL
from graphcl.methods.ad_gcl import drop_ratio
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.gin import GIN
from graphcl.training.loop import train
from tests.methods.small import Summed, assert_close_parameters, graphs, make_model, pick, seeded

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
EDGES = BATCH.edge_index.T.tolist()
WEIGHT = torch.rand(BATCH.num_edges, generator=seeded(0), dtype=torch.float64)


def build(seed=7, model=None, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ADGCL(model or make_model(), Loss("dcl"), **options).double()


# -- weights in the encoder --------------------------------------------------------------------------------------------


def test_weighted_sums_of_neighbours_by_a_plain_loop(monkeypatch):
    encoder = GIN(4, hidden_channels=8, num_layers=1).double().eval()
    rows = list(BATCH.x)
    for (u, v), w in zip(EDGES, WEIGHT.tolist(), strict=True):
        rows[v] = rows[v] + w * BATCH.x[u]
    norm, expected = encoder.norms[0], [0.0] * BATCH.num_graphs
    for row, g in zip(rows, BATCH.batch.tolist(), strict=True):
        out = encoder.convs[0].nn(row).relu()
        expected[g] = expected[g] + (out - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    arguments = BATCH.x, BATCH.edge_index, BATCH.batch
    h = encoder(*arguments, edge_weight=WEIGHT)
    torch.testing.assert_close(h, torch.stack(expected), rtol=1e-10, atol=1e-12)
    few = Batch.from_data_list([DATA[0], LONE, ODD])
    weight = WEIGHT[: few.num_edges].clone().requires_grad_()
    encoder = GIN(4, hidden_channels=4, num_layers=2).double()
    assert gradcheck(lambda w: encoder(few.x, few.edge_index, few.batch, edge_weight=w), (weight,))

    # The compiled layers, used in float32, do not support weights: weight 1 equals no weights, weight 0 no edge.
    encoder, x = GIN(4, hidden_channels=16), BATCH.x.float()
    keep = WEIGHT < 0.6
    some = encoder(x, BATCH.edge_index[:, keep], BATCH.batch)
    plain = encoder(x, BATCH.edge_index, BATCH.batch)
    monkeypatch.delattr(graphcl.models.gin, "fused_sums")
    for weights, wanted in ((torch.ones_like(keep), plain), (keep, some)):
        found = encoder(x, BATCH.edge_index, BATCH.batch, edge_weight=weights.float())
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


# -- the adversary -----------------------------------------------------------------------------------------------------


def test_edge_weights_and_the_penalty_by_plain_loops():
    """Both directions and parallel edges share one weight; graphs without edges have no penalty."""
    method = build()
    weight = method.edge_weights(BATCH, seeded(3)).tolist()
    _, nodes = copy.deepcopy(method.adversary).encoder.with_nodes(BATCH.x, BATCH.edge_index, BATCH.batch)
    draws = torch.rand(BATCH.num_edges, generator=seeded(3), dtype=torch.float64).tolist()
    scorer, logits = method.edge_scorer, {}
    first = torch.cat([scorer.source.weight, scorer.target.weight], dim=1)
    for u, v in EDGES:
        hidden = (first @ torch.cat([nodes[u], nodes[v]]) + scorer.source.bias).relu()
        logits.setdefault((min(u, v), max(u, v)), []).append((scorer.last.weight @ hidden + scorer.last.bias).item())
    numbers, of = sorted(logits), {}
    for (u, v), got in zip(EDGES, weight, strict=True):
        pair = min(u, v), max(u, v)
        noise = 1e-4 + (1 - 2e-4) * draws[numbers.index(pair)]
        gate = math.fsum(logits[pair]) / len(logits[pair]) + math.log(noise / (1 - noise))
        assert got == pytest.approx(1 / (1 + math.exp(-gate)), rel=1e-9)
        of.setdefault(int(BATCH.batch[u]), []).append(1 - got)
    assert len(of) == 6 < BATCH.num_graphs
    expected = math.fsum(math.fsum(each) / len(each) for each in of.values()) / len(of)
    assert drop_ratio(BATCH, torch.tensor(weight, dtype=torch.float64)).item() == pytest.approx(expected, rel=1e-12)


def test_the_order_of_nodes_does_not_matter(monkeypatch):
    method = build()
    monkeypatch.setattr(torch, "rand", lambda shape, generator, **options: torch.full(shape, 0.3, **options))
    order = torch.randperm(BATCH.num_nodes, generator=seeded(1))
    moved = copy.copy(BATCH)
    moved.x, moved.batch, moved.edge_index = BATCH.x[order], BATCH.batch[order], order.argsort()[BATCH.edge_index]
    torch.testing.assert_close(method.edge_weights(moved), method.edge_weights(BATCH), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(method(moved, moved).loss, method(BATCH, BATCH).loss, rtol=1e-9, atol=1e-11)


def test_the_adversary_starts_with_weights_of_its_own():
    method = build()
    for key, each in method.adversary.encoder.named_parameters():
        mine = method.model.encoder.get_parameter(key)
        assert each.data_ptr() != mine.data_ptr()
        assert torch.equal(each, mine) == (not key.endswith("weight") or "norms" in key), key


# -- the game ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [0.0, 5.0])
def test_one_player_descends_and_the_other_ascends(penalty):
    """Compare value and gradients with the objective without negated gradients."""
    method = build(drop_penalty=penalty)
    again = copy.deepcopy(method)
    got = method(BATCH, BATCH, generator=seeded(1)).loss
    weight = again.edge_weights(BATCH, seeded(1))
    other = again.model.projector(again.model.encode(BATCH, weight))
    expected = dcl(again.model(BATCH), other) - penalty * drop_ratio(BATCH, weight)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    got.backward()
    expected.backward()
    for part, sign in (("model", 1), ("adversary", -1), ("edge_scorer", -1)):
        mine = getattr(method, part)
        assert_close_parameters(mine, getattr(again, part), gradients=True, sign=sign)
        assert sum(float(each.grad.abs().sum()) for each in mine.parameters() if each.grad is not None) > 1e-4


@pytest.mark.parametrize(("player", "sign"), [("model", -1), ("adversary", 1)])
def test_each_player_alone_gets_its_way(player, sign):
    method, values = build(drop_penalty=0.5), []
    optimiser = torch.optim.Adam(getattr(method, player).encoder.parameters(), lr=0.01)
    for _ in range(30):
        loss = method(BATCH, BATCH, generator=seeded(1)).loss
        method.zero_grad()
        loss.backward()
        optimiser.step()
        values.append(loss.item())
    assert sign * (values[-1] - values[0]) > 0.1, values


def test_training_finds_graphs_again_and_a_higher_price_keeps_more_edges():
    """The training loss can rise because of the adversary, so measure that of randomly dropped edges; 3 seeds."""
    batch = pick(graphs(), range(24))
    dropped = (torch.rand(batch.num_edges, generator=seeded(9)) < 0.7).float()

    def trained(penalty, seed):
        """Return by how much training lowers the loss, and the fraction of edges that the adversary keeps."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            method, losses = ADGCL(make_model(), Loss("dcl"), drop_penalty=penalty), []
        for epochs in (0, 10):
            if epochs:
                loader = ResidentLoader(graphs(), 8, shuffle=True, generator=seeded(0))
                train(method, loader, Identity(), Identity(), epochs=epochs, generator=seeded(1))
            with torch.no_grad():
                model = method.model
                losses.append(float(dcl(model(batch), model.projector(model.encode(batch, dropped)))))
        return losses[0] - losses[1], 1 - drop_ratio(batch, method.edge_weights(batch, seeded(0))).item()

    (gain, kept), (dear_gain, dear_kept) = (
        torch.tensor([trained(penalty, seed) for seed in range(3)]).mean(dim=0).tolist() for penalty in (0.0, 20.0)
    )
    assert min(gain, dear_gain) > 0.2
    assert dear_kept > kept + 0.1


def test_graphs_without_any_edge():
    batch = Batch.from_data_list([LONE, Data(x=DATA[0].x, edge_index=LONE.edge_index, y=LONE.y)])
    outcome = build()(batch, batch, generator=seeded(0))
    outcome.loss.backward()
    torch.testing.assert_close(outcome.z1, outcome.z2, rtol=1e-10, atol=1e-12)
    assert outcome.loss.isfinite()


class Weighted(Summed):
    def forward(self, x, edge_index, batch, size, edge_weight=None):
        return super().forward(x, edge_index, batch, size)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: build(model=make_model(encoder=Summed)), r"^Summed takes no `edge_weight`; use gin, or add it to its"),
        (lambda: ContrastiveModel(Summed()).encode(BATCH, WEIGHT), r"^Summed takes no `edge_weight`"),
        (lambda: build(model=make_model(encoder=Weighted)), r"^Weighted returns no node representations; use gin"),
    ],
)
def test_bad_encoders(call, line):
    with pytest.raises(InputError, match=line):
        call()
