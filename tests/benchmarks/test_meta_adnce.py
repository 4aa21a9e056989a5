"""Check the study's meta-gradient: closed forms against autograd and central differences."""

import sys
from pathlib import Path

import pytest
import torch

from graphcl import GIN, ContrastiveModel, Loss
from graphcl.errors import InputError
from graphcl.losses import adnce
from graphcl.losses.engine.pairs import normalize
from graphcl.registry import methods

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "studies"))
from meta_adnce import MetaADNCE, meta_objective, worst_weights

# Other tests go over all methods of the package; this one is none of them.
methods._targets.pop("meta_adnce")


def draw(count=7):
    return torch.randn(2, count, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_virtual_step_is_adnce_s(symmetric):
    a, b = (normalize(z).requires_grad_() for z in draw())
    mu, log_sigma = torch.tensor([0.3, -1.0], dtype=torch.float64)
    value = adnce(a, b, mu=0.3, sigma=float(log_sigma.exp()), symmetric=symmetric)
    wanted = torch.autograd.grad(0.2 * len(a) * value, (a, b))
    with torch.no_grad():
        q = worst_weights(a, b, mu, log_sigma, 0.2)
        if symmetric:
            q = (q + worst_weights(b, a, mu, log_sigma, 0.2).T) / 2
        for u, step, gradient in zip((a, b), (q @ b - b, q.T @ a - a), wanted, strict=True):
            # Along the sphere: the loss normalises.
            torch.testing.assert_close(step - (step * u).sum(1, keepdim=True) * u, gradient)


@pytest.mark.parametrize("through", ["points", "map"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_meta_gradient_is_that_of_central_differences(through, symmetric):
    place = torch.tensor([0.3, -1.0], dtype=torch.float64, requires_grad=True)
    own = {"temperature": 0.2, "symmetric": symmetric, "inner_lr": 0.3, "through": through}
    assert torch.autograd.gradcheck(lambda at: meta_objective(*draw(), *at, **own), place)
    assert torch.autograd.grad(meta_objective(*draw(), *place, **own), place)[0].abs().min() > 1e-6


def test_following_improves_the_objective_and_no_gradient_leaks():
    z1, z2 = draw(32).float()
    model = ContrastiveModel(GIN(3))
    method = MetaADNCE(model, Loss("adnce", symmetric=False), meta_lr=0.05)
    own = {"temperature": 0.2, "symmetric": False, "inner_lr": 0.1, "through": "points"}
    before = meta_objective(z1, z2, *method.place, **own)
    for _ in range(40):
        method.follow(z1, z2)
    assert meta_objective(z1, z2, *method.place, **own) < before
    assert {id(each) for each in method.parameters()} == {id(each) for each in model.parameters()}
    assert not method.place.requires_grad


def test_another_loss_is_refused():
    for loss in (Loss("dcl"), Loss("adnce", negatives="all")):
        with pytest.raises(InputError, match="needs loss `adnce`"):
            MetaADNCE(ContrastiveModel(GIN(3)), loss)
