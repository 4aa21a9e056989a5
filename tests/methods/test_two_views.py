"""Test the method `two_views`: the loss of the two views' projections, and labels only if requested."""

import pytest
import torch

from graphcl.augment import Identity, NodeDrop
from graphcl.datasets.resident import ResidentLoader
from graphcl.errors import InputError
from graphcl.losses import Loss, infonce, supcon
from graphcl.methods import TwoViews
from graphcl.registry import losses
from graphcl.training.loop import train
from tests.methods.small import graphs, make_model, seeded, trainable, views_of

IDS = list(range(10))


@pytest.mark.parametrize(
    ("loss", "line"),
    [
        (lambda z1, z2: (z1 - z2).sum(1), r"must be a scalar tensor, got shape \[10\]; use \.mean\(\)"),
        (lambda z1, z2: 1.0, r"must be a scalar tensor, got 1\.0; compute it with torch"),
    ],
)
def test_a_loss_must_be_a_scalar(loss, line):
    with pytest.raises(InputError, match=line):
        TwoViews(make_model(), loss)(*views_of(graphs(), IDS, 0))


def gradients(model):
    return [torch.zeros_like(each) if each.grad is None else each.grad.clone() for each in model.parameters()]


def outcome_of(loss, **options):
    """Return the loss and the gradients that the method computes with a new model."""
    model = make_model().double()
    outcome = TwoViews(model, loss, **options)(*views_of(graphs(dtype=torch.float64), IDS, 0))
    outcome.loss.backward()
    return outcome.loss.detach(), gradients(model)


# Losses without labels and without a queue that repel negatives.
FITTING = [
    name
    for name in losses
    if "labels" not in losses.arguments(name).tensors
    and losses.arguments(name).defaults.get("negatives") != "queue"
    and losses.facts(name)["repels"] == "yes"
]


@pytest.mark.parametrize("name", FITTING)
def test_it_is_the_loss_of_both_views_projections(name):
    value, grads = outcome_of(Loss(name))
    model, (view1, view2) = make_model().double(), views_of(graphs(dtype=torch.float64), IDS, 0)
    expected = losses[name](model(view1), model(view2))
    expected.backward()
    torch.testing.assert_close(value, expected.detach(), rtol=1e-8, atol=1e-10)
    for got, wanted in zip(grads, gradients(model), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-7, atol=1e-9)


def test_the_outcome_holds_the_compared_tensors():
    model, (view1, view2) = make_model().double(), views_of(graphs(dtype=torch.float64), IDS, 0)
    outcome = TwoViews(model, infonce)(view1, view2)
    torch.testing.assert_close(outcome.h, model.encode(view1))
    torch.testing.assert_close(outcome.z1, model(view1))
    torch.testing.assert_close(outcome.z2, model(view2))
    assert torch.equal(outcome.loss, infonce(outcome.z1, outcome.z2))


def test_arguments_of_the_loss_are_used_and_any_function_fits():
    by_name, _ = outcome_of(Loss("infonce", temperature=0.7))
    by_function, _ = outcome_of(lambda z1, z2: infonce(z1, z2, temperature=0.7))
    assert torch.equal(by_name, by_function)
    assert not torch.equal(by_name, outcome_of(infonce)[0])


def test_nothing_is_kept_and_everything_trains():
    model = make_model()
    method = TwoViews(model, Loss("adnce"))
    assert {id(each) for each in trainable(method)} == {id(each) for each in model.parameters()}
    assert {key.removeprefix("model.") for key in method.state_dict()} == set(model.state_dict())


def test_supcon_takes_the_batchs_labels():
    data = graphs()
    for graph in data:
        graph.y = torch.randint(3, (1,), generator=seeded(int(graph.x.sum() * 1000)))
    model, (view1, view2) = make_model(), views_of(data, IDS, 0)
    y = torch.cat([data[i].y for i in IDS])
    assert len(set(y.tolist())) > 1
    method = TwoViews(model, Loss("supcon", temperature=0.3), labels=True)
    value = method(view1, view2).loss
    z1, z2 = model(view1), model(view2)
    assert torch.equal(value, supcon(z1, z2, labels=y, temperature=0.3))
    assert not torch.equal(value, supcon(z1, z2, labels=torch.arange(10), temperature=0.3))


def test_supcon_trains_with_the_labels_of_a_shuffled_loader():
    def trained(data):
        method = TwoViews(make_model(), Loss("supcon"), labels=True)
        loader = ResidentLoader(data, 8, shuffle=True, generator=seeded(0))
        history = train(method, loader, Identity(), NodeDrop(0.1), epochs=8, generator=seeded(1))
        return history, method.state_dict()

    honest, misled = graphs(), graphs()
    for number, graph in enumerate(misled):
        graph.y = torch.tensor([number % 3])
    history, state = trained(honest)
    assert history[-1].loss < history[0].loss
    assert any(not torch.equal(state[key], value) for key, value in trained(misled)[1].items())


@pytest.mark.parametrize("options", [{}, {"labels": False}])
def test_labels_are_not_used_by_accident(options):
    with pytest.raises(InputError, match=r"^loss `supcon` trains on labels; to allow this, pass `labels=True`\.$"):
        TwoViews(make_model(), Loss("supcon"), **options)


@pytest.mark.parametrize("name", FITTING)
def test_labels_for_a_loss_that_takes_none(name):
    with pytest.raises(InputError, match=rf"^`labels` is true, but loss `{name}` takes no labels\.$"):
        TwoViews(make_model(), Loss(name), labels=True)


def test_an_invalid_loss_is_rejected_and_a_registered_function_becomes_a_loss():
    with pytest.raises(TypeError, match=r"^`loss` must be a Loss, its name, or a function .*, got 3\.$"):
        TwoViews(make_model(), 3)
    with pytest.raises(InputError, match=r"^`reduction` must be 'mean' for training, got 'none'\.$"):
        TwoViews(make_model(), Loss("infonce", reduction="none"))
    assert all(isinstance(TwoViews(make_model(), each).loss, Loss) for each in (infonce, "infonce"))
