"""Test the method `moco` against the pseudo-code in the paper, with a deque and plain loops."""

import copy
from collections import deque

import pytest
import torch

from graphcl.augment import NodeDrop
from graphcl.datasets.resident import ResidentLoader
from graphcl.losses import Loss, explicit, infonce
from graphcl.methods import MoCo
from graphcl.registry import losses
from graphcl.training.loop import train
from tests.methods.small import Summed, graphs, make_model, schedule, seeded, step, trainable, views_of

DATA = graphs(dtype=torch.float64)
FIT = [name for name in losses if Loss(name).accepts("queue") and Loss(name).accepts("symmetric")]
WITH_TERMS = ["adnce", "dcl", "hcl", "mean_variance", "triplet", "infonce", "moco"]


def build(loss, model=None, **options):
    return MoCo(model or make_model(encoder=Summed), loss, **options).double()


def fill(method, count=7, ids=None, seed=9):
    """Append random keys to the queue, by default of graphs that occur in no batch."""
    rows = torch.randn(count, method.model.projection, generator=seeded(seed), dtype=torch.float64)
    rows = torch.nn.functional.normalize(rows)
    method.queue.add(rows, torch.arange(900, 900 + count) if ids is None else torch.tensor(ids))
    return rows


# -- the whole training ------------------------------------------------------------------------------------------------


def cross_entropies(queries, keys, queue, ids, temperature, batch_too):
    """Return the mean over queries of -log softmax of the positive key. `queue` holds pairs (graph, key)."""
    total = 0.0
    for i in range(len(queries)):
        q = queries[i] / queries[i].square().sum().sqrt()
        logits = [q @ keys[i] / temperature]
        for j in range(len(queries)):
            if j != i and (batch_too or not queue):
                logits.append(q @ keys[j] / temperature)
        for graph, key in queue:
            if ids is None or graph != ids[i]:
                logits.append(q @ key / temperature)
        total = total - logits[0] + torch.stack(logits).logsumexp(0)
    return total / len(queries)


def unit_keys(model, view):
    with torch.no_grad():
        z = model(view)
        return [row / row.square().sum().sqrt() for row in z]


@pytest.mark.parametrize(
    ("known", "encoder", "queue_size"), [(True, None, 0), (True, None, 10), (True, Summed, 15), (False, Summed, 100)]
)
@pytest.mark.parametrize(
    ("loss", "symmetric"),
    [
        (Loss("moco", temperature=0.2), False),
        (Loss("infonce", symmetric=False), False),
        (Loss("infonce"), True),
        (Loss("moco", temperature=0.2, symmetric=True), True),
    ],
    ids=["moco", "infonce one way", "infonce", "moco both ways"],
)
def test_against_the_papers_pseudo_code(loss, symmetric, encoder, queue_size, known):
    """The momentum encoder is updated at the start of a step; in the paper, at the end of the step before."""
    m, lr, steps = 0.7, 0.02, 4
    method = build(loss, make_model(encoder=Summed if encoder is Summed else None), momentum=m, queue_size=queue_size)
    optimiser = torch.optim.Adam(trainable(method), lr=lr)

    f_q, f_k = copy.deepcopy(method.model), copy.deepcopy(method.model)
    other, queue = torch.optim.Adam(f_q.parameters(), lr=lr), deque(maxlen=queue_size)
    for number, ids in enumerate(schedule(len(DATA), 7, steps)):
        views, named = views_of(DATA, ids, number), ids if known else None
        got = step(method, optimiser, views, named).loss

        values, new = [], []
        for x_q, x_k in (views, views[::-1])[: 1 + symmetric]:
            q, k = f_q(x_q), unit_keys(f_k, x_k)
            values.append(cross_entropies(q, k, queue, named, 0.2, loss.name == "infonce"))
            new += [(graph if known else -1, key) for graph, key in zip(ids, k, strict=True)]
        value = sum(values) / len(values)
        other.zero_grad()
        value.backward()
        other.step()
        slow_before = copy.deepcopy(f_k)
        for slow, fast in zip(f_k.parameters(), f_q.parameters(), strict=True):
            slow.data = m * slow.data + (1 - m) * fast.data
        queue.extend(new)

        torch.testing.assert_close(got.detach(), value.detach(), rtol=1e-6, atol=1e-6)
        for mine, theirs in ((method.model, f_q), (method.momentum_model, slow_before)):
            for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
        assert sorted(method.queue.ids.tolist()) == sorted(graph for graph, _ in queue)
        mine = sorted(method.queue.keys.tolist())
        theirs = sorted(key.tolist() for _, key in queue)
        assert torch.allclose(torch.tensor(mine), torch.tensor(theirs), atol=1e-6)


# -- its parts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", [None, Summed], ids=["GIN", "Summed"])
@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_without_queue_and_momentum_it_is_one_way_infonce(encoder, temperature):
    for loss in (Loss("moco", temperature=temperature), Loss("infonce", temperature=temperature, symmetric=False)):
        method = build(loss, make_model(encoder=encoder), momentum=0.0, queue_size=0)
        optimiser = torch.optim.Adam(trainable(method), lr=0.05)
        for number in range(3):  # so that the two encoders differ
            ids = list(range(number, number + 8))
            views = views_of(DATA, ids, number)
            model = copy.deepcopy(method.model)
            expected = infonce(model(views[0]), model(views[1]).detach(), temperature=temperature, symmetric=False)
            model.zero_grad()
            expected.backward()
            got = step(method, optimiser, views, ids).loss
            torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
            for mine, theirs in zip(method.model.parameters(), model.parameters(), strict=True):
                torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.4, 0.999, 1.0])
def test_the_momentum_encoder_is_updated_before_its_keys(momentum):
    method = build(Loss("infonce"), momentum=momentum)
    optimiser = torch.optim.Adam(trainable(method), lr=0.05)
    for number in range(4):
        slow, fast = ([each.clone() for each in part.parameters()] for part in (method.momentum_model, method.model))
        view1, view2 = views_of(DATA, list(range(6)), number)
        outcome = step(method, optimiser, (view1, view2))
        for now, old, new in zip(method.momentum_model.parameters(), slow, fast, strict=True):
            torch.testing.assert_close(now, momentum * old + (1 - momentum) * new, rtol=1e-12, atol=1e-14)
        assert torch.equal(outcome.z2, method.momentum_model(view2))  # keys come from the updated encoder
        moved = any(not torch.equal(a, b) for a, b in zip(slow, method.momentum_model.parameters(), strict=True))
        assert moved == (momentum < 1 and number > 0)


def test_evaluation_moves_nothing():
    method = build(Loss("infonce"), make_model(), momentum=0.5)
    optimiser = torch.optim.Adam(trainable(method), lr=0.05)
    step(method, optimiser, views_of(DATA, list(range(6)), 0))
    before = copy.deepcopy(method.state_dict())
    method.eval()
    with torch.no_grad():
        method(*views_of(DATA, list(range(6)), 1))
    after = method.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items() if isinstance(value, torch.Tensor))


def test_the_momentum_encoder_has_no_gradient_and_is_not_optimised(monkeypatch):
    given, honest = [], torch.optim.Adam

    def spy(parameters, **options):
        given.extend(parameters)
        return honest(given, **options)

    monkeypatch.setattr(torch.optim, "Adam", spy)
    method = MoCo(make_model(), Loss("infonce"), momentum=0.9, queue_size=20)
    before = [each.clone() for each in method.momentum_model.parameters()]
    loader = ResidentLoader(graphs(), 8, shuffle=True, generator=seeded(0))
    train(method, loader, NodeDrop(0.2), NodeDrop(0.2), epochs=2, generator=seeded(1))
    assert [id(each) for each in given] == [id(each) for each in method.model.parameters()]
    assert all(each.grad is None and not each.requires_grad for each in method.momentum_model.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, method.momentum_model.parameters(), strict=True))


def test_keys_join_the_queue_after_the_step_and_only_once():
    method = build(Loss("moco"), queue_size=20)
    outcome = method(*views_of(DATA, [4, 2, 8], 0), ids=torch.tensor([4, 2, 8]))
    assert len(method.queue) == 0
    method.after_step()
    assert method.queue.ids.tolist() == [4, 2, 8]
    assert torch.allclose(method.queue.keys, torch.nn.functional.normalize(outcome.z2))
    method.after_step()
    assert len(method.queue) == 3


def test_a_key_of_the_anchors_own_graph_is_never_a_negative():
    """The queue contains each anchor's own query under its graph's id, which would be the hardest negative."""
    method = build(Loss("moco", temperature=0.1), momentum=1.0, queue_size=50)
    views, ids = views_of(DATA, [3, 7, 11], 0), torch.tensor([3, 7, 11])
    q = torch.nn.functional.normalize(method.model(views[0])).detach()
    k = torch.nn.functional.normalize(method.momentum_model(views[1]))
    stranger = fill(method, 1)[0]
    method.queue.add(q, ids)
    got = method(*views, ids=ids).loss.item()

    total = 0.0
    for i in range(3):
        negatives = [stranger, *(q[j] for j in range(3) if j != i)]
        logits = torch.stack([q[i] @ k[i], *(q[i] @ each for each in negatives)]) / 0.1
        total += (logits.logsumexp(0) - logits[0]).item() / 3
    assert got == pytest.approx(total, abs=1e-9)
    assert method(*views).loss.item() > got + 0.1  # without ids, all keys are negatives


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("name", FIT)
def test_a_queue_of_own_keys_only_leaves_a_finite_gradient(name, symmetric):
    method = build(Loss(name, symmetric=symmetric), momentum=1.0, queue_size=50)
    fill(method, 4, ids=[3, 3, 3, 3])
    outcome = method(*views_of(DATA, [3, 7], 0), ids=torch.tensor([3, 7]))
    outcome.loss.backward()
    assert outcome.loss.isfinite()
    assert all(each.grad is None or each.grad.isfinite().all() for each in method.model.parameters())


def test_own_keys_only_are_no_negatives_at_all():
    method = build(Loss("moco"), momentum=1.0, queue_size=50)
    fill(method, 4, ids=[3, 7, 3, 7])
    views, ids = views_of(DATA, [3, 7], 0), torch.tensor([3, 7])
    both = method(*views, ids=ids).loss.item()
    q = torch.nn.functional.normalize(method.model(views[0])).detach()
    k = torch.nn.functional.normalize(method.momentum_model(views[1]))
    keys, total = method.queue.keys, 0.0
    for i, others in ((0, keys[[1, 3]]), (1, keys[[0, 2]])):
        logits = torch.cat([(q[i] @ k[i])[None], others @ q[i]]) / 0.07
        total += (logits.logsumexp(0) - logits[0]).item() / 2
    assert both == pytest.approx(total, abs=1e-9)


def test_the_default_queue_stays_bounded_at_batch_64():
    method = MoCo(make_model(encoder=Summed), Loss("moco"))
    optimiser = torch.optim.Adam(trainable(method), lr=0.01)
    views = views_of(graphs(64), list(range(64)), 0)
    sizes = {key: value.shape for key, value in method.state_dict().items() if isinstance(value, torch.Tensor)}
    for number in range(70):
        ids = list(range(64 * number, 64 * number + 64))  # each batch has new graphs
        step(method, optimiser, views, ids)
        assert len(method.queue) == min(4096, 64 * (number + 1))
    assert sorted(method.queue.ids.tolist()) == list(range(64 * 70 - 4096, 64 * 70))
    assert torch.allclose(method.queue.keys.norm(dim=1), torch.ones(4096), atol=1e-5)
    assert sizes == {key: value.shape for key, value in method.state_dict().items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("name", FIT)
def test_a_symmetric_loss_is_the_mean_of_both_directions(name):
    model = make_model()
    one = build(Loss(name, symmetric=False), copy.deepcopy(model), momentum=1.0, queue_size=30)
    both = build(Loss(name, symmetric=True), copy.deepcopy(model), momentum=1.0, queue_size=30)
    with torch.no_grad():  # the encoders must differ for the directions to differ
        for a, b in zip(one.momentum_model.parameters(), both.momentum_model.parameters(), strict=True):
            noise = 0.1 * torch.randn(a.shape, generator=seeded(a.numel()), dtype=a.dtype)
            a.add_(noise)
            b.add_(noise)
    ids = list(range(5))
    for method in (one, both):
        fill(method, 6, ids=[0, 3, 20, 21, 22, 23])
    view1, view2 = views_of(DATA, ids, 2)
    there, back = (one(*views, ids=torch.tensor(ids)).loss for views in ((view1, view2), (view2, view1)))
    got = both(view1, view2, ids=torch.tensor(ids)).loss
    torch.testing.assert_close(got, (there + back) / 2, rtol=1e-10, atol=1e-12)
    got.backward()
    ((there + back) / 2).backward()
    for a, b in zip(both.model.parameters(), one.model.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-8, atol=1e-11)
    both.after_step()
    assert sorted(both.queue.ids.tolist()) == sorted([0, 3, 20, 21, 22, 23, *ids, *ids])


# -- with other losses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filled", [False, True], ids=["empty", "filled"])
@pytest.mark.parametrize("name", WITH_TERMS)
def test_the_loss_of_chosen_negatives(name, filled):
    """Compare value and gradient with the loss of explicit negatives for each anchor."""
    loss = Loss(name, symmetric=False)
    method = build(loss, momentum=1.0, queue_size=30)
    queue, of = [], [2, 5, 77, 78, 2]
    if filled:
        queue = list(zip(of, fill(method, 5, ids=of), strict=True))
    ids, views = [2, 5, 9, 13], views_of(DATA, [2, 5, 9, 13], 4)
    got = method(*views, ids=torch.tensor(ids)).loss
    got.backward()

    model = copy.deepcopy(method.model)
    model.zero_grad()
    q, k = model(views[0]), model(views[1]).detach()
    terms = []
    for i, graph in enumerate(ids):
        negatives = [] if name == "moco" and filled else [k[j] for j in range(4) if j != i]
        negatives += [key for of_graph, key in queue if of_graph != graph]
        pairs = explicit(q[i : i + 1], k[i : i + 1], torch.stack(negatives))
        terms.append(losses[name].terms(pairs))
    expected = torch.cat(terms).mean()
    expected.backward()
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)
    for mine, theirs in zip(method.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-8, atol=1e-11)


def test_any_function_of_queries_keys_and_queue():
    """A plain function has no argument `symmetric`, so only one direction is computed."""
    seen = []

    def own(query, key, queue, **others):
        seen.append((queue.shape, sorted(others)))
        return -(query * key).sum(dim=1).mean() + query.square().mean() * (1 + queue.sum() * 0)

    method = MoCo(make_model(), own, queue_size=10)
    optimiser = torch.optim.Adam(trainable(method), lr=0.01)
    data = graphs()
    step(method, optimiser, views_of(data, [0, 1, 2], 0), [0, 1, 2])
    step(method, optimiser, views_of(data, [3, 4, 5], 1), [3, 4, 5])
    assert [list(shape) for shape, _ in seen] == [[0, 16], [3, 16]]
    assert seen[1][1] == ["ids", "queue_ids", "symmetric"]
