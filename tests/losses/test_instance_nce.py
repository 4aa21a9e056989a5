"""Test `instance_nce` against float64 reference loops; its normaliser is detached."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st

from graphcl.losses import instance_nce
from tests.losses import loops


def term(anchor, positive, negatives, temperature=0.07, log_z=0.0, proximal=0.0):
    """Return -log h(s+) - sum_k log(1 - h(s_k)) + proximal (2 - 2 c+), with h(s) = 1 / (1 + K e^{log_z - s})."""
    shift = log_z + math.log(len(negatives))
    cosine = loops.cosine(anchor, positive)
    value = loops.softplus(shift - cosine / temperature)
    value += math.fsum(loops.softplus(loops.cosine(anchor, key) / temperature - shift) for key in negatives)
    return value + proximal * (2 - 2 * cosine)


def normaliser(z1, z2, temperature=0.07, symmetric=False):
    return normaliser_of(loops.compared(z1, z2, symmetric=symmetric), temperature)


def normaliser_of(rows, temperature):
    """Return the logarithm of the mean of e^s over all pairs of an anchor and a negative."""
    logits = [loops.cosine(anchor, key) / temperature for anchor, _, keys in rows for key in keys]
    return {"log_z": loops.log_sum_exp(logits) - math.log(len(logits))}


def batch(rows, frozen, temperature=0.07, log_z=None, proximal=0.0):
    own = normaliser_of(frozen, temperature) if log_z is None else {"log_z": log_z}
    return loops.of_rows(term)(rows, frozen, temperature=temperature, proximal=proximal, **own)


SETTINGS = [{}, {"temperature": 0.4, "proximal": 0.6}, {"log_z": 1.5, "temperature": 0.2, "proximal": 0.3}]
RANDOM = {"log_z": st.one_of(st.none(), st.floats(-5, 5)), "proximal": st.floats(0, 3)}
SMOOTH = [{"log_z": 1.0, "proximal": 0.5, "temperature": 0.3}]
RANGES = {"proximal": "[0, inf)"}


def test_the_loops_by_hand():
    """With all logits 0 and log_z = 0, h = 1 / (1 + K)."""
    rows = [1.0, 0.0], [0.0, 1.0], [[0.0, 2.0]] * 3
    assert term(*rows) == pytest.approx(-math.log(1 / 4) - 3 * math.log(3 / 4))
    assert term(*rows, log_z=math.log(2), proximal=0.5) == pytest.approx(-math.log(1 / 7) - 3 * math.log(6 / 7) + 1)
    # The negatives have cosines log 2 and 0. The mean of e^s is 3 / 2 at temperature 1, and 5 / 2 at 1 / 2.
    z1, z2 = [[1.0, 0.0]] * 2, [[0.0, 1.0], [math.log(2), math.sqrt(1 - math.log(2) ** 2)]]
    assert normaliser(z1, z2, temperature=1.0)["log_z"] == pytest.approx(math.log(1.5))
    assert normaliser(z1, z2, temperature=0.5)["log_z"] == pytest.approx(math.log(2.5))


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_normaliser_given_or_found_is_the_same_constant(views, gradients, symmetric):
    z1, z2 = views(6, 3)
    found = normaliser(z1.tolist(), z2.tolist(), symmetric=symmetric)
    loss = partial(instance_nce, symmetric=symmetric, negatives="cross")
    given_it = partial(loss, **found)
    assert loss(z1, z2).item() == pytest.approx(given_it(z1, z2).item(), rel=1e-10)
    np.testing.assert_allclose(gradients(loss, z1, z2), gradients(given_it, z1, z2), rtol=1e-9, atol=1e-11)
