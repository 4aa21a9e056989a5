"""Test `adnce` against float64 reference loops, with and without detached weights, and in its published variants."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from graphcl.losses import adnce, dcl, infonce
from tests.losses.loops import SWITCHES

SHAPES = [
    {"positive_in_denominator": inside, "negative_reduction": how}
    for inside, how in product([False, True], ["sum", "mean"])
]
SMOOTH = [{"detach_weight": False, **shape} for shape in SHAPES]
RANGES = {"mu": "(-inf, inf)", "sigma": "(0, inf]"}


def plain(z1, z2, temperature, mu, sigma, positive_in_denominator, negative_reduction, freeze=None):
    """Return the terms of cross-view ADNCE by its formula. `freeze` gives constant cosines for the weights."""
    unit1, unit2 = (z / z.norm(dim=1, keepdim=True) for z in (z1, z2))
    cosine = unit1 @ unit2.T
    count = len(z1)
    off = ~torch.eye(count, dtype=torch.bool)
    negative = cosine[off].view(count, count - 1)
    weight = torch.exp(-(((negative if freeze is None else freeze) - mu) ** 2) / (2 * sigma**2))
    weight = weight / weight.mean(dim=1, keepdim=True)
    weighed = weight * torch.exp(negative / temperature)
    below = getattr(weighed, negative_reduction)(dim=1)
    above = torch.exp(cosine.diagonal() / temperature)
    return -torch.log(above / (below + above * positive_in_denominator))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_free_weights_equal_autograd_through_the_plain_formula(views, gradients, shape):
    z1, z2 = views(6, 4)
    arguments = {"temperature": 0.3, "mu": 0.4, "sigma": 0.3, **shape}
    got = gradients(lambda a, b: adnce(a, b, symmetric=False, detach_weight=False, **arguments), z1, z2)
    expected = gradients(lambda a, b: plain(a, b, **arguments).mean(), z1, z2)
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_frozen_weights_equal_the_plain_formula_with_constants_for_weights(views, gradients, shape):
    z1, z2 = views(6, 4)
    arguments = {"temperature": 0.3, "mu": 0.4, "sigma": 0.3, **shape}
    cosine = torch.nn.functional.cosine_similarity(z1[:, None], z2[None], dim=-1)
    frozen = cosine[~torch.eye(6, dtype=torch.bool)].view(6, 5)
    got = gradients(lambda a, b: adnce(a, b, symmetric=False, **arguments), z1, z2)
    expected = gradients(lambda a, b: plain(a, b, **arguments, freeze=frozen).mean(), z1, z2)
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)
    free = gradients(lambda a, b: adnce(a, b, symmetric=False, detach_weight=False, **arguments), z1, z2)
    assert np.abs(got - free).max() > 1e-3


@pytest.mark.parametrize(("negatives", "symmetric"), SWITCHES)
@pytest.mark.parametrize("mu", [-0.3, 0.7])
def test_a_flat_gaussian_gives_the_unweighted_forms(views, gradients, negatives, symmetric, mu):
    z1, z2 = views(6, 3)
    common = {"negatives": negatives, "symmetric": symmetric, "reduction": "none"}
    count = {"cross": 5, "all": 10}[negatives]
    decoupled, coupled = dcl(z1, z2, **common), infonce(z1, z2, **common)
    expected = {
        (False, "sum"): decoupled,
        (True, "sum"): coupled,
        (False, "mean"): decoupled - math.log(count),
        (True, "mean"): torch.log1p(torch.exp(decoupled) / count),
    }
    for (inside, how), value in expected.items():
        flat = {"mu": mu, "sigma": math.inf, "positive_in_denominator": inside, "negative_reduction": how}
        torch.testing.assert_close(adnce(z1, z2, **flat, **common), value, rtol=1e-12, atol=1e-12)
        wide = flat | {"sigma": 1e5}
        torch.testing.assert_close(adnce(z1, z2, **wide, **common), value, rtol=0, atol=1e-9)

    common["reduction"] = "mean"
    for inside, unweighted in [(False, dcl), (True, infonce)]:
        got = gradients(
            lambda a, b, i=inside: adnce(a, b, mu=mu, sigma=math.inf, positive_in_denominator=i, **common), z1, z2
        )
        expected_gradient = gradients(lambda a, b, u=unweighted: u(a, b, **common), z1, z2)
        np.testing.assert_allclose(got, expected_gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("negatives", "count"), [("cross", 6), ("all", 12)])
@pytest.mark.parametrize("sigma", [0.1, 1.0, math.inf])
def test_weights_have_mean_one(views, negatives, count, sigma):
    """A very high temperature sets all logits to 0, so that the sum over negatives is sum_j w_j = M."""
    z1, z2 = views(7, 4)
    arguments = {"temperature": 1e12, "negatives": negatives, "mu": 0.3, "sigma": sigma, "reduction": "none"}
    total = adnce(z1, z2, **arguments)
    torch.testing.assert_close(total, torch.full_like(total, math.log(count)), rtol=0, atol=1e-10)
    mean = adnce(z1, z2, negative_reduction="mean", **arguments)
    torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("negatives", "count"), [("cross", 5), ("all", 10)])
@pytest.mark.parametrize("same", [0.0, 1.0])
def test_equal_cosines_give_equal_weights(negatives, count, same):
    z = torch.full((6, 3), same, dtype=torch.float64)
    expected = {
        (False, "sum"): math.log(count),
        (False, "mean"): 0,
        (True, "sum"): math.log(1 + count),
        (True, "mean"): math.log(2),
    }
    for (inside, how), value in expected.items():
        got = adnce(z, z, negatives=negatives, positive_in_denominator=inside, negative_reduction=how)
        assert got.item() == pytest.approx(value, abs=1e-12)


def shares(at_cosines, grid, **arguments):
    """Return the fraction of the first anchor's gradient on each negative, for negatives at the cosines `grid`."""
    z1, z2 = at_cosines(0.2, grid)
    z2.requires_grad_()
    adnce(z1, z2, reduction="none", **arguments)[0].backward()
    # |d c / d z2_j| = sqrt(1 - c^2) on the unit sphere.
    slopes = z2.grad[1:].norm(dim=1) / (1 - torch.as_tensor(grid) ** 2).sqrt()
    return (slopes / slopes.sum()).numpy()


@pytest.mark.parametrize(
    ("temperature", "mu", "sigma"),
    [(0.3, 0.2, 0.3), (0.5, -0.5, 0.5), (0.1, 0.1, 0.2), (1.0, 0.0, 0.4)],
)
def test_the_gradient_peaks_at_mu_plus_sigma_squared_over_temperature(at_cosines, temperature, mu, sigma):
    peak = mu + sigma**2 / temperature
    grid = np.linspace(-0.98, 0.98, 99)
    got = shares(at_cosines, grid, temperature=temperature, mu=mu, sigma=sigma)
    assert abs(grid[got.argmax()] - peak) <= 0.02
    expected = np.exp(-((grid - peak) ** 2) / (2 * sigma**2))
    np.testing.assert_allclose(got, expected / expected.sum(), rtol=1e-9, atol=1e-12)


def test_with_sigma_one_the_hardest_negative_still_dominates(at_cosines):
    """sigma^2 > tau (1 - mu), so the peak lies beyond cosine 1 and the gradient grows with the cosine everywhere."""
    got = shares(at_cosines, np.linspace(-0.98, 0.98, 25), temperature=0.2, mu=0.7, sigma=1.0)
    assert (np.diff(got) > 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [1e-3, 1e-2, 1e3])
def test_narrow_and_wide_gaussians_stay_finite(views, gradients, dtype, sigma):
    z1, z2 = views(6, 4, dtype=dtype)
    for detach_weight in (True, False):
        arguments = {"sigma": sigma, "detach_weight": detach_weight}
        assert torch.isfinite(adnce(z1, z2, **arguments))
        assert np.isfinite(gradients(lambda a, b: adnce(a, b, **arguments), z1, z2)).all()  # noqa: B023


def test_the_positive_in_the_denominator_is_exact_where_the_positive_has_lost(reference, at_cosines):
    """The negatives exceed the positive by 20 to 30, where log(1 + e^gap) and gap still differ in float64."""
    for temperature in (0.09, 0.08, 0.065):
        z1, z2 = at_cosines(-0.95, [0.9, 0.1])
        arguments = {"temperature": temperature, "positive_in_denominator": True}
        got = adnce(z1, z2, reduction="none", **arguments)[0].item()
        expected = reference.terms(reference.adnce, z1, z2, **arguments)[0]
        assert got == pytest.approx(expected, rel=1e-13)
