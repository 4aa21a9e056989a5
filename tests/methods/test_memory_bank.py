"""Test `memory_bank` against the equations in the paper, computed with plain numbers."""

import copy
import math

import pytest
import torch
from torch_geometric.loader import DataLoader

from graphcl.augment import Identity, NodeDrop
from graphcl.errors import InputError
from graphcl.loaders.loader import make_loader
from graphcl.loaders.resident import ResidentLoader
from graphcl.losses import Loss
from graphcl.methods import MemoryBank
from graphcl.training.loop import train
from tests.methods.small import (
    FIT,
    WITH_TERMS,
    Summed,
    assert_close_parameters,
    assert_value_and_gradient,
    explicit_terms,
    graphs,
    make_model,
    pick,
    schedule,
    seeded,
    step,
    through_a_file,
    trainable,
    unit,
    unit_rows,
    views_of,
)
from tests.strategies import assert_law, uniform

N = 24
DATA = graphs(N, dtype=torch.float64)


class Spy(Loss):
    """Loss that stores its arguments; copies with other settings add to the same list."""

    def __init__(self, name, **arguments):
        super().__init__(name, **arguments)
        self.calls = []

    def forward(self, z1, z2, **others):
        self.calls.append({"z1": z1.detach(), "z2": z2.detach(), **self.arguments, **others})
        return super().forward(z1, z2, **others)


def build(loss, model=None, n=N, seed=3, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        method = MemoryBank(model or make_model(encoder=Summed), loss, n, **options).double()
    method.bank = unit_rows(method.bank)  # norm 1 in float64 too
    return method


@pytest.mark.parametrize(
    ("encoder", "momentum", "noise", "warmup"),
    [(None, 0.0, 5, 0), (Summed, 0.25, 5, 1), (None, 1.0, 23, 3), (Summed, 0.9, 60, 0)],
)
def test_against_the_papers_equations(encoder, momentum, noise, warmup):
    """Compare several steps with P = e^s / Z, h = P / (P + K / n) and m <- norm(mu m + (1 - mu) v).

    During the warm-up, Z is estimated from each batch. The estimate of the next batch is then kept, also in a file.
    """
    tau, lam = 0.3, 0.1
    loss = Spy("instance_nce", temperature=tau, proximal=lam)
    method = build(loss, make_model(encoder=encoder), momentum=momentum, noise=noise, warmup=warmup)
    optimiser, generator = torch.optim.Adam(trainable(method), lr=0.02), seeded(5)
    model, bank = copy.deepcopy(method.model), [unit(row) for row in method.bank.tolist()]
    visited, settled, other = 0, None, torch.optim.Adam(model.parameters(), lr=0.02)
    for number, ids in enumerate(schedule(N, 7, 8)):
        views = views_of(DATA, ids, number)
        outcome = method(*views, ids=torch.tensor(ids), generator=seeded(0))  # a step without `after_step` is skipped
        torch.testing.assert_close(method.bank, torch.tensor(bank, dtype=torch.float64), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(outcome.z2, method.bank[ids])
        method.model.load_state_dict(model.state_dict())  # BatchNorm's statistics too
        got = step(method, optimiser, views, ids, generator).loss
        drawn = loss.calls[-1]["queue_ids"].tolist()

        v, similar = unit_rows(model(views[0])), []  # for each anchor: own entry, then noise of other graphs
        for i, graph in enumerate(ids):
            entries = torch.tensor([bank[graph], *(bank[j] for j in drawn if j != graph)], dtype=torch.float64)
            similar.append((entries @ v[i] / tau).exp())
        z = settled or N * torch.cat([row[1:] for row in similar]).mean().item()
        settled = z if visited >= warmup * N else None
        visited += len(ids)
        value = 0.0
        for i, row in enumerate(similar):
            p = row / z
            h = p / (p + (len(row) - 1) / N)
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
        assert_close_parameters(method.model, model)
        assert method.log_z == (settled and pytest.approx(math.log(settled / N), abs=1e-6))
        again = build(loss, make_model(encoder=encoder), seed=8)
        again.load_state_dict(through_a_file(method.state_dict()))
        assert (again.log_z, again._visits) == (method.log_z, visited)
        bank_before = method.bank.clone()
        method.after_step()
        assert torch.equal(method.bank, bank_before), "a visit counts once"


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("name", WITH_TERMS)
def test_the_loss_of_chosen_negatives(name, symmetric):
    """Only noise of other graphs is negative. A symmetric loss and the new entries are means over both views."""
    loss = Spy(name, symmetric=symmetric)
    method = build(loss, noise=14, momentum=0.25)
    ids, views = [2, 5, 9, 13], views_of(DATA, [2, 5, 9, 13], 4)
    got, model = method(*views, ids=torch.tensor(ids), generator=seeded(1)).loss, copy.deepcopy(method.model)
    drawn = loss.calls[0]["queue_ids"].tolist()
    assert len(drawn) == 14
    assert [call["queue_ids"].tolist() for call in loss.calls] == [drawn] * (1 + symmetric)
    assert set(drawn) & set(ids)  # so that some noise entries are excluded
    negatives = [method.bank[[j for j in drawn if j != graph]] for graph in ids]
    terms = [explicit_terms(name, model(view), method.bank[ids], negatives) for view in views[: 1 + symmetric]]
    assert_value_and_gradient(got, torch.cat(terms).mean(), method.model, model)
    assert method.log_z is None

    old = method.bank.clone()
    method.after_step()
    mean = torch.stack([unit_rows(model(view)) for view in views[: 1 + symmetric]]).mean(dim=0)
    torch.testing.assert_close(method.bank[ids], unit_rows(0.25 * old[ids] + 0.75 * mean))
    rest = [graph for graph in range(N) if graph not in ids]
    assert torch.equal(method.bank[rest], old[rest])


@pytest.mark.parametrize("batch_size", [5, 23])
def test_training_knows_which_graphs_a_batch_holds(batch_size):
    """With mu = 0 and a tiny learning rate, one epoch sets each bank entry to the projection of its graph."""
    data = graphs(N)
    for loader in (
        ResidentLoader(data, batch_size, shuffle=True, generator=seeded(2)),
        DataLoader(data, batch_sampler=make_loader(data, batch_size, True, seeded(2)).batch_sampler),
    ):
        method = build(Loss("instance_nce"), momentum=0.0, noise=10).float()
        train(method, loader, Identity(), NodeDrop(0.5), epochs=1, lr=1e-20, generator=seeded(0))
        expected = unit_rows(method.model(pick(data, range(N))).detach())
        torch.testing.assert_close(method.bank, expected, rtol=1e-5, atol=1e-6)


def test_noise_is_uniform_and_drawn_from_the_bank_by_the_generator():
    loss = Spy("instance_nce")
    method, views, generator = build(loss, n=9, noise=8), views_of(DATA, [1, 2], 0), seeded(0)
    for each in (generator, *[seeded(0)] * 1, *[generator] * 150):
        method(*views, ids=torch.tensor([1, 2]), generator=each)
    first, same, other = (call["queue_ids"] for call in loss.calls[:3])
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(loss.calls[0]["queue"], method.bank[first])
    assert_law([graph for call in loss.calls for graph in call["queue_ids"].tolist()], uniform(range(9)))
    loss, state = Spy("instance_nce"), torch.get_rng_state()
    for noise in (24, 4096):  # as much noise as graphs takes every entry once, without a draw
        build(loss, noise=noise)(*views, ids=torch.tensor([1, 2]))
        assert sorted(loss.calls[-1]["queue_ids"].tolist()) == list(range(N))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", FIT)
def test_noise_of_the_own_graph_alone_leaves_a_finite_gradient(name):
    for seed in range(3):
        method = build(Loss(name), n=2, noise=1)
        value = method(*views_of(DATA, [0, 1], 0), ids=torch.tensor([0, 1]), generator=seeded(seed)).loss
        value.backward()
        assert value.isfinite()
        assert all(each.grad.isfinite().all() for each in method.model.parameters())


def test_a_log_z_of_the_users_stays_the_users_and_ids_must_be_in_the_bank():
    loss = Spy("instance_nce", log_z=0.7)
    method = build(loss, warmup=0)
    for number in range(2):
        method(*views_of(DATA, list(range(N)), number), ids=torch.arange(N))
        method.after_step()
    assert method.log_z is None
    assert all("log_z" not in call or call["log_z"] == 0.7 for call in loss.calls)
    for wrong in ([0, N], [N + 100, 3], [0, -1]):
        with pytest.raises(InputError, match=r"^`ids` must be in 0 \.\. 23, the graphs of the bank, got"):
            method(*views_of(DATA, [0, 1], 0), ids=torch.tensor(wrong))
    with pytest.raises(InputError, match=r"needs the indices of a batch's graphs"):
        train(method.float(), DataLoader(graphs(N), 8), Identity(), NodeDrop(0.2), epochs=1)
