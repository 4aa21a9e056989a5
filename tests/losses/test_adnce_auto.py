"""Test `adnce_auto` against float64 loops that solve for the width by bisection, and properties of its weights."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from graphcl.losses import adnce, adnce_auto, dcl
from tests.losses import loops

RULES = ["quantile", "radius", "tilt"]
COSINES = [-0.61, 0.05, -0.2, 0.31, 0.74, 0.22, -0.05, 0.5, 0.12, 0.93]


def weights_of(f, beta):
    """Return softmax(beta f)."""
    top = max(f)
    density = [math.exp(beta * (each - top)) for each in f]
    return [each / math.fsum(density) for each in density]


def divergence(q):
    """Return KL(q, uniform)."""
    return math.fsum(p * math.log(p * len(q)) for p in q if p > 0)


def worst(cosines, **own):
    """Return the distribution Q over the negatives of one anchor, see the table in `adnce_auto`."""
    return _worst(tuple(cosines), **own)


@cache  # central differences call this function many times with the same cosines
def _worst(cosines, rule="tilt", peak=0.9, scale=1.0, share=0.5):
    count, radius = len(cosines), -math.log(share)
    top = sorted(cosines)[max(1, math.ceil(peak * count)) - 1]
    f = cosines if rule == "tilt" else [-((c - top) ** 2) / 2 for c in cosines]
    if rule == "quantile":
        mean = math.fsum(cosines) / count
        sigma = max(scale * math.sqrt(math.fsum((c - mean) ** 2 for c in cosines) / count), 1e-4)
        return weights_of(f, 1 / sigma**2)
    most = 1e3 if rule == "tilt" else 1e8
    if share == 1 or divergence(weights_of(f, most)) <= radius:
        return weights_of(f, 0 if share == 1 else most)
    low, high = math.log(1e-3), math.log(most)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if divergence(weights_of(f, math.exp(middle))) < radius else (low, middle)
    return weights_of(f, math.exp(low))


def term(positive, negatives, frozen, temperature=0.2, **own):
    """Return log sum_j w_j e^{s_j} - s+ for one anchor.

    The weights w_j = Q_j e^{-s_j}, scaled to mean 1, are computed from `frozen`, a constant copy of the cosines.
    """
    weights = [q * math.exp(-c / temperature) for q, c in zip(worst(frozen, **own), frozen, strict=True)]
    mean = math.fsum(weights) / len(weights)
    pull = math.fsum(w / mean * math.exp(c / temperature) for w, c in zip(weights, negatives, strict=True))
    return math.log(pull) - positive / temperature


batch = loops.of_cosines(term, freeze=True)
KINDS = [
    {},
    {"rule": "quantile"},
    {"rule": "quantile", "peak": 0.5, "scale": 0.4},
    {"rule": "quantile", "peak": 1.0, "scale": 2.0},
    {"rule": "radius", "share": 0.7},
    {"rule": "radius", "peak": 0.6, "share": 0.37},
    {"rule": "tilt", "share": 0.7},
    {"rule": "tilt", "share": 1.0},
]
SETTINGS = [{"temperature": (0.2, 0.7)[number % 2], **own} for number, own in enumerate(KINDS)]
FLOAT32 = [KINDS[0], KINDS[1], KINDS[3], KINDS[5]]
RANGES = {"peak": "[0, 1]", "scale": "(0, inf)", "share": "(0, 1]"}


def shares(slopes, cosines=COSINES, **own):
    """Return the fraction of the gradient on each negative."""
    own = {"temperature": 0.2, **own}
    return np.array(slopes(adnce_auto, 0.4, cosines, **own)[1:]) * own["temperature"]


@pytest.mark.parametrize(("temperature", "own"), [(0.2, KINDS[1]), (0.7, KINDS[2]), (0.1, KINDS[5])])
def test_it_is_adnce_with_that_mu_and_sigma(at_cosines, slopes, temperature, own):
    """Compare with `adnce` at mu = c* - sigma^2 / tau, where sigma is computed from the gradient."""
    top = sorted(COSINES)[math.ceil(own.get("peak", 0.9) * len(COSINES)) - 1]
    q = shares(slopes, **own)
    j, k = np.argsort(q)[[0, -2]]
    beta = 2 * math.log(q[k] / q[j]) / ((COSINES[j] - top) ** 2 - (COSINES[k] - top) ** 2)
    if own.get("rule") != "radius":
        assert beta == pytest.approx((own.get("scale", 1.0) * np.std(COSINES)) ** -2, rel=1e-9)
    by_hand = {"temperature": temperature, "mu": top - 1 / beta / temperature, "sigma": beta**-0.5}
    got = adnce_auto(*at_cosines(0.4, COSINES), temperature=temperature, reduction="none", **own)[0].item()
    assert got == pytest.approx(adnce(*at_cosines(0.4, COSINES), reduction="none", **by_hand)[0].item(), rel=1e-9)
    np.testing.assert_allclose(
        slopes(adnce_auto, 0.4, COSINES, temperature=temperature, **own),
        slopes(adnce, 0.4, COSINES, **by_hand),
        rtol=1e-8,
    )


@pytest.mark.parametrize("own", KINDS, ids=str)
def test_the_gradient_is_the_worst_weights_whatever_the_temperature(slopes, own):
    for temperature in (0.02, 0.2, 2.0):
        np.testing.assert_allclose(shares(slopes, temperature=temperature, **own), worst(COSINES, **own), rtol=1e-8)


@pytest.mark.parametrize("own", KINDS, ids=str)
def test_shifting_and_stretching_the_cosines_changes_no_weight(slopes, own):
    expected = shares(slopes, **own)
    for offset, factor in ((0.0, 0.1), (0.9, 0.05), (-0.5, 0.5)):
        moved = [offset + factor * c for c in COSINES]
        np.testing.assert_allclose(shares(slopes, moved, **own), expected, rtol=1e-6)


@pytest.mark.parametrize("share", [0.99, 0.7, 0.5, 0.25, 0.11])
@pytest.mark.parametrize("rule", ["radius", "tilt"])
def test_the_radius_is_kept(slopes, rule, share):
    assert divergence(shares(slopes, rule=rule, share=share)) == pytest.approx(-math.log(share), rel=1e-9)


def test_tilted_weights_are_the_worst_within_the_radius(slopes):
    """Q maximises E_Q c subject to KL(Q, uniform) <= radius. In `cl_dro`, the KL divergence is a penalty instead."""
    q = shares(slopes, rule="tilt", share=0.6)
    random = np.random.default_rng(0)
    inside = [p for a in (0.3, 1, 3) for p in random.dirichlet(np.full(10, a), 400) if divergence(p) <= -math.log(0.6)]
    assert len(inside) > 100
    assert q @ COSINES > max(p @ COSINES for p in inside)
    # The weights equal those of `dcl` at the temperature that corresponds to the radius.
    low, high = np.argsort(COSINES)[[0, -1]]
    temperature = (COSINES[high] - COSINES[low]) / math.log(q[high] / q[low])
    same = np.array(slopes(dcl, 0.4, COSINES, temperature=temperature)[1:]) * temperature
    np.testing.assert_allclose(q, same, rtol=1e-8)


@pytest.mark.parametrize("own", [{"rule": "quantile", "scale": 1e-3}, {"rule": "radius", "share": 0.01}], ids=str)
@pytest.mark.parametrize("peak", [0.0, 0.5, 0.9, 1.0])
def test_in_the_other_limit_only_the_one_at_the_quantile_is_left(slopes, own, peak):
    place = max(1, math.ceil(peak * len(COSINES))) - 1
    expected = np.eye(len(COSINES))[np.argsort(COSINES)[place]]
    np.testing.assert_allclose(shares(slopes, peak=peak, **own), expected, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_or_nearly_equal_negatives_give_dcl(at_cosines, gradients, rule, dtype):
    """Test projections that are equal up to rounding, and batches of two graphs."""
    generator = torch.Generator().manual_seed(0)
    noise = 1e-7 * torch.randn(2, 8, 5, generator=generator, dtype=torch.float64)
    close = [(1 + each).to(dtype) for each in noise]
    for views in (close, [close[0], close[0]], torch.randn(2, 2, 5, generator=generator, dtype=dtype)):
        got = adnce_auto(*views, rule=rule, reduction="none")
        torch.testing.assert_close(got, dcl(*views, reduction="none"), rtol=0, atol=2e-5)
        slopes = [gradients(loss, *views) for loss in (lambda a, b: adnce_auto(a, b, rule=rule), dcl)]
        np.testing.assert_allclose(*slopes, atol=1e-3 * np.abs(slopes[1]).max() + 1e-7)


@pytest.mark.parametrize("rule", RULES)
def test_single_precision_finds_the_radius(views, gradients, rule):
    z1, z2 = views(128, 16)
    exact = gradients(lambda a, b: adnce_auto(a, b, rule=rule, share=0.3), z1, z2)
    single = gradients(lambda a, b: adnce_auto(a, b, rule=rule, share=0.3), z1.float(), z2.float())
    np.testing.assert_allclose(single, exact, atol=1e-3 * np.abs(exact).max())
