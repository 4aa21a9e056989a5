"""Test `mean_variance` against float64 reference loops, and as a limit of InfoNCE and DCL at high temperature."""

import math

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch.nn import functional

from graphcl.losses import dcl, infonce, mean_variance
from tests.losses import loops


def term(positive, negatives, temperature=0.2, curvature=1.0):
    """Return -s+ + mean_j s_j + var_j(s_j) / (2 curvature), with the population variance."""
    average = math.fsum(negatives) / len(negatives)
    variance = math.fsum((c - average) ** 2 for c in negatives) / len(negatives)
    return (average - positive) / temperature + variance / temperature**2 / (2 * curvature)


batch = loops.of_cosines(term)
SETTINGS = [{}, {"temperature": 0.5, "curvature": 2.0}, {"temperature": 0.05, "curvature": 0.3}]
RANDOM = {"curvature": st.floats(0.05, 50)}
SMOOTH = [{"curvature": 0.7}]
FLOAT32 = [{}]
RANGES = {"curvature": "(0, inf)"}


def test_by_hand(at_cosines):
    """The logits are 1 (positive) and 3, 0, 0 (negatives), with mean 1 and variance (4 + 1 + 1) / 3 = 2."""
    views = at_cosines(0.2, [0.6, 0.0, 0.0])
    for curvature, expected in ((1.0, 1.0), (2.0, 0.5), (0.25, 4.0)):
        assert term(0.2, [0.6, 0.0, 0.0], 0.2, curvature) == pytest.approx(expected, rel=1e-14)
        got = mean_variance(*views, curvature=curvature, reduction="none")
        assert got[0].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("negatives", "symmetric"), loops.SWITCHES)
def test_is_the_second_order_of_dcl_and_infonce_at_a_high_temperature(views, negatives, symmetric):
    """DCL - log M = -s+ + mean + variance / 2 + third cumulant / 6 + O(t^-4), and InfoNCE = softplus(DCL)."""
    z1, z2 = views(6, 4)
    context = {"negatives": negatives, "symmetric": symmetric}
    rows = loops.compared(z1.tolist(), z2.tolist(), **context)
    moments = [np.mean((np.array(cosines) - np.mean(cosines)) ** 3) for _, cosines in loops.cosines(rows)]
    t, count = 200.0, {"cross": 5, "all": 10}[negatives]
    common = {**context, "temperature": t, "reduction": "none"}
    short = mean_variance(z1, z2, **common) + math.log(count)
    size = np.linalg.norm(moments) / 6
    np.testing.assert_allclose(t**3 * (dcl(z1, z2, **common) - short), np.divide(moments, 6), rtol=0, atol=0.02 * size)
    # The derivative of softplus at log M is M / (1 + M).
    rest = t**3 * (infonce(z1, z2, **common) - functional.softplus(short)) * (1 + count) / count
    np.testing.assert_allclose(rest, np.divide(moments, 6), rtol=0, atol=0.02 * size)


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_single_precision_keeps_a_small_variance_far_from_zero(at_cosines, engine):
    """Logits are 90 +- 0.1. In float32, mean(s^2) - mean(s)^2 would lose this variance."""
    cosines = (0.9 + 1e-3 * np.cos(np.arange(12))).tolist()
    z1, z2 = at_cosines(0.9, cosines, dtype=torch.float32)
    own = {"temperature": 0.01, "curvature": 1e-3, "reduction": "none", "engine": engine}
    got = mean_variance(z1, z2, **own)[0].item()
    assert got == pytest.approx(term(0.9, cosines, 0.01, 1e-3), rel=2e-3)
