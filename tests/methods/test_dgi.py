"""Test the method `dgi`: its formula against a loop, its value before training, and its loss."""

import math

import pytest
import torch

from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.methods import DGI
from tests.methods.nodes import graph, node_model
from tests.methods.small import seeded


def build(loss="jsd", seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return DGI(node_model(projector="none"), Loss(loss)).double()


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def test_the_loss_is_the_papers():
    method, view = build(), graph()
    got = method(view, view, generator=seeded(1)).loss.item()

    order = torch.randperm(12, generator=seeded(1))
    corrupted = view.clone()
    corrupted.x = view.x[order]
    h, other = (method.model.encode(each).tolist() for each in (view, corrupted))
    summary = [sigmoid(sum(row[k] for row in h) / 12) for k in range(6)]
    weight = method.discriminator.tolist()

    def score(row):
        return sigmoid(sum(row[j] * weight[j][k] * summary[k] for j in range(6) for k in range(6)))

    expected = -sum(math.log(score(row)) for row in h) - sum(math.log(1 - score(row)) for row in other)
    assert got == pytest.approx(expected / 24, rel=1e-12)


def test_the_loss_is_near_log_2_before_training():
    view = graph(200)
    values = [build(seed=seed)(view, view, generator=seeded(seed)).loss.item() for seed in range(5)]
    assert values == pytest.approx([math.log(2)] * 5, abs=0.05)


def test_the_view_itself_stays():
    view = graph()
    before = view.x.clone()
    build()(view, view, generator=seeded(0))
    assert torch.equal(view.x, before)


def test_another_loss_is_refused():
    with pytest.raises(InputError, match=r"^method `dgi` has a loss of its own, half of `jsd`, got Loss\(adnce\); use"):
        build("adnce")
