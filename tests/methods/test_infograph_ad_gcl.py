"""Test `infograph` and `ad_gcl`, which read single nodes and edges, against plain loops."""

import copy
import math

import pytest
import torch
from torch.nn.functional import softplus
from torch_geometric.data import Batch, Data

from graphcl.errors import InputError
from graphcl.losses import Loss, dcl
from graphcl.losses import rows as module
from graphcl.methods import ADGCL, InfoGraph
from graphcl.methods.ad_gcl import drop_ratio
from graphcl.models.perceptron import make_projector
from tests.methods.small import Summed, graphs, make_model, pick, same_weights, seeded, unit_rows, views_of

DATA = graphs(dtype=torch.float64)
LONE = Data(x=DATA[0].x[:1], edge_index=torch.empty(2, 0, dtype=torch.long), y=DATA[0].y)
# One edge without its reverse, one pair with parallel edges in both directions, and a self-loop.
ODD = Data(x=DATA[1].x[:4], edge_index=torch.tensor([[0, 1, 2, 2, 1, 3], [1, 2, 1, 1, 2, 3]]), y=DATA[0].y)
BATCH = Batch.from_data_list([DATA[0], LONE, ODD, *DATA[1:5]])
EDGES = BATCH.edge_index.T.tolist()


def build(kind, loss, model=None, projector="mlp", seed=7, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(model or make_model(projector=projector), loss, **options).double()


# -- infograph ---------------------------------------------------------------------------------------------------------


def jsd(nodes, graphs_, of):
    """Return Eq. 4: the mean over nodes, plus the mean over nodes and other graphs."""
    total = 0.0
    for v, row in enumerate(nodes):
        for g, graph in enumerate(graphs_):
            sign, share = (-1, 1.0) if g == of[v] else (1, 1 / (len(graphs_) - 1))
            total = total + share * softplus(sign * (row * graph).sum(), threshold=40) / len(nodes)
    return total


def cross_entropy(nodes, graphs_, of):
    total = 0.0
    for v, node in enumerate(unit_rows(nodes)):
        scores = unit_rows(graphs_) @ node / 0.3
        total = total + (scores.logsumexp(0) - scores[of[v]]) / len(nodes)
    return total


@pytest.mark.parametrize(
    ("loss", "by_hand", "head", "limit"),
    [
        (Loss("jsd"), jsd, "residual", 0),
        (Loss("jsd"), jsd, "linear", module.DENSE_LIMIT),
        (Loss("infonce", temperature=0.3), cross_entropy, "linear", 0),
    ],
)
def test_infographs_value_gradient_and_outcome(loss, by_hand, head, limit, monkeypatch):
    monkeypatch.setattr(module, "DENSE_LIMIT", limit)
    method = build(InfoGraph, loss, projector=head)
    again = copy.deepcopy(method)
    outcome, (_, nodes), of = method(BATCH, BATCH), again.model.encode_nodes(BATCH), BATCH.batch.tolist()
    sums = torch.stack([nodes[BATCH.batch == g].sum(0) for g in range(BATCH.num_graphs)])
    local, globals_ = again.local(nodes), again.model.projector(sums)
    expected = by_hand(local, globals_, of)
    torch.testing.assert_close(outcome.loss, expected, rtol=1e-9, atol=1e-11)
    outcome.loss.backward()
    expected.backward()
    same_weights(method, again, gradients=True)
    assert all(each.grad.abs().sum() > 0 for each in method.local.parameters())
    torch.testing.assert_close(outcome.z1, torch.stack([local[of.index(g)] for g in range(7)]), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(outcome.z2, globals_, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(outcome.h, method.model.encode(BATCH), rtol=1e-8, atol=1e-10)


def test_infograph_reads_the_first_view_only_in_any_order_of_its_nodes():
    method, order = build(InfoGraph, "jsd"), torch.randperm(BATCH.num_nodes, generator=seeded(1))
    moved = copy.copy(BATCH)
    moved.x, moved.batch, moved.edge_index = BATCH.x[order], BATCH.batch[order], order.argsort()[BATCH.edge_index]
    torch.testing.assert_close(method(moved, moved).loss, method(BATCH, BATCH).loss, rtol=1e-10, atol=1e-12)
    view1, view2 = views_of(DATA, [0, 1, 2, 3], 0)
    assert torch.equal(method(view1, view2).loss, method(view1, view1).loss)
    assert not torch.equal(method(view2, view1).loss, method(view1, view1).loss)


def test_the_residual_head_is_three_times_linear_and_relu_plus_a_shortcut():
    head = make_projector(3, 2, "residual").double()
    layers = [each for each in head.modules() if isinstance(each, torch.nn.Linear)]
    assert [(each.in_features, each.out_features) for each in layers] == [(3, 3), (3, 3), (3, 2), (3, 2)]
    x = row = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    for layer in layers[:3]:
        row = (layer.weight @ row).clamp(min=0)
    torch.testing.assert_close(head(x[None])[0], row + layers[3].weight @ x)


# -- ad_gcl ------------------------------------------------------------------------------------------------------------


def test_edge_weights_and_the_penalty_by_plain_loops():
    """Both directions and parallel edges share one weight; graphs without edges have no penalty."""
    method = build(ADGCL, "dcl")
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


def test_the_model_descends_and_the_adversary_ascends():
    """Compare value and gradients with the objective without negated gradients; the players share no weights."""
    method = build(ADGCL, "dcl", drop_penalty=5.0)
    for key, each in method.adversary.encoder.named_parameters():
        mine = method.model.encoder.get_parameter(key)
        assert each.data_ptr() != mine.data_ptr()
        assert torch.equal(each, mine) == (not key.endswith("weight") or "norms" in key), key
    again = copy.deepcopy(method)
    got = method(BATCH, BATCH, generator=seeded(1)).loss
    weight = again.edge_weights(BATCH, seeded(1))
    other = again.model.projector(again.model.encode(BATCH, weight))
    expected = dcl(again.model(BATCH), other) - 5.0 * drop_ratio(BATCH, weight)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    got.backward()
    expected.backward()
    for part, sign in (("model", 1), ("adversary", -1), ("edge_scorer", -1)):
        mine = getattr(method, part)
        same_weights(mine, getattr(again, part), gradients=True, sign=sign)
        assert sum(float(each.grad.abs().sum()) for each in mine.parameters() if each.grad is not None) > 1e-4


def test_graphs_without_any_edge_have_two_equal_views():
    batch = Batch.from_data_list([LONE, Data(x=DATA[0].x, edge_index=LONE.edge_index, y=LONE.y)])
    outcome = build(ADGCL, "dcl")(batch, batch, generator=seeded(0))
    outcome.loss.backward()
    torch.testing.assert_close(outcome.z1, outcome.z2, rtol=1e-10, atol=1e-12)
    assert outcome.loss.isfinite()


# -- messages ----------------------------------------------------------------------------------------------------------


class Narrow(Summed):
    def with_nodes(self, x, edge_index, batch):
        return self(x, edge_index, batch, int(batch.max()) + 1), x


def test_bad_input():
    def bad(kind, encoder=None, loss="jsd"):
        return build(kind, loss, make_model(encoder=encoder))

    narrow, one = bad(InfoGraph, Narrow), pick(DATA, [0])
    for call, line in (
        (lambda: bad(InfoGraph, loss=Loss("jsd", negatives="all")), "^`negatives` must not be all with method"),
        (lambda: bad(InfoGraph)(one, None), r"^method `infograph` needs at least two graphs in a batch, got 1\.$"),
        (lambda: bad(InfoGraph, Summed),
         r"^Summed returns no node representations; use gin, gine or Pooled.*, or give it a method .*\[N, H\]\.$"),
        (lambda: narrow(BATCH, BATCH),
         rf"^Narrow\.with_nodes must return \[7, 6\] and \[\d+, 6\], got \[7, 6\] and \[{BATCH.num_nodes}, 4\]\.$"),
        (lambda: bad(ADGCL, Summed, "dcl"), "^Summed takes no `edge_weight`; use gin, or add it to its"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=line):
            call()
