"""Test `reweight` against float64 reference loops; its weights are detached."""

import math

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from graphcl.losses import adnce, mean_variance, reweight
from tests.losses import loops


def term(positive, negatives, frozen, temperature=0.2, mu=0.7, sigma=1.0):
    """Return -s+ + mean_j w_j s_j for one anchor.

    The Gaussian weights w_j have mean 1 and are computed from `frozen`, a constant copy of the cosines.
    """
    exponents = [-((c - mu) ** 2) / (2 * sigma**2) for c in frozen]
    weights = [math.exp(x - max(exponents)) for x in exponents]
    weighed = math.fsum(w * c for w, c in zip(weights, negatives, strict=True)) / math.fsum(weights)
    return (weighed - positive) / temperature


batch = loops.of_cosines(term, freeze=True)
SETTINGS = [{}, {"temperature": 0.5, "mu": 0.2, "sigma": 0.15}, {"temperature": 0.1, "mu": -0.5, "sigma": math.inf}]
RANDOM = {"mu": st.floats(-1, 1.5), "sigma": st.one_of(st.floats(0.02, 3), st.just(math.inf))}
FLOAT32 = [{}, {"mu": 0.2, "sigma": 0.1}]
RANGES = {"mu": "(-inf, inf)", "sigma": "(0, inf]"}


def test_by_hand(at_cosines):
    """With mu = 0.5 and sigma^2 = 0.1, the cosines 0.7 and 0.1 have weights e^{-0.2} and e^{-0.8}."""
    near, far = math.exp(-0.2), math.exp(-0.8)
    expected = (near * 0.7 + far * 0.1) / (near + far) / 0.25 - 0.3 / 0.25
    own = {"temperature": 0.25, "mu": 0.5, "sigma": math.sqrt(0.1)}
    assert term(0.3, [0.7, 0.1], frozen=[0.7, 0.1], **own) == pytest.approx(expected, rel=1e-14)
    got = reweight(*at_cosines(0.3, [0.7, 0.1]), reduction="none", **own)
    assert got[0].item() == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(("negatives", "symmetric"), loops.SWITCHES)
@pytest.mark.parametrize("mu", [-0.3, 0.7])
def test_a_flat_gaussian_leaves_the_plain_mean(views, gradients, negatives, symmetric, mu):
    """With equal weights, the loss is `mean_variance` without the variance."""
    z1, z2 = views(6, 4)
    common = {"negatives": negatives, "symmetric": symmetric}
    flat = reweight(z1, z2, mu=mu, sigma=math.inf, reduction="none", **common)
    expected = mean_variance(z1, z2, curvature=1e15, reduction="none", **common)
    torch.testing.assert_close(flat, expected, rtol=1e-12, atol=1e-12)
    wide = reweight(z1, z2, mu=mu, sigma=1e5, reduction="none", **common)
    torch.testing.assert_close(wide, expected, rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        gradients(lambda a, b: reweight(a, b, mu=mu, sigma=math.inf, **common), z1, z2),
        gradients(lambda a, b: mean_variance(a, b, curvature=1e15, **common), z1, z2),
        rtol=1e-10,
        atol=1e-12,
    )


def test_is_the_first_order_of_adnce_at_a_high_temperature(views):
    """`adnce` minus `reweight` is (variance of s under the weights w) / 2 + O(t^-3)."""
    z1, z2 = views(6, 4)
    t, own = 1e3, {"mu": 0.3, "sigma": 0.3}
    common = {"temperature": t, "symmetric": False, "reduction": "none", **own}
    cosine = torch.nn.functional.cosine_similarity(z1[:, None], z2[None], dim=-1)
    negative = cosine[~torch.eye(6, dtype=torch.bool)].view(6, 5)
    weight = torch.softmax(-((negative - 0.3) ** 2) / 0.18, dim=1)
    centred = negative - (weight * negative).sum(dim=1, keepdim=True)
    variance = (weight * centred**2).sum(dim=1)
    difference = adnce(z1, z2, negative_reduction="mean", **common) - reweight(z1, z2, **common)
    torch.testing.assert_close(t**2 * difference, variance / 2, rtol=5e-3, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_a_narrow_gaussian_far_away_leaves_the_nearest_negative(at_cosines, dtype, engine):
    """All weights before normalisation underflow."""
    z1, z2 = at_cosines(0.5, [0.1, -0.4, -0.9], dtype=dtype)
    got = reweight(z1, z2, mu=0.9, sigma=1e-3, engine=engine, reduction="none")[0].item()
    assert got == pytest.approx((0.1 - 0.5) / 0.2, rel=1e-6)


def test_weights_of_large_logarithms_still_have_mean_one(views):
    """All negatives are equal and far from mu. Each has weight 1, although the Gaussian is e^-1,445,000."""
    z = torch.ones(3, 1)
    for engine in ("dense", "tiled"):
        assert reweight(z, -z, sigma=1e-3, engine=engine).item() == pytest.approx(0, abs=1e-6)
