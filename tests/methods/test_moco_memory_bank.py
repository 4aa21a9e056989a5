"""Test `moco` with its `KeyQueue`, and `memory_bank`, against plain loops written from the papers."""

import copy
import math
from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.methods import KeyQueue, MemoryBank, MoCo
from tests.methods.small import (
    Summed,
    graphs,
    make_model,
    reload,
    same_state,
    same_weights,
    schedule,
    seeded,
    step,
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
        self.calls.append({**self.arguments, **others})
        return super().forward(z1, z2, **others)


# -- moco --------------------------------------------------------------------------------------------------------------


def moco(loss, encoder=Summed, **options):
    return MoCo(make_model(encoder=encoder), loss, **options).double()


def cross_entropies(queries, keys, queue, ids, batch_too):
    """Return the mean over queries of -log softmax of the positive key. `queue` holds pairs (graph, key)."""
    total = 0.0
    for i, q in enumerate(unit_rows(queries)):
        logits = [q @ keys[i]]
        logits += [q @ keys[j] for j in range(len(queries)) if j != i and (batch_too or not queue)]
        logits += [q @ key for graph, key in queue if ids is None or graph != ids[i]]
        logits = torch.stack(logits) / 0.2
        total = total - logits[0] + logits.logsumexp(0)
    return total / len(queries)


@pytest.mark.parametrize(
    ("loss", "known", "encoder", "queue_size", "m"),
    [
        (Loss("moco", temperature=0.2, symmetric=True), False, Summed, 100, 0.7),
        (Loss("infonce", symmetric=False), True, Summed, 30, 1.0),
        (Loss("infonce"), True, None, 10, 0.4),
        (Loss("infonce"), False, Summed, 0, 0.0),
    ],
    ids=str,
)
def test_moco_against_the_papers_pseudo_code(loss, known, encoder, queue_size, m):
    """The momentum encoder is updated at the start of a step; in the paper, at the end of the step before."""
    method = moco(loss, encoder, momentum=m, queue_size=queue_size)
    optimiser = torch.optim.Adam(trainable(method), lr=0.02)
    f_q, f_k = copy.deepcopy(method.model), copy.deepcopy(method.model)
    other, queue = torch.optim.Adam(f_q.parameters(), lr=0.02), deque(maxlen=queue_size)
    for number, ids in enumerate(schedule(len(DATA), 7, 5)):  # the last batch repeats graphs that are in the queue
        views, named = views_of(DATA, ids, number), ids if known else None
        outcome = step(method, optimiser, views, named)

        values, new = [], []
        for x_q, x_k in (views, views[::-1])[: 1 + loss.setting("symmetric")]:
            q, k = f_q(x_q), unit_rows(f_k(x_k).detach())
            values.append(cross_entropies(q, k, queue, named, loss.name == "infonce"))
            new += [(graph if known else -1, key) for graph, key in zip(ids, k, strict=True)]
        value = sum(values) / len(values)
        other.zero_grad()
        value.backward()
        other.step()
        same_weights(method.momentum_model, f_k)
        for slow, fast in zip(f_k.parameters(), f_q.parameters(), strict=True):
            slow.data = m * slow.data + (1 - m) * fast.data
        queue.extend(new)

        torch.testing.assert_close(outcome.loss, value, rtol=1e-6, atol=1e-6)
        same_weights(method.model, f_q)
        mine = sorted(zip(method.queue.ids.tolist(), method.queue.keys.tolist(), strict=True))
        theirs = sorted((graph, key.tolist()) for graph, key in queue)
        assert [graph for graph, _ in mine] == [graph for graph, _ in theirs]
        torch.testing.assert_close([key for _, key in mine], [key for _, key in theirs], rtol=0, atol=1e-6)
    assert all(each.grad is None and not each.requires_grad for each in method.momentum_model.parameters())


def test_only_a_step_changes_mocos_state_and_only_once():
    method = moco(Loss("infonce"), None, momentum=0.5, queue_size=20)
    step(method, torch.optim.Adam(trainable(method), lr=0.05), views_of(DATA, [4, 2, 8], 0), [4, 2, 8])
    assert method.queue.ids.tolist() == [4, 2, 8, 4, 2, 8]  # both directions
    method.after_step()
    before = copy.deepcopy(method.state_dict())
    method.eval()
    method(*views_of(DATA, [1, 2], 1), ids=torch.tensor([1, 2]))
    same_state(method.state_dict(), before)


def test_moco_takes_any_function_of_queries_keys_and_queue():
    """A plain function has no argument `symmetric`, so only one direction is computed."""
    seen = []

    def own(query, key, queue, **others):
        seen.append((list(queue.shape), sorted(others)))
        return -(query * key).sum(dim=1).mean()

    method = moco(own, queue_size=10)
    optimiser = torch.optim.Adam(trainable(method), lr=0.01)
    for number in range(2):
        step(method, optimiser, views_of(DATA, [0, 1, 2], number), [0, 1, 2])
    assert seen == [([0, 6], ["symmetric"]), ([3, 6], ["ids", "queue_ids", "symmetric"])]


ADDITIONS = st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=10)


@settings(max_examples=30, deadline=None)
@given(size=st.integers(0, 9), before=ADDITIONS, after=ADDITIONS)
def test_a_queue_is_a_deque_of_its_own_dtype_also_after_loading(size, before, after):
    queue, plain, total = KeyQueue(size, 3), deque(maxlen=size), 0
    for number, (count, known) in enumerate([*before, *after]):
        if number == len(before):
            restored = KeyQueue(size, 3)
            restored.add(torch.ones(4, 3), torch.arange(90, 94))  # overwritten by the loaded state
            restored.load_state_dict(reload(queue.state_dict()))
            queue = restored
        ids = torch.arange(total, total + count)
        keys = (ids[:, None] * torch.tensor([1.0, -0.5, 0.25])).double().requires_grad_()
        queue.add(keys, ids if known else None)
        plain.extend((n if known else -1, key) for n, key in zip(ids.tolist(), keys.tolist(), strict=True))
        total += count
        ids.zero_()  # the queue holds a copy
        assert len(queue) == len(plain) == min(size, total)
        assert (queue.keys.dtype, queue.keys.requires_grad) == (torch.float32, False)
        assert sorted(zip(queue.ids.tolist(), queue.keys.tolist(), strict=True)) == sorted(plain)
    assert not list(queue.parameters())


# -- memory_bank -------------------------------------------------------------------------------------------------------


def memory_bank(loss, encoder=Summed, n=N, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        method = MemoryBank(make_model(encoder=encoder), loss, n, **options).double()
    method.bank = unit_rows(method.bank)  # norm 1 in float64 too
    return method


@pytest.mark.parametrize(
    ("encoder", "momentum", "noise", "warmup"), [(None, 0.0, 5, 0), (Summed, 0.25, 5, 1), (None, 0.9, 60, 0)]
)
def test_memory_bank_against_the_papers_equations(encoder, momentum, noise, warmup):
    """Compare several steps with P = e^s / Z, h = P / (P + K / n) and m <- norm(mu m + (1 - mu) v).

    During the warm-up, Z is estimated from each batch. The estimate of the next batch is then kept.
    """
    tau, lam = 0.3, 0.1
    loss = Spy("instance_nce", temperature=tau, proximal=lam)
    method = memory_bank(loss, encoder, momentum=momentum, noise=noise, warmup=warmup)
    optimiser, generator = torch.optim.Adam(trainable(method), lr=0.02), seeded(5)
    model, bank = copy.deepcopy(method.model), [unit(row) for row in method.bank.tolist()]
    visited, settled, other = 0, None, torch.optim.Adam(model.parameters(), lr=0.02)
    for number, ids in enumerate(schedule(N, 7, 6)):
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
        same_weights(method.model, model)
        assert method.log_z == (settled and pytest.approx(math.log(settled / N), abs=1e-6))
        bank_before = method.bank.clone()
        method.after_step()
        assert torch.equal(method.bank, bank_before), "a visit counts once"


@pytest.mark.parametrize("symmetric", [False, True])
def test_memory_bank_with_another_loss_and_both_views(symmetric):
    """Only noise of other graphs is negative. A symmetric loss and the new entries are means over both views."""
    ids, views, loss = [2, 5, 9, 13], views_of(DATA, [2, 5, 9, 13], 4), Spy("infonce", symmetric=symmetric)
    method = memory_bank(loss, noise=14, momentum=0.25)
    got, old = method(*views, ids=torch.tensor(ids), generator=seeded(1)).loss, method.bank.clone()
    drawn, value, v = loss.calls[0]["queue_ids"].tolist(), 0.0, []
    assert [call["queue_ids"].tolist() for call in loss.calls] == [drawn] * (1 + symmetric)
    assert set(drawn) & set(ids)  # so that some noise entries are excluded
    for view in views[: 1 + symmetric]:
        v.append(unit_rows(method.model(view)))
        for graph, row in zip(ids, v[-1], strict=True):
            scores = old[[graph, *(j for j in drawn if j != graph)]] @ row / loss.setting("temperature")
            value = value + (scores.logsumexp(0) - scores[0]) / (len(ids) * (1 + symmetric))
    torch.testing.assert_close(got, value, rtol=1e-10, atol=1e-12)
    method.after_step()
    expected = old.clone()
    expected[ids] = unit_rows(0.25 * old[ids] + 0.75 * torch.stack(v).mean(dim=0)).detach()
    torch.testing.assert_close(method.bank, expected)


def test_noise_is_uniform_and_drawn_from_the_bank_by_the_generator():
    loss, ids = Spy("instance_nce"), torch.tensor([1, 2])
    method, views, generator = memory_bank(loss, n=9, noise=8), views_of(DATA, [1, 2], 0), seeded(0)
    for each in (generator, seeded(0), *[generator] * 60):
        method(*views, ids=ids, generator=each)
    first, same, other = (call["queue_ids"] for call in loss.calls[:3])
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(loss.calls[0]["queue"], method.bank[first])
    assert_law([graph for call in loss.calls for graph in call["queue_ids"].tolist()], uniform(range(9)))
    state = torch.get_rng_state()
    memory_bank(loss, noise=24)(*views, ids=ids)  # as much noise as graphs takes every entry once, without a draw
    assert sorted(loss.calls[-1]["queue_ids"].tolist()) == list(range(N))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_log_z_of_the_users_stays_the_users_and_ids_must_be_in_the_bank():
    loss = Spy("instance_nce", log_z=0.7)
    method = memory_bank(loss, warmup=0)
    for number in range(2):
        method(*views_of(DATA, list(range(N)), number), ids=torch.arange(N))
        method.after_step()
    assert method.log_z is None
    assert all(call["log_z"] == 0.7 for call in loss.calls)
    with pytest.raises(
        InputError, match=r"^`temperature` of loss `instance_nce` must be a number, as .*; or pass `log_z`\."
    ):
        memory_bank(Loss("instance_nce", temperature="learn"))
    for wrong in ([0, N], [0, -1]):
        with pytest.raises(InputError, match=r"^`ids` must be in 0 \.\. 23, got"):
            method(*views_of(DATA, [0, 1], 0), ids=torch.tensor(wrong))
