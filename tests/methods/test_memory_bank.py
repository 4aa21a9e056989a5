"""Test the method `memory_bank` against the equations in the paper, computed with plain numbers."""

import copy
import math

import pytest
import torch
from torch_geometric.loader import DataLoader

from graphcl.augment import Identity, NodeDrop
from graphcl.datasets.loader import make_loader
from graphcl.datasets.resident import ResidentLoader
from graphcl.errors import InputError
from graphcl.losses import Loss, explicit
from graphcl.methods import MemoryBank
from graphcl.registry import losses
from graphcl.training.loop import train
from tests.methods.small import (
    Summed,
    assert_same_state,
    dot,
    graphs,
    make_model,
    pick,
    schedule,
    seeded,
    step,
    through_a_file,
    trainable,
    unit,
    views_of,
)
from tests.strategies import assert_law, uniform

N = 24
DATA = graphs(N, dtype=torch.float64)
FIT = [name for name in losses if Loss(name).accepts("queue") and Loss(name).accepts("symmetric")]


class Spy(Loss):
    """Loss that stores its arguments."""

    def forward(self, z1, z2, **others):
        self.__dict__.setdefault("calls", []).append({"z1": z1.detach(), "z2": z2.detach(), **others})
        return super().forward(z1, z2, **others)


def build(loss, model=None, n=N, seed=3, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        method = MemoryBank(model or make_model(encoder=Summed), loss, n, **options).double()
    method.bank = torch.nn.functional.normalize(method.bank)  # norm 1 in float64 too
    return method


# -- the whole training ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoder", "momentum", "noise", "warmup"),
    [(None, 0.0, 5, 0), (Summed, 0.5, 5, 1), (None, 0.5, 23, 3), (Summed, 0.9, 24, 0), (Summed, 0.5, 60, 1)],
)
def test_against_the_papers_equations(encoder, momentum, noise, warmup):
    """Compare several steps with P = e^s / Z, h = P / (P + K / n) and m <- norm(mu m + (1 - mu) v).

    During the warm-up, Z is estimated from each batch. The estimate of the next batch is then kept.
    """
    tau, lam, lr = 0.3, 0.1, 0.02
    loss = Spy("instance_nce", temperature=tau, proximal=lam)
    method = build(loss, make_model(encoder=encoder), momentum=momentum, noise=noise, warmup=warmup)
    optimiser, generator = torch.optim.Adam(trainable(method), lr=lr), seeded(5)

    model, bank = copy.deepcopy(method.model), [unit(row) for row in method.bank.tolist()]
    visited, settled = 0, None
    other = torch.optim.Adam(model.parameters(), lr=lr)
    for number, ids in enumerate(schedule(N, 7, 8)):
        views = views_of(DATA, ids, number)
        got = step(method, optimiser, views, ids, generator).loss
        drawn = loss.calls[-1]["queue_ids"].tolist()

        v = model(views[0])
        v = [row / row.square().sum().sqrt() for row in v]
        similar = []  # for each anchor: own entry, then noise of other graphs
        for i, graph in enumerate(ids):
            others = [j for j in drawn if j != graph]
            rows = torch.tensor([bank[graph], *(bank[j] for j in others)], dtype=torch.float64)
            similar.append((rows @ v[i] / tau).exp())
        z = settled or N * torch.cat([row[1:] for row in similar]).mean().item()
        settled = z if visited >= warmup * N else None
        visited += len(ids)
        value = 0.0
        for i, row in enumerate(similar):
            count, p = len(row) - 1, row / z
            h = p / (p + count / N)
            own = torch.tensor(bank[ids[i]], dtype=torch.float64)
            value = value - h[0].log() - (1 - h[1:]).log().sum() + lam * (v[i] - own).square().sum()
        value = value / len(ids)
        other.zero_grad()
        value.backward()
        other.step()
        for i, graph in enumerate(ids):
            new = v[i].tolist()
            bank[graph] = unit([momentum * a + (1 - momentum) * b for a, b in zip(bank[graph], new, strict=True)])

        torch.testing.assert_close(got.detach(), value.detach(), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(method.bank, torch.tensor(bank, dtype=torch.float64), rtol=1e-6, atol=1e-6)
        for a, b in zip(method.model.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    assert method.log_z == (settled and pytest.approx(math.log(settled / N), abs=1e-6))


# -- the bank ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("name", ["instance_nce", "adnce"])
def test_entries_move_after_the_step_and_only_those_of_the_batch(name, momentum):
    method = build(Loss(name), momentum=momentum, noise=9)
    ids, views = [20, 3, 11], views_of(DATA, [20, 3, 11], 0)
    before = method.bank.clone()
    assert torch.allclose(before.norm(dim=1), torch.ones(N, dtype=torch.float64))
    outcome = method(*views, ids=torch.tensor(ids))
    outcome.loss.backward()
    assert torch.equal(method.bank, before), "moved before the step"
    assert torch.equal(outcome.z2, before[ids])
    method.after_step()
    rest = [graph for graph in range(N) if graph not in ids]
    assert torch.equal(method.bank[rest], before[rest])

    z = [method.model(view).tolist() for view in views]
    for row, graph in enumerate(ids):
        v = unit(z[0][row])
        if name == "adnce":  # symmetric: mean over both views
            v = [(a + b) / 2 for a, b in zip(v, unit(z[1][row]), strict=True)]
        wanted = unit([momentum * a + (1 - momentum) * b for a, b in zip(before[graph].tolist(), v, strict=True)])
        assert method.bank[graph].tolist() == pytest.approx(wanted, abs=1e-12)
    after = method.bank.clone()
    method.after_step()
    assert torch.equal(method.bank, after), "a visit counts once"


def test_it_is_a_buffer_without_a_gradient():
    method = build(Loss("instance_nce"))
    assert not method.bank.requires_grad
    assert {id(each) for each in trainable(method)} == {id(each) for each in method.model.parameters()}
    assert "bank" in method.state_dict()


@pytest.mark.parametrize("batch_size", [5, 8, 23])
def test_training_knows_which_graphs_a_batch_holds(batch_size):
    """With mu = 0 and a tiny learning rate, one epoch sets each bank entry to the projection of its graph."""
    data = graphs(N)
    for loader in (
        ResidentLoader(data, batch_size, shuffle=True, generator=seeded(2)),
        DataLoader(data, batch_sampler=make_loader(data, batch_size, True, seeded(2)).batch_sampler),
    ):
        method = build(Loss("instance_nce"), momentum=0.0, noise=10).float()
        train(method, loader, Identity(), NodeDrop(0.5), epochs=1, lr=1e-20, generator=seeded(0))
        expected = torch.nn.functional.normalize(method.model(pick(data, range(N))).detach())
        torch.testing.assert_close(method.bank, expected, rtol=1e-5, atol=1e-6)


# -- noise -------------------------------------------------------------------------------------------------------------


def test_noise_is_drawn_from_the_bank_by_the_generator():
    loss = Spy("instance_nce")
    method = build(loss, noise=15)
    views, ids = views_of(DATA, [1, 2, 3], 0), torch.tensor([1, 2, 3])
    for seed in (0, 0, 1):
        method(*views, ids=ids, generator=seeded(seed))
    first, same, other = (call["queue_ids"] for call in loss.calls)
    assert first.shape == (15,)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    for call in loss.calls:
        assert torch.equal(call["queue"], method.bank[call["queue_ids"]])
        assert torch.equal(call["z2"], method.bank[ids])
        assert torch.equal(call["ids"], ids)


def test_noise_is_uniform():
    loss = Spy("instance_nce")
    method = build(loss, n=9, noise=8)
    views, generator = views_of(DATA, [1, 2], 0), seeded(0)
    for _ in range(200):
        method(*views, ids=torch.tensor([1, 2]), generator=generator)
    assert_law([graph for call in loss.calls for graph in call["queue_ids"].tolist()], uniform(range(9)))


@pytest.mark.parametrize("noise", [24, 25, 4096])
def test_as_much_noise_as_graphs_takes_every_entry_once(noise):
    loss = Spy("instance_nce")
    method = build(loss, noise=noise)
    state = torch.get_rng_state()
    method(*views_of(DATA, [1, 2], 0), ids=torch.tensor([1, 2]))
    assert sorted(loss.calls[0]["queue_ids"].tolist()) == list(range(N))
    assert torch.equal(torch.get_rng_state(), state)  # no draw is needed


@pytest.mark.parametrize("filler", ["own", "far"])
def test_the_anchors_own_entry_is_no_negative(filler):
    """With filler `own`, an anchor's bank entry equals its projection, which would be the hardest negative."""
    tau = 0.1
    method = build(Loss("infonce", temperature=tau, symmetric=False), noise=N)
    ids, views = [4, 9, 17], views_of(DATA, [4, 9, 17], 0)
    v = [unit(row) for row in method.model(views[0]).tolist()]
    method.bank[ids] = torch.tensor(v, dtype=torch.float64) * (1 if filler == "own" else -1)
    bank = method.bank.tolist()
    total = 0.0
    for row, graph in zip(v, ids, strict=True):
        s = [dot(row, bank[j]) / tau for j in range(N)]
        total += (math.log(sum(math.exp(each) for each in s)) - s[graph]) / 3  # own entry is the positive only
    assert method(*views, ids=torch.tensor(ids)).loss.item() == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("name", FIT)
def test_noise_of_the_own_graph_alone_leaves_a_finite_gradient(name):
    """The only noise entry belongs to one of the two graphs, so this graph has no negative."""
    for seed in range(3):
        loss = Spy(name)
        method = build(loss, n=2, noise=1)
        value = method(*views_of(DATA, [0, 1], 0), ids=torch.tensor([0, 1]), generator=seeded(seed)).loss
        value.backward()
        assert value.isfinite()
        assert all(each.grad.isfinite().all() for each in method.model.parameters())
        if seed == 0:
            assert loss.calls[0]["queue"].shape[0] == 1


# -- the normaliser ----------------------------------------------------------------------------------------------------


def test_without_a_warm_up_log_z_is_that_of_the_first_batch():
    loss = Spy("instance_nce")
    method = build(loss, warmup=0, noise=5)
    optimiser = torch.optim.Adam(trainable(method), lr=0.05)
    step(method, optimiser, views_of(DATA, [0, 1, 2], 0), [0, 1, 2], seeded(0))
    first = method.log_z
    assert isinstance(first, float)
    for number, ids in enumerate(schedule(N, 8, 4)):
        step(method, optimiser, views_of(DATA, ids, number), ids, seeded(number))
    assert method.log_z == first
    assert [call["log_z"] for call in loss.calls] == [first] * 5


def test_by_default_three_passes_go_before():
    method = build(Loss("instance_nce"), n=4)
    for visit in range(8):  # of two of the four graphs
        method(*views_of(DATA, [0, 1], visit), ids=torch.tensor([0, 1]))
        method.after_step()
        assert (method.log_z is None) == (visit < 6)


def test_a_skipped_step_leaves_log_z():
    """`after_step` stores the estimate. A skipped step does not call it."""
    method = build(Loss("instance_nce"), warmup=0)
    method(*views_of(DATA, [0, 1], 0), ids=torch.tensor([0, 1]))
    assert method.log_z is None


def test_log_z_settles_after_the_warm_up():
    """With seven graphs and batches of three, the fourth batch is the first after one pass."""
    tau, loss = 0.3, Spy("instance_nce", temperature=0.3)
    method = build(loss, n=7, noise=5, warmup=1)
    optimiser, plan = torch.optim.Adam(trainable(method), lr=0.05), [[0, 1, 2], [3, 4, 5], [6, 0, 1]]
    for number, ids in enumerate(plan):
        assert method.log_z is None
        step(method, optimiser, views_of(DATA, ids, number), ids, seeded(number))
        assert loss.calls[-1].get("log_z") is None
    ids, views = [2, 3, 4], views_of(DATA, [2, 3, 4], 3)
    v, bank = [unit(row) for row in method.model(views[0]).tolist()], method.bank.tolist()
    step(method, optimiser, views, ids, seeded(3))
    drawn = loss.calls[-1]["queue_ids"].tolist()
    e = [math.exp(dot(v[i], bank[j]) / tau) for i in range(3) for j in drawn if j != ids[i]]
    first = method.log_z
    assert isinstance(first, float)
    assert first == pytest.approx(math.log(sum(e) / len(e)), abs=1e-9)
    for number in range(4, 8):
        step(method, optimiser, views_of(DATA, [5, 6, number - 4], number), [5, 6, number - 4], seeded(number))
    assert method.log_z == first
    assert [call["log_z"] for call in loss.calls[3:]] == [first] * 5


@pytest.mark.parametrize("steps", [0, 2, 3, 4, 6])
def test_log_z_and_the_way_to_it_survive_a_file(steps):
    loss, again_loss = Spy("instance_nce"), Spy("instance_nce")
    options = {"n": 7, "noise": 5, "warmup": 1}
    method, again = build(loss, **options), build(again_loss, seed=8, **options)
    for number in range(steps):
        method(*views_of(DATA, [0, 1, 2], number), ids=torch.tensor([0, 1, 2]), generator=seeded(number))
        method.after_step()
    again.load_state_dict(through_a_file(method.state_dict()))
    assert again.log_z == method.log_z
    assert (method.log_z is None) == (steps <= 3)
    for number in range(3):
        for each in (method, again):
            each(*views_of(DATA, [3, 4, 5], number), ids=torch.tensor([3, 4, 5]), generator=seeded(number))
            each.after_step()
        assert again.log_z == method.log_z
        assert again_loss.calls[-1].get("log_z") == loss.calls[-1].get("log_z")
    assert (method.log_z is None) == (steps + 3 <= 3)


def test_a_log_z_of_the_users_stays_the_users():
    loss = Spy("instance_nce", log_z=0.7)
    method = build(loss, warmup=0)
    for number in range(2):
        method(*views_of(DATA, list(range(N)), number), ids=torch.arange(N))
        method.after_step()
    assert method.log_z is None
    assert all("log_z" not in call or call["log_z"] == 0.7 for call in loss.calls)
    assert loss.setting("log_z") == 0.7


# -- with other losses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("name", ["infonce", "moco", "dcl", "adnce", "hcl", "mean_variance", "triplet"])
def test_the_loss_of_chosen_negatives(name, symmetric):
    """Only noise entries are negatives. A symmetric loss is the mean over both views."""
    loss = Spy(name, symmetric=symmetric)
    method = build(loss, noise=14)
    ids, views = [2, 5, 9, 13], views_of(DATA, [2, 5, 9, 13], 4)
    got = method(*views, ids=torch.tensor(ids), generator=seeded(1)).loss
    got.backward()
    assert len(loss.calls) == 1 + symmetric
    drawn = loss.calls[0]["queue_ids"].tolist()
    assert all(call["queue_ids"].tolist() == drawn for call in loss.calls)
    assert set(drawn) & set(ids)  # so that some noise entries are excluded

    model, terms = copy.deepcopy(method.model), []
    model.zero_grad()
    for view in views[: 1 + symmetric]:
        v = model(view)
        for i, graph in enumerate(ids):
            negatives = method.bank[[j for j in drawn if j != graph]]
            pairs = explicit(v[i : i + 1], method.bank[graph][None], negatives)
            terms.append(losses[name].terms(pairs))
    expected = torch.cat(terms).mean()
    expected.backward()
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)
    for mine, theirs in zip(method.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-8, atol=1e-11)
    assert method.log_z is None


# -- what it needs, and going on ---------------------------------------------------------------------------------------

MUST_KNOW = r"^method `memory_bank` needs the indices of a batch's graphs; use ResidentLoader or make_loader\.$"


def test_ids_are_needed():
    method = build(Loss("instance_nce"))
    before = copy.deepcopy(method.state_dict())
    with pytest.raises(InputError, match=MUST_KNOW):
        method(*views_of(DATA, [0, 1], 0))
    assert_same_state(method.state_dict(), before)
    with pytest.raises(InputError, match=MUST_KNOW):
        train(method.float(), DataLoader(graphs(N), 8, shuffle=True), Identity(), NodeDrop(0.2), epochs=1)


@pytest.mark.parametrize("wrong", [[0, N], [N + 100, 3], [0, -1]])
def test_ids_beyond_the_bank_are_rejected(wrong):
    method = build(Loss("instance_nce"))
    with pytest.raises(InputError, match="ids") as caught:
        method(*views_of(DATA, [0, 1], 0), ids=torch.tensor(wrong))
    assert "\n" not in str(caught.value)
