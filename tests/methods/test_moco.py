"""Test `moco` and its `KeyQueue` against the pseudo-code in the paper, with a deque and plain loops."""

import copy
from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.methods import KeyQueue, MoCo
from tests.methods.small import (
    FIT,
    WITH_TERMS,
    Summed,
    assert_close_parameters,
    assert_same_state,
    assert_value_and_gradient,
    explicit_terms,
    graphs,
    make_model,
    schedule,
    seeded,
    step,
    through_a_file,
    trainable,
    unit_rows,
    views_of,
)

DATA = graphs(dtype=torch.float64)


def build(loss, model=None, **options):
    return MoCo(model or make_model(encoder=Summed), loss, **options).double()


def fill(method, ids, seed=9):
    """Append random keys of the graphs `ids` to the queue."""
    rows = torch.randn(len(ids), method.model.projection, generator=seeded(seed), dtype=torch.float64)
    method.queue.add(unit_rows(rows), torch.tensor(ids))
    return unit_rows(rows)


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
        (Loss("moco", temperature=0.2), True, None, 10, 0.7),
        (Loss("moco", temperature=0.2, symmetric=True), False, Summed, 100, 0.7),
        (Loss("infonce", symmetric=False), True, Summed, 15, 1.0),
        (Loss("infonce"), True, None, 10, 0.4),
        (Loss("infonce"), False, Summed, 0, 0.0),
    ],
    ids=str,
)
def test_against_the_papers_pseudo_code(loss, known, encoder, queue_size, m):
    """The momentum encoder is updated at the start of a step; in the paper, at the end of the step before."""
    method = build(loss, make_model(encoder=encoder), momentum=m, queue_size=queue_size)
    optimiser = torch.optim.Adam(trainable(method), lr=0.02)
    f_q, f_k = copy.deepcopy(method.model), copy.deepcopy(method.model)
    other, queue = torch.optim.Adam(f_q.parameters(), lr=0.02), deque(maxlen=queue_size)
    for number, ids in enumerate(schedule(len(DATA), 7, 6)):
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
        assert_close_parameters(method.momentum_model, f_k)
        for slow, fast in zip(f_k.parameters(), f_q.parameters(), strict=True):
            slow.data = m * slow.data + (1 - m) * fast.data
        queue.extend(new)

        torch.testing.assert_close(outcome.loss, value, rtol=1e-6, atol=1e-6)
        assert_close_parameters(method.model, f_q)
        assert sorted(method.queue.ids.tolist()) == sorted(graph for graph, _ in queue)
        mine, theirs = (sorted(torch.stack([*keys]).tolist()) if queue else [] for keys in (
            method.queue.keys, [key for _, key in queue]))  # fmt: skip
        torch.testing.assert_close(torch.tensor(mine), torch.tensor(theirs), rtol=0, atol=1e-6)
    assert all(each.grad is None and not each.requires_grad for each in method.momentum_model.parameters())


def test_only_a_step_changes_the_state_and_only_once():
    method = build(Loss("infonce"), make_model(), momentum=0.5, queue_size=20)
    step(method, torch.optim.Adam(trainable(method), lr=0.05), views_of(DATA, [4, 2, 8], 0), [4, 2, 8])
    assert method.queue.ids.tolist() == [4, 2, 8, 4, 2, 8]  # both directions
    method.after_step()
    before = copy.deepcopy(method.state_dict())
    method.eval()
    method(*views_of(DATA, [1, 2], 1), ids=torch.tensor([1, 2]))
    assert_same_state(method.state_dict(), before)


@pytest.mark.parametrize("name", FIT)
def test_a_queue_of_own_keys_only_leaves_a_finite_gradient(name):
    for symmetric in (False, True):
        method = build(Loss(name, symmetric=symmetric), momentum=1.0, queue_size=50)
        fill(method, [3, 3, 3, 3])
        outcome = method(*views_of(DATA, [3, 7], 0), ids=torch.tensor([3, 7]))
        outcome.loss.backward()
        assert outcome.loss.isfinite()
        assert all(each.grad is None or each.grad.isfinite().all() for each in method.model.parameters())


@pytest.mark.parametrize("name", WITH_TERMS)
def test_the_loss_of_chosen_negatives(name):
    """Compare value and gradient with the loss of explicit negatives per anchor, with an empty and a full queue."""
    for of in ([], [2, 5, 77, 78, 2]):
        method = build(Loss(name, symmetric=False), momentum=1.0, queue_size=30)
        queue = list(zip(of, fill(method, of), strict=True)) if of else []
        ids, views = [2, 5, 9, 13], views_of(DATA, [2, 5, 9, 13], 4)
        got, model = method(*views, ids=torch.tensor(ids)).loss, copy.deepcopy(method.model)
        q, k, negatives = model(views[0]), model(views[1]).detach(), []
        for i, graph in enumerate(ids):
            rows = [] if name == "moco" and of else [k[j] for j in range(4) if j != i]
            negatives.append(torch.stack(rows + [key for of_graph, key in queue if of_graph != graph]))
        assert_value_and_gradient(got, explicit_terms(name, q, k, negatives).mean(), method.model, model)


def test_any_function_of_queries_keys_and_queue():
    """A plain function has no argument `symmetric`, so only one direction is computed."""
    seen = []

    def own(query, key, queue, **others):
        seen.append((list(queue.shape), sorted(others)))
        return -(query * key).sum(dim=1).mean() + query.square().mean() * (1 + queue.sum() * 0)

    method = MoCo(make_model(), own, queue_size=10)
    optimiser = torch.optim.Adam(trainable(method), lr=0.01)
    for number in range(2):
        step(method, optimiser, views_of(graphs(), [0, 1, 2], number), [0, 1, 2])
    assert seen == [([0, 16], ["symmetric"]), ([3, 16], ["ids", "queue_ids", "symmetric"])]


# -- the queue ---------------------------------------------------------------------------------------------------------

ADDITIONS = st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=10)


def key_of(number):
    return [float(number), -0.5 * number, 1.0 / (number + 1)]


def rows(queue):
    return sorted(zip(queue.ids.tolist(), queue.keys.double().tolist(), strict=True))


@settings(max_examples=100, deadline=None)
@given(size=st.integers(0, 9), before=ADDITIONS, after=ADDITIONS)
def test_a_queue_is_a_deque_also_after_loading(size, before, after):
    queue, plain, total = KeyQueue(size, 3).double(), deque(maxlen=size), 0
    for number, (count, known) in enumerate([*before, *after]):
        if number == len(before):
            restored = KeyQueue(size, 3).double()
            restored.add(torch.ones(4, 3), torch.arange(90, 94))  # overwritten by the loaded state
            restored.load_state_dict(through_a_file(queue.state_dict()))
            queue = restored
        ids = range(total, total + count)
        keys = torch.tensor([key_of(n) for n in ids], dtype=torch.float64).reshape(count, 3)
        queue.add(keys, torch.arange(total, total + count) if known else None)
        plain.extend((n if known else -1, key_of(n)) for n in ids)
        total += count
        assert len(queue) == len(plain) == min(size, total)
        assert queue.keys.shape == (len(plain), 3)
        assert rows(queue) == sorted(plain)


def test_a_queue_copies_keys_to_its_own_dtype_without_their_history():
    queue, keys, ids = KeyQueue(4, 2), torch.ones(2, 2, requires_grad=True), torch.tensor([3, 4])
    queue.add((2 * keys).bfloat16(), ids)
    ids.zero_()
    assert not queue.keys.requires_grad
    assert queue.keys.dtype == torch.float32
    assert rows(queue) == [(3, [2.0, 2.0]), (4, [2.0, 2.0])]
    assert not list(queue.parameters())


@pytest.mark.parametrize("shape", [(2,), (2, 4), (2, 3, 1), ()])
def test_bad_keys_and_sizes(shape):
    with pytest.raises(InputError, match=r"`keys` must be \[B, 3\], got \["):
        KeyQueue(4, 3).add(torch.zeros(shape))
    with pytest.raises(InputError, match=r"^`size` of a queue must be at least 0, got -1\.$"):
        KeyQueue(-1, 3)
