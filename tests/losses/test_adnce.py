"""Test `adnce` against float64 reference loops, with and without detached weights, and in its published variants."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from graphcl.losses import adnce, dcl, infonce
from tests.losses import loops
from tests.losses.loops import SWITCHES

SHAPES = [
    {"positive_in_denominator": inside, "negative_reduction": how}
    for inside, how in product([False, True], ["sum", "mean"])
]


def term(
    positive,
    negatives,
    frozen,
    temperature=0.2,
    mu=0.7,
    sigma=1.0,
    detach_weight=True,
    positive_in_denominator=False,
    negative_reduction="sum",
):
    """Return -log(e^{s+} / sum_j w_j e^{s_j}) for one anchor.

    The Gaussian weights w_j have mean 1; with `detach_weight` they are computed from `frozen`, a constant copy of the
    cosines.
    """
    exponents = [-((c - mu) ** 2) / (2 * sigma**2) for c in (frozen if detach_weight else negatives)]
    share = loops.log_sum_exp(exponents) - math.log({"sum": len(negatives), "mean": 1}[negative_reduction])
    weighed = [x - share + c / temperature for x, c in zip(exponents, negatives, strict=True)]
    own = [positive / temperature] if positive_in_denominator else []
    return loops.log_sum_exp(weighed + own) - positive / temperature


batch = loops.of_cosines(term, freeze=True)
tolerance = 1e-10
GAUSSIANS = [(0.2, 0.7, 1.0), (0.1, 0.2, 0.15), (1.0, -0.5, 0.4), (0.05, 1.5, math.inf)]
SETTINGS = [
    {"temperature": temperature, "mu": mu, "sigma": sigma, "detach_weight": number % 2 == 0, **shape}
    for number, ((temperature, mu, sigma), shape) in enumerate(zip(GAUSSIANS * 2, SHAPES + SHAPES[::-1], strict=True))
]
RANDOM = {
    "mu": st.floats(-1, 1.5),
    "sigma": st.one_of(st.floats(0.02, 3), st.just(math.inf)),
    "detach_weight": st.booleans(),
    "positive_in_denominator": st.booleans(),
    "negative_reduction": st.sampled_from(["sum", "mean"]),
}
SMOOTH = [{"detach_weight": False, **shape} for shape in SHAPES]
RANGES = {"mu": "(-inf, inf)", "sigma": "(0, inf]"}


def test_by_hand():
    """The logits are 1 (positive), 0.2 and -0.4. The weights of the negatives are e^-0.18 and e^-0.405."""
    e = math.exp
    near, far = e(-0.18), e(-0.405)
    weighed = (near * e(0.2) + far * e(-0.4)) / ((near + far) / 2)
    for own, below in (
        ({}, weighed),
        ({"negative_reduction": "mean"}, weighed / 2),
        ({"positive_in_denominator": True}, e(1) + weighed),
    ):
        got = term(0.5, [0.1, -0.2], [0.1, -0.2], temperature=0.5, **own)
        assert got == pytest.approx(-math.log(e(1) / below), rel=1e-14)


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


def test_the_positive_in_the_denominator_is_exact_where_the_positive_has_lost(at_cosines):
    """The negatives exceed the positive by 20 to 30, where log(1 + e^gap) and gap still differ in float64."""
    for temperature in (0.09, 0.08, 0.065):
        own = {"temperature": temperature, "positive_in_denominator": True}
        got = adnce(*at_cosines(-0.95, [0.9, 0.1]), reduction="none", **own)[0].item()
        assert got == pytest.approx(term(-0.95, [0.9, 0.1], [0.9, 0.1], **own), rel=1e-13)
