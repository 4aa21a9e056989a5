"""Test `alpha_cl` against float64 reference loops; its weights are detached."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from graphcl.losses import alpha_cl, reweight
from graphcl.registry import losses
from tests.losses import loops


def term(positive, negatives, frozen, temperature=0.5, power=4, epsilon=0.0):
    """Return sum_j w_j (c_j - c+) / (sum_j w_j + epsilon M) for one anchor.

    The weights w_j = e^{-(1 - c_j)^power / temperature} are computed from `frozen`, a constant copy of the cosines.
    """
    exponents = [-((1 - c) ** power) / temperature for c in frozen]
    # Without epsilon, the largest weight cancels. With epsilon, weights that underflow are negligible.
    highest = 0.0 if epsilon else max(exponents)
    weights = [math.exp(x - highest) for x in exponents]
    above = math.fsum(w * (c - positive) for w, c in zip(weights, negatives, strict=True))
    return above / (math.fsum(weights) + epsilon * len(negatives))


batch = loops.of_cosines(term, freeze=True)
SETTINGS = [
    {"temperature": 0.5},
    {"temperature": 0.5, "power": 2},
    {"temperature": 0.1, "power": 4, "epsilon": 0.1},
    {"temperature": 2.0, "power": 2, "epsilon": 0.5},
]
RANDOM = {"power": st.sampled_from([2, 4]), "epsilon": st.one_of(st.just(0.0), st.floats(1e-3, 2))}
FLOAT32 = [{"power": 2}, {"power": 4}, {"power": 4, "epsilon": 0.1}]
RANGES = {"epsilon": "[0, inf)"}


def test_by_hand(at_cosines):
    """At cosines 0.5 and 0, (1 - c)^2 is 0.25 and 1, and (1 - c)^4 is 0.0625 and 1."""
    for power, epsilon, near in ((2, 0.0, math.exp(-0.5)), (4, 0.0, math.exp(-0.125)), (4, 0.1, math.exp(-0.125))):
        far = math.exp(-2)
        expected = (near * (0.5 - 0.3) + far * (0 - 0.3)) / (near + far + 2 * epsilon)
        own = {"temperature": 0.5, "power": power, "epsilon": epsilon}
        assert term(0.3, [0.5, 0.0], frozen=[0.5, 0.0], **own) == pytest.approx(expected, rel=1e-14)
        got = alpha_cl(*at_cosines(0.3, [0.5, 0.0]), reduction="none", **own)
        assert got[0].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("negatives", "symmetric"), loops.SWITCHES)
@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_squares_are_a_gaussian_at_one(views, gradients, negatives, symmetric, temperature):
    """With power 2, the weights are those of `reweight` with mu = 1 and sigma^2 = t / 2."""
    z1, z2 = views(6, 4)
    common = {"negatives": negatives, "symmetric": symmetric}
    own, gaussian = {"temperature": temperature, "power": 2}, {"mu": 1.0, "sigma": math.sqrt(temperature / 2)}
    got = alpha_cl(z1, z2, reduction="none", **own, **common)
    expected = reweight(z1, z2, temperature=1.0, reduction="none", **gaussian, **common)
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(
        gradients(lambda a, b: alpha_cl(a, b, **own, **common), z1, z2),
        gradients(lambda a, b: reweight(a, b, temperature=1.0, **gaussian, **common), z1, z2),
        rtol=1e-10,
        atol=1e-12,
    )


@pytest.mark.parametrize(("power", "epsilon"), list(product([2, 4], [0.0, 0.25])))
def test_a_high_temperature_leaves_equal_weights(at_cosines, power, epsilon):
    views = at_cosines(0.3, [0.5, -0.7, 0.1])
    got = alpha_cl(*views, temperature=1e12, power=power, epsilon=epsilon, reduction="none")[0].item()
    assert got == pytest.approx((-0.1 / 3 - 0.3) / (1 + epsilon), rel=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_weights_that_all_underflow(at_cosines, dtype, engine):
    """Every w underflows. Without epsilon, alpha is 1 for the nearest negative; with epsilon, alpha is 0."""
    z1, z2 = at_cosines(0.5, [-0.5, -0.6, -0.9], dtype=dtype)
    z2.requires_grad_()
    for epsilon, expected in ((0.0, -1.0), (0.1, 0.0)):
        own = {"temperature": 0.001, "epsilon": epsilon, "engine": engine, "reduction": "none"}
        value = alpha_cl(z1, z2, **own)[0]
        assert value.item() == pytest.approx(expected, abs=1e-6)
        (slope,) = torch.autograd.grad(value, z2)
        assert torch.isfinite(slope).all()
        assert slope[0, 0].item() == pytest.approx(-0.75 if expected else 0, abs=1e-6)


def test_a_power_given_as_a_float(views):
    """A float `power` works, or is rejected by older versions of pydantic."""
    z1, z2 = views(4, 3)
    if found := losses.problems("alpha_cl", {"power": 4.0}):
        assert found == ["`power` must be 2 or 4, got 4.0."]
    else:
        assert torch.equal(alpha_cl(z1, z2, power=4.0), alpha_cl(z1, z2, power=4))
