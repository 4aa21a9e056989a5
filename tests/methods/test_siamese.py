"""Test `byol` and `simsiam`: predictor, detached targets, both directions, momentum encoder."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from graphcl.losses import Loss
from graphcl.methods import BYOL, SimSiam
from tests.methods.small import Summed, graphs, make_model, same_weights, schedule, step, trainable, views_of

DATA = graphs(dtype=torch.float64)


def build(kind, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return kind(make_model(encoder=Summed), Loss("byol"), **options).double()


@pytest.mark.parametrize("kind", [BYOL, SimSiam])
def test_steps_against_a_plain_loop(kind):
    options = {} if kind is SimSiam else {"momentum": 0.8}
    equals_a_plain_loop(build(kind, **options), lambda ids, number: views_of(DATA, ids, number))


def equals_a_plain_loop(method, draw_views, m=0.8):
    """Compare with the algorithm in the papers: prediction, target, Adam, moving average after the step."""
    alone = not hasattr(method, "momentum_model")
    optimiser = torch.optim.Adam(trainable(method), lr=0.02)
    online, predictor = copy.deepcopy(method.model), copy.deepcopy(method.predictor)
    target = online if alone else copy.deepcopy(method.momentum_model)
    other = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=0.02)
    for number, ids in enumerate(schedule(len(DATA), 7, 5)):
        views, total = draw_views(ids, number), 0.0
        got = step(method, optimiser, views)
        for source, goal in (views, views[::-1]):
            p, t = normalize(predictor(online(source))), normalize(target(goal).detach())
            total = total + sum(((a - b) ** 2).sum() for a, b in zip(p, t, strict=True)) / len(p)
        torch.testing.assert_close(normalize(got.z1), normalize(predictor(online(views[0]))))
        torch.testing.assert_close(got.z2, target(views[1]))
        other.zero_grad()
        (total / 2).backward()
        other.step()
        if not alone:
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.data = m * slow.data + (1 - m) * fast.data
        torch.testing.assert_close(got.loss, total / 2, rtol=1e-9, atol=1e-9)
    same_weights(method.model, online)
    same_weights(method.predictor, predictor)
    same_weights(getattr(method, "momentum_model", online), target)


def test_the_targets_of_any_loss_get_no_gradient():
    method, views = build(SimSiam), views_of(DATA, list(range(9)), 1)
    method.loss = Loss("adnce")  # unlike `byol`, it does not detach its second argument
    again = copy.deepcopy(method)
    z1, z2 = (again.model(view) for view in views)
    expected = (again.loss(again.predictor(z1), z2.detach()) + again.loss(again.predictor(z2), z1.detach())) / 2
    method(*views).loss.backward()
    expected.backward()
    same_weights(method, again, gradients=True)


def test_the_predictors_width():
    for kind, hidden in ((BYOL, None), (SimSiam, None), (BYOL, 3), (SimSiam, 3)):
        method = build(kind, **({} if hidden is None else {"hidden_channels": hidden}))
        layers = [each for each in method.predictor if isinstance(each, nn.Linear)]
        width = method.model.projection
        wanted = hidden or width
        assert [(each.in_features, each.out_features) for each in layers] == [(width, wanted), (wanted, width)]
