"""Test `dclw` against float64 reference loops, with and without detached weights."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from graphcl.losses import dcl, dclw
from tests.losses import loops


def term(positive, negatives, temperature, weight):
    """Return -w s+ + log sum_j e^{s_j}."""
    highest = max(negatives) / temperature
    total = math.fsum(math.exp(c / temperature - highest) for c in negatives)
    return highest + math.log(total) - weight * positive / temperature


def frozen(pairs, kept, temperature, sigma=0.5):
    """Return the terms of all anchors.

    The weights w_i = 2 - e^{c+_i / sigma} / mean_k e^{c+_k / sigma} are computed from `kept`, a constant copy of the
    cosines.
    """
    highest = max(positive for positive, _ in kept)
    exponentials = [math.exp((positive - highest) / sigma) for positive, _ in kept]
    average = math.fsum(exponentials) / len(kept)
    weights = [2 - exponential / average for exponential in exponentials]
    return [term(*pair, temperature, weight) if pair[1] else 0.0 for pair, weight in zip(pairs, weights, strict=True)]


def batch(rows, kept, temperature=0.2, sigma=0.5, detach_weight=True):
    kept = kept if detach_weight else rows
    return frozen(loops.cosines(rows), loops.cosines(kept), temperature, sigma)


SETTINGS = [
    {"detach_weight": detach_weight, **own}
    for detach_weight in (True, False)
    for own in ({}, {"temperature": 0.1, "sigma": 0.2}, {"temperature": 1.0, "sigma": 2.0})
]
RANDOM = {"sigma": st.floats(0.02, 3), "detach_weight": st.booleans()}
SMOOTH = [{"detach_weight": False}]
RANGES = {"sigma": "(0, inf]"}


def hand_made():
    """Return two views of three graphs in the plane. The views of a graph enclose 60, 90 and 0 degrees."""
    angles1, angles2 = (torch.deg2rad(torch.tensor(a, dtype=torch.float64)) for a in ([0, 90, 180], [60, 0, 180]))
    return [torch.stack([angle.cos(), angle.sin()], dim=1) for angle in (angles1, angles2)]


def test_by_hand():
    """The positives have cosines 0.5, 0 and 1. The first anchor's negatives have cosines 1 and -1."""
    e = math.exp
    weight = 2 - e(1) / ((e(1) + e(0) + e(2)) / 3)
    expected = -weight * 0.5 / 0.25 + math.log(e(4) + e(-4))
    pairs = [(0.5, [1, -1]), (0.0, [0.0, 0.0]), (1.0, [0.0, 0.0])]
    assert frozen(pairs, pairs, 0.25)[0] == pytest.approx(expected, rel=1e-14)
    got = dclw(*hand_made(), temperature=0.25, symmetric=False, reduction="none")
    assert got[0].item() == pytest.approx(expected, rel=1e-13)


def weights(z1, z2, sigma, **common):
    """Return the weights of the positives, computed as (A - L) / s+ with L = `dclw` and A = `dcl` + s+."""
    cosine = torch.nn.functional.cosine_similarity(z1, z2)
    cosine = torch.cat([cosine, cosine]) if common["symmetric"] else cosine
    both = {"temperature": 0.4, "reduction": "none", **common}
    return (dcl(z1, z2, **both) + cosine / 0.4 - dclw(z1, z2, sigma=sigma, **both)) * 0.4 / cosine, cosine


@pytest.mark.parametrize(("negatives", "symmetric"), loops.SWITCHES)
@pytest.mark.parametrize("sigma", [0.1, 0.5, 3.0])
def test_weights_have_mean_one_and_favour_the_hard_positives(views, negatives, symmetric, sigma):
    weight, cosine = weights(*views(7, 4), sigma, negatives=negatives, symmetric=symmetric)
    assert weight.mean().item() == pytest.approx(1, abs=1e-10)
    assert (weight[cosine.argsort()].diff() < 1e-9).all()
    assert weight.min() < 0.9
    assert weight.max() < 2 + 1e-9
    assert weight.min() > 2 - len(weight)


def test_a_narrow_sigma_makes_weights_negative(views):
    """Only the largest e^{c+ / sigma} matters: its weight is 2 - N, and all other weights are 2."""
    weight, cosine = weights(*views(7, 4), 1e-3, negatives="cross", symmetric=False)
    expected = torch.full((7,), 2.0, dtype=torch.float64)
    expected[cosine.argmax()] = 2 - 7
    torch.testing.assert_close(weight, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize(("negatives", "symmetric"), loops.SWITCHES)
@pytest.mark.parametrize("detach_weight", [True, False])
def test_a_wide_sigma_gives_dcl(views, gradients, negatives, symmetric, detach_weight):
    z1, z2 = views(6, 4)
    common = {"negatives": negatives, "symmetric": symmetric}
    errors = []
    for sigma in (1e3, 1e5):
        own = {"sigma": sigma, "detach_weight": detach_weight, **common}
        value = dclw(z1, z2, reduction="none", **own) - dcl(z1, z2, reduction="none", **common)
        slope = gradients(lambda a, b: dclw(a, b, **own), z1, z2) - gradients(  # noqa: B023 (called at once)
            lambda a, b: dcl(a, b, **common), z1, z2
        )
        errors.append([value.abs().max().item(), np.abs(slope).max()])
    assert max(errors[1]) < 1e-4
    np.testing.assert_allclose(np.divide(*errors), 100, rtol=0.01)


@pytest.mark.parametrize("detach_weight", [True, False])
def test_equal_positives_give_dcl_exactly(gradients, views, detach_weight):
    z1, _ = views(6, 4)
    # All positives have cosine 0.6.
    unit = torch.nn.functional.normalize(z1)
    side = torch.nn.functional.normalize(torch.stack([-unit[:, 1], unit[:, 0], -unit[:, 3], unit[:, 2]], dim=1))
    z2 = 0.6 * unit + 0.8 * side
    for sigma in (0.05, 0.5):
        value = dclw(z1, z2, sigma=sigma, reduction="none")
        torch.testing.assert_close(value, dcl(z1, z2, reduction="none"), rtol=1e-12, atol=1e-12)
    frozen_gradient = gradients(lambda a, b: dclw(a, b, detach_weight=True), z1, z2)
    np.testing.assert_allclose(frozen_gradient, gradients(dcl, z1, z2), rtol=1e-10, atol=1e-12)


def test_single_precision_at_a_low_temperature_and_a_low_sigma(views):
    """e^{1 / 0.005} overflows float32, both as a logit and as a weight."""
    for sigma, detach_weight in product((0.5, 0.005), (True, False)):
        z1, z2 = (z.requires_grad_() for z in views(6, 4, dtype=torch.float32))
        value = dclw(z1, z2, temperature=0.01, sigma=sigma, detach_weight=detach_weight)
        value.backward()
        expected = loops.mean(loops.terms(batch, z1.tolist(), z2.tolist(), temperature=0.01, sigma=sigma))
        assert value.item() == pytest.approx(expected, rel=1e-3)
        assert torch.isfinite(torch.cat([z1.grad, z2.grad])).all()
