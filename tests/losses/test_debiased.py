"""Test `debiased` against float64 reference loops: the corrected sum over negatives, and its lower bound."""

import math

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from graphcl.losses import debiased, infonce
from tests.losses import loops


def term(positive, negatives, temperature=0.2, tau_plus=0.1):
    """Return -log(e^{s+} / (e^{s+} + G)).

    Here G = max((sum_j e^{s_j} - tau_plus M e^{s+}) / (1 - tau_plus), M e^{-1/t}).
    """
    count = len(negatives)
    # All exponentials are divided by e^{s+}.
    total = math.fsum(math.exp((c - positive) / temperature) for c in negatives)
    floor = count * math.exp((-1 - positive) / temperature)
    return math.log1p(max((total - tau_plus * count) / (1 - tau_plus), floor))


batch = loops.of_cosines(term)
SETTINGS = [
    {},
    {"temperature": 0.5, "tau_plus": 0.0},
    {"temperature": 0.3, "tau_plus": 0.4},
    {"temperature": 0.3, "tau_plus": 0.5},
]
RANDOM = {"tau_plus": st.floats(0, 0.95)}
SMOOTH = [{"tau_plus": 0.2}]
FLOAT32 = [{"tau_plus": tau_plus} for tau_plus in (0.0, 0.1, 0.9)]
RANGES = {"tau_plus": "[0, 1)"}


def test_by_hand(at_cosines):
    """One case lies above the lower bound. In the other case the bound is active: M e^{-1/t} = 2 e^{-2}."""
    e = math.exp
    above = math.log((e(0.2) + (e(0.4) + e(-0.4) - 0.25 * 2 * e(0.2)) / 0.75) / e(0.2))
    below = math.log((e(1) + 2 * e(-2)) / e(1))
    assert (e(0.4) + e(-0.4) - 0.5 * e(0.2)) / 0.75 > 2 * e(-2) > (e(0.4) + e(-0.4) - 0.5 * 2 * e(1)) / 0.5
    for positive, tau_plus, expected in ((0.1, 0.25, above), (0.5, 0.5, below)):
        assert term(positive, [0.2, -0.2], 0.5, tau_plus) == pytest.approx(expected, rel=1e-14)
        views = at_cosines(positive, [0.2, -0.2])
        got = debiased(*views, temperature=0.5, tau_plus=tau_plus, reduction="none")
        assert got[0].item() == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(("negatives", "symmetric"), loops.SWITCHES)
@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_without_false_negatives_it_is_infonce(views, gradients, negatives, symmetric, temperature):
    z1, z2 = views(6, 4)
    common = {"negatives": negatives, "symmetric": symmetric, "temperature": temperature}
    expected = infonce(z1, z2, reduction="none", **common)
    got = debiased(z1, z2, tau_plus=0.0, reduction="none", **common)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        gradients(lambda a, b: debiased(a, b, tau_plus=0.0, **common), z1, z2),
        gradients(lambda a, b: infonce(a, b, **common), z1, z2),
        rtol=1e-10,
        atol=1e-13,
    )


def test_negatives_as_near_as_the_positive_need_no_correction(at_cosines):
    """(M e^s - tau_plus M e^s) / (1 - tau_plus) = M e^s for every tau_plus."""
    for tau_plus in (0.0, 0.3, 0.9):
        got = debiased(*at_cosines(0.4, [0.4] * 4), tau_plus=tau_plus, temperature=0.3, reduction="none")
        assert got[0].item() == pytest.approx(math.log(5), abs=1e-12)


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_at_the_floor_the_negatives_have_no_gradient(slopes, engine):
    """At the lower bound the term is log(1 + M e^{-1/t - s+}), with derivative -(1 - p) / t."""
    got = slopes(debiased, 0.9, [-0.5, 0.2, 0.1], temperature=0.5, tau_plus=0.5, engine=engine)
    rest = 3 * math.exp(-2 - 1.8)
    assert got[0] == pytest.approx(-rest / (1 + rest) / 0.5, rel=1e-12)
    assert got[1:] == [0, 0, 0]


def test_the_floor_is_reached_where_the_equation_says(slopes):
    """Test tau_plus slightly below and above the value at which the estimate equals the lower bound."""
    positive, negatives, t = 0.6, [-0.3, 0.1, 0.2], 0.5
    total = math.fsum(math.exp((c - positive) / t) for c in negatives)
    floor = 3 * math.exp((-1 - positive) / t)
    edge = (total - floor) / (3 - floor)
    for shift in (-1e-6, 1e-6):
        got = slopes(debiased, positive, negatives, temperature=t, tau_plus=edge + shift)
        assert (np.array(got[1:]) == 0).all() == (shift > 0)
