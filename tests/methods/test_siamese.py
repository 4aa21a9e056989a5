"""Test the methods `byol` and `simsiam`: predictor, detached targets, and both directions."""

import copy

import pytest
import torch
from torch import nn

from graphcl.losses import Loss, byol, infonce, simsiam
from graphcl.methods import BYOL, SimSiam
from tests.methods.small import Summed, dot, graphs, make_model, schedule, seeded, step, trainable, unit, views_of

DATA = graphs(dtype=torch.float64)
IDS = list(range(9))


def build(kind, loss, model=None, seed=5, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(model or make_model(), loss, **options).double()


def gradients(modules):
    return [each.grad for module in modules for each in module.parameters()]


def perturb_target(method):
    """Perturb the momentum encoder, so that it differs from the trained encoder."""
    with torch.no_grad():
        for number, each in enumerate(method.momentum_model.parameters()):
            each.add_(0.1 * torch.randn(each.shape, generator=seeded(number), dtype=each.dtype))
    return method


def by_hand(method, loss, view1, view2):
    """Return the mean loss of both directions, with detached targets."""
    slow = getattr(method, "momentum_model", method.model)
    target1, target2 = slow(view1).detach(), slow(view2).detach()
    p1, p2 = method.predictor(method.model(view1)), method.predictor(method.model(view2))
    return (loss(p1, target2) + loss(p2, target1)) / 2


@pytest.mark.parametrize("kind", [BYOL, SimSiam])
@pytest.mark.parametrize("loss", [byol, simsiam, infonce, Loss("adnce")], ids=["byol", "simsiam", "infonce", "adnce"])
def test_value_and_gradient_of_both_directions(kind, loss):
    method = build(kind, loss)
    if kind is BYOL:
        perturb_target(method)
    again = copy.deepcopy(method)
    views = views_of(DATA, IDS, 1)
    got, expected = method(*views).loss, by_hand(again, loss, *views)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    got.backward()
    expected.backward()
    for mine, theirs in zip(
        gradients([method.model, method.predictor]), gradients([again.model, again.predictor]), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in method.predictor[-1].parameters())
    if kind is BYOL:
        assert all(each.grad is None for each in method.momentum_model.parameters())


@pytest.mark.parametrize("kind", [BYOL, SimSiam])
def test_swapping_the_views_changes_nothing(kind):
    method = build(kind, infonce)
    view1, view2 = views_of(DATA, IDS, 1)
    torch.testing.assert_close(method(view1, view2).loss, method(view2, view1).loss, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [BYOL, SimSiam])
def test_the_loss_is_given_predictions_first_and_constants_second(kind):
    seen = []

    def watch(prediction, target):
        seen.append((prediction, target))
        return byol(prediction, target)

    method = build(kind, watch)
    view1, view2 = views_of(DATA, IDS, 1)
    outcome = method(view1, view2)
    assert len(seen) == 2
    assert all(prediction.requires_grad and not target.requires_grad for prediction, target in seen)
    z1, z2 = method.model(view1), method.model(view2)
    assert torch.equal(seen[0][0], method.predictor(z1))
    assert torch.equal(seen[1][0], method.predictor(z2))
    slow = getattr(method, "momentum_model", method.model)
    assert torch.equal(seen[0][1], slow(view2))
    assert torch.equal(seen[1][1], slow(view1))
    assert torch.equal(outcome.z1, seen[0][0])
    assert torch.equal(outcome.z2, seen[0][1])
    assert torch.equal(outcome.h, method.model.encode(view1))


def test_a_gradient_into_simsiams_targets_would_be_another_one():
    """Without the stop-gradient, the encoder's gradient differs."""
    method = build(SimSiam, infonce)
    views = views_of(DATA, IDS, 1)
    method(*views).loss.backward()
    stopped = [each.grad.clone() for each in method.model.parameters()]
    method.zero_grad()
    z1, z2 = (method.model(view) for view in views)
    ((infonce(method.predictor(z1), z2) + infonce(method.predictor(z2), z1)) / 2).backward()
    assert not all(torch.allclose(a, b.grad) for a, b in zip(stopped, method.model.parameters(), strict=True))


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.99, 1.0])
def test_byol_updates_the_momentum_encoder_after_the_step(momentum):
    method = perturb_target(build(BYOL, Loss("byol"), momentum=momentum))
    optimiser = torch.optim.Adam(trainable(method), lr=0.05)
    before = [each.clone() for each in method.momentum_model.parameters()]
    method(*views_of(DATA, IDS, 0)).loss.backward()
    assert all(torch.equal(a, b) for a, b in zip(before, method.momentum_model.parameters(), strict=True)), (
        "moved too early"
    )
    for number in range(3):
        before = [each.clone() for each in method.momentum_model.parameters()]
        step(method, optimiser, views_of(DATA, IDS, number))
        for old, slow, fast in zip(before, method.momentum_model.parameters(), method.model.parameters(), strict=True):
            torch.testing.assert_close(slow, momentum * old + (1 - momentum) * fast, rtol=1e-12, atol=1e-14)
    assert not any(each.requires_grad for each in method.momentum_model.parameters())


def test_byol_against_a_plain_loop():
    """Compare several steps with the algorithm in the paper: prediction, target, Adam, moving average."""
    m, lr = 0.8, 0.02
    method = build(BYOL, Loss("byol"), make_model(encoder=Summed), momentum=m)
    optimiser = torch.optim.Adam(trainable(method), lr=lr)

    online, predictor, target = (
        copy.deepcopy(each) for each in (method.model, method.predictor, method.momentum_model)
    )
    other = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=lr)
    for number, ids in enumerate(schedule(len(DATA), 7, 8)):
        views = views_of(DATA, ids, number)
        got = step(method, optimiser, views).loss

        total = 0.0
        for source, goal in (views, views[::-1]):
            p, t = predictor(online(source)), target(goal).tolist()
            for row, constant in zip(p, t, strict=True):
                direction = torch.tensor(unit(constant), dtype=torch.float64)
                total = total + ((row / row.square().sum().sqrt() - direction) ** 2).sum() / len(ids)
        value = total / 2
        other.zero_grad()
        value.backward()
        other.step()
        for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
            slow.data = m * slow.data + (1 - m) * fast.data

        torch.testing.assert_close(got, value, rtol=1e-9, atol=1e-9)
    for mine, theirs in ((method.model, online), (method.predictor, predictor), (method.momentum_model, target)):
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_simsiam_is_minus_the_mean_cosine():
    method = build(SimSiam, Loss("simsiam"))
    view1, view2 = views_of(DATA, IDS, 3)
    z1, z2 = method.model(view1), method.model(view2)
    p1, p2 = method.predictor(z1), method.predictor(z2)
    there = [dot(unit(p), unit(z)) for p, z in zip(p1.tolist(), z2.tolist(), strict=True)]
    back = [dot(unit(p), unit(z)) for p, z in zip(p2.tolist(), z1.tolist(), strict=True)]
    assert method(view1, view2).loss.item() == pytest.approx(-(sum(there) + sum(back)) / (2 * len(IDS)), abs=1e-12)


@pytest.mark.parametrize("kind", [BYOL, SimSiam])
@pytest.mark.parametrize(("hidden", "width"), [(None, 5), (3, 3), (11, 11)])
def test_the_predictors_width(kind, hidden, width):
    method = kind(make_model(projection=5), Loss("byol"), hidden=hidden)
    layers = [each for each in method.predictor if isinstance(each, nn.Linear)]
    assert [(each.in_features, each.out_features) for each in layers] == [(5, width), (width, 5)]
