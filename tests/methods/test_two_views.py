"""Test `two_views`: the loss of the two views' projections, and labels only if requested."""

import copy

import pytest
import torch

from graphcl.errors import InputError
from graphcl.losses import Loss, infonce, supcon
from graphcl.methods import TwoViews
from graphcl.registry import losses
from tests.methods.small import assert_close_parameters, graphs, make_model, seeded, views_of

DATA, IDS = graphs(dtype=torch.float64), list(range(10))
FITTING = [
    name
    for name in losses
    if "labels" not in losses.arguments(name).tensors
    and losses.arguments(name).defaults.get("negatives") != "queue"
    and losses.facts(name)["repels"] == "yes"
]
"""Losses without labels and without a queue that repel negatives."""
CASES = [
    *((Loss(name), losses[name]) for name in FITTING),
    ("adnce", losses["adnce"]),
    (Loss("infonce", temperature=0.7), lambda z1, z2: infonce(z1, z2, temperature=0.7)),
    (lambda z1, z2: infonce(z1, z2, temperature=0.7), lambda z1, z2: infonce(z1, z2, temperature=0.7)),
]


@pytest.mark.parametrize(("loss", "function"), CASES, ids=map(str, range(len(CASES))))
def test_it_is_the_loss_of_both_views_projections(loss, function):
    method, views = TwoViews(make_model().double(), loss), views_of(DATA, IDS, 0)
    model = copy.deepcopy(method.model)
    outcome, expected = method(*views), function(model(views[0]), model(views[1]))
    torch.testing.assert_close(outcome.loss, expected, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close((outcome.h, outcome.z1, outcome.z2),
                               (model.encode(views[0]), model(views[0]), model(views[1])))  # fmt: skip
    outcome.loss.backward()
    expected.backward()
    assert_close_parameters(method.model, model, gradients=True)
    assert {key.removeprefix("model.") for key in method.state_dict()} == set(model.state_dict())


def test_supcon_takes_the_batchs_labels():
    data = graphs()
    for graph in data:
        graph.y = torch.randint(3, (1,), generator=seeded(int(graph.x.sum() * 1000)))
    model, (view1, view2) = make_model(), views_of(data, IDS, 0)
    y = torch.cat([data[i].y for i in IDS])
    value = TwoViews(model, Loss("supcon", temperature=0.3), labels=True)(view1, view2).loss
    z1, z2 = model(view1), model(view2)
    assert torch.equal(value, supcon(z1, z2, labels=y, temperature=0.3))
    assert not torch.equal(value, supcon(z1, z2, labels=torch.arange(10), temperature=0.3))


def test_labels_are_not_used_by_accident():
    for options in ({}, {"labels": False}):
        with pytest.raises(InputError, match=r"^loss `supcon` trains on labels; to allow this, pass `labels=True`\.$"):
            TwoViews(make_model(), Loss("supcon"), **options)
    for name in FITTING:
        with pytest.raises(InputError, match=rf"^`labels` is true, but loss `{name}` takes no labels\.$"):
            TwoViews(make_model(), Loss(name), labels=True)
