"""Test `two_views` and `simgrace`: the loss of two projections, and the perturbation of the encoder."""

import copy

import pytest
import torch
from torch import nn

from graphcl.errors import InputError
from graphcl.losses import Loss, infonce, supcon
from graphcl.methods import SimGRACE, TwoViews
from tests.methods.small import graphs, make_model, pick, same_weights, seeded, views_of

DATA, IDS = graphs(dtype=torch.float64), list(range(10))


def test_two_views_is_the_loss_of_both_projections():
    warm = {"temperature": 0.7}
    for loss in (Loss("infonce", **warm), lambda z1, z2: infonce(z1, z2, **warm)):
        method, views = TwoViews(make_model().double(), loss), views_of(DATA, IDS, 0)
        model = copy.deepcopy(method.model)
        outcome, expected = method(*views), infonce(model(views[0]), model(views[1]), **warm)
        torch.testing.assert_close(outcome.loss, expected, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close((outcome.h, outcome.z1, outcome.z2),
                                   (model.encode(views[0]), model(views[0]), model(views[1])))  # fmt: skip
        outcome.loss.backward()
        expected.backward()
        same_weights(method.model, model, gradients=True)
        assert {key.removeprefix("model.") for key in method.state_dict()} == set(model.state_dict())


def test_only_supcon_takes_the_batchs_labels_and_only_if_requested():
    data = graphs()
    for graph in data:
        graph.y = torch.randint(3, (1,), generator=seeded(int(graph.x.sum() * 1000)))
    model, (view1, view2) = make_model(), views_of(data, IDS, 0)
    y = torch.cat([data[i].y for i in IDS])
    value = TwoViews(model, Loss("supcon", temperature=0.3), labels=True)(view1, view2).loss
    z1, z2 = model(view1), model(view2)
    assert torch.equal(value, supcon(z1, z2, labels=y, temperature=0.3))
    assert not torch.equal(value, supcon(z1, z2, labels=torch.arange(10), temperature=0.3))
    with pytest.raises(InputError, match=r"^loss `supcon` trains on labels; to allow this, pass `labels=True`\.$"):
        TwoViews(model, Loss("supcon"))
    with pytest.raises(InputError, match=r"^`labels` is true, but loss `adnce` takes no labels\.$"):
        TwoViews(model, "adnce", labels=True)


def test_simgraces_perturbation_is_the_papers():
    """The noise of a tensor is eta times the deviation of its n entries, with n - 1 below, times a normal draw."""
    method = SimGRACE(make_model().double(), Loss("infonce"), eta=10.0)
    method.model.encoder.scale = nn.Parameter(torch.tensor([2.0]).double())  # one number has no deviation
    own = dict(method.model.encoder.named_parameters())
    sizes = [each.numel() for each in own.values()]
    found, normal = method.perturbed(seeded(3)), torch.randn(sum(sizes), generator=seeded(3), dtype=torch.float64)
    assert {key.split(".")[0] for key in found} == {"encoder"}
    for (name, each), eps in zip(own.items(), normal.split(sizes), strict=True):
        deviation = ((each - each.mean()).square().sum() / max(each.numel() - 1, 1)).sqrt()
        expected = each + 10.0 * deviation * eps.view_as(each)
        torch.testing.assert_close(found[f"encoder.{name}"], expected.detach(), rtol=1e-9, atol=1e-12)


def test_simgraces_value_gradient_and_state_against_a_copy_with_those_weights():
    """The second side has no gradient. BatchNorm's running statistics change only by the unperturbed pass."""
    method, view = SimGRACE(make_model().double(), infonce), pick(DATA, IDS)
    plain, twin = copy.deepcopy(method.model), copy.deepcopy(method.model)
    twin.load_state_dict(twin.state_dict() | method.perturbed(seeded(4)))
    outcome, other = method(view, view, generator=seeded(4)), twin(view).detach()
    expected = infonce(plain(view), other)
    torch.testing.assert_close(outcome.z2, other)
    torch.testing.assert_close(outcome.loss, expected)
    assert not torch.allclose(outcome.z1, outcome.z2)
    outcome.loss.backward()
    expected.backward()
    same_weights(method.model, plain, gradients=True)
    for (name, mine), theirs in zip(method.model.state_dict().items(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, msg=name)
    still = SimGRACE(make_model().double(), infonce, eta=0.0)(view, view)
    torch.testing.assert_close(still.z1.detach(), still.z2)
