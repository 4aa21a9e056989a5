"""Test `hcl` against float64 reference loops: weights for hard negatives, and the lower bound."""

import math

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from graphcl.losses import debiased, hcl, infonce
from tests.losses import loops


def term(positive, negatives, temperature=0.2, beta=1.0, tau_plus=0.1):
    """Return -log(e^{s+} / (e^{s+} + G)), G = max((R - tau_plus M e^{s+}) / (1 - tau_plus), M e^{-1/temperature}).

    Here R = M sum_j e^{(1 + beta) s_j} / sum_j e^{beta s_j}.
    """
    count, hardest = len(negatives), max(negatives)
    tilts = [math.exp(beta * (c - hardest) / temperature) for c in negatives]
    ratios = [math.exp((c - positive) / temperature) for c in negatives]
    tilted = count * math.fsum(a * b for a, b in zip(tilts, ratios, strict=True)) / math.fsum(tilts)
    floor = count * math.exp((-1 - positive) / temperature)
    return math.log1p(max((tilted - tau_plus * count) / (1 - tau_plus), floor))


batch = loops.of_cosines(term)
SETTINGS = [
    {},
    {"temperature": 0.5, "beta": 0.3, "tau_plus": 0.0},
    {"temperature": 0.3, "beta": 2.0, "tau_plus": 0.4},
    {"temperature": 1.0, "beta": 0.0},
    {"temperature": 0.3, "beta": 1.5, "tau_plus": 0.1},
    {"temperature": 0.5, "beta": 1.5, "tau_plus": 0.5},
]
RANDOM = {"beta": st.floats(0, 20), "tau_plus": st.floats(0, 0.95)}
SMOOTH = [{"beta": 0.7}]
FLOAT32 = [{}, {"beta": 3.0}, {"beta": 0.5, "tau_plus": 0.9}]
RANGES = {"tau_plus": "[0, 1)", "beta": "[0, inf)"}


def test_by_hand(at_cosines):
    """The logits are 0.2 (positive), 0.4 and -0.4 (negatives). In the second case, G is its lower bound 2 e^{-2}."""
    e = math.exp
    tilted = 2 * (e(1.2) + e(-1.2)) / (e(0.8) + e(-0.8))
    above = math.log(1 + (tilted - 0.25 * 2 * e(0.2)) / 0.75 / e(0.2))
    below = math.log((e(1.6) + 2 * e(-2)) / e(1.6))
    assert (tilted - 0.5 * 2 * e(1.6)) / 0.5 < 2 * e(-2)
    for positive, tau_plus, expected in ((0.1, 0.25, above), (0.8, 0.5, below)):
        own = {"temperature": 0.5, "beta": 2.0, "tau_plus": tau_plus}
        assert term(positive, [0.2, -0.2], **own) == pytest.approx(expected, rel=1e-14)
        got = hcl(*at_cosines(positive, [0.2, -0.2]), reduction="none", **own)
        assert got[0].item() == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(("negatives", "symmetric"), loops.SWITCHES)
@pytest.mark.parametrize("tau_plus", [0.0, 0.1, 0.5])
def test_without_tilt_it_is_the_debiased_loss(views, gradients, negatives, symmetric, tau_plus):
    z1, z2 = views(6, 4)
    common = {"negatives": negatives, "symmetric": symmetric, "tau_plus": tau_plus}
    expected = debiased(z1, z2, reduction="none", **common)
    got = hcl(z1, z2, beta=0.0, reduction="none", **common)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        gradients(lambda a, b: hcl(a, b, beta=0.0, **common), z1, z2),
        gradients(lambda a, b: debiased(a, b, **common), z1, z2),
        rtol=1e-10,
        atol=1e-13,
    )
    if tau_plus == 0:
        del common["tau_plus"]
        torch.testing.assert_close(got, infonce(z1, z2, reduction="none", **common), rtol=1e-12, atol=1e-14)


def test_a_steep_tilt_leaves_the_hardest_negative(at_cosines):
    """As beta grows, R rises monotonically to M e^{max s}."""
    positive, negatives, own = 0.3, [-0.5, 0.1, 0.4, 0.2], {"temperature": 0.2, "tau_plus": 0.1}
    views = at_cosines(positive, negatives)
    got = [hcl(*views, beta=beta, reduction="none", **own)[0].item() for beta in (0, 0.5, 1, 4, 100, 1e5)]
    assert (np.diff(got[:5]) > 0).all()
    limit = math.log1p((4 * math.exp(0.5) - 0.1 * 4) / 0.9)
    # Two logsumexps near 5e5 are subtracted.
    assert got[-1] == pytest.approx(limit, rel=1e-8)


def test_equal_negatives_cannot_be_tilted(at_cosines):
    views = at_cosines(0.5, [0.1] * 4)
    expected = debiased(*views, reduction="none")[0].item()
    for beta in (0.5, 30.0):
        assert hcl(*views, beta=beta, reduction="none")[0].item() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_at_the_floor_the_negatives_have_no_gradient(slopes, engine):
    """At the lower bound the term is log(1 + M e^{-1/t - s+}), with derivative -(1 - p) / t."""
    got = slopes(hcl, 0.9, [-0.5, 0.2, 0.1], temperature=0.5, tau_plus=0.5, engine=engine)
    rest = 3 * math.exp(-2 - 1.8)
    assert got[0] == pytest.approx(-rest / (1 + rest) / 0.5, rel=1e-12)
    assert got[1:] == [0, 0, 0]
