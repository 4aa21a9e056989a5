"""Noise-contrastive instance discrimination against float64 loops; the normaliser is frozen."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from graphcl.errors import InputError
from graphcl.losses import explicit, instance_nce
from tests.losses import loops


def term(anchor, positive, negatives, temperature=0.07, log_z=0.0, proximal=0.0):
    """-log h(s+) - sum_k log(1 - h(s_k)) + proximal (2 - 2 c+), h(s) = 1 / (1 + K e^{log_z - s})."""
    shift = log_z + math.log(len(negatives))
    cosine = loops.cosine(anchor, positive)
    value = loops.softplus(shift - cosine / temperature)
    value += math.fsum(loops.softplus(loops.cosine(anchor, key) / temperature - shift) for key in negatives)
    return value + proximal * (2 - 2 * cosine)


def normaliser(z1, z2, temperature=0.07, symmetric=False, log_z=None, proximal=0.0, **who):
    """The log of the mean of e^s over all anchors and their negatives, unless it is given."""
    rows = loops.compared(z1, z2, symmetric=symmetric, **who)
    logits = [loops.cosine(anchor, key) / temperature for anchor, _, keys in rows for key in keys]
    return {"log_z": loops.log_sum_exp(logits) - math.log(len(logits)) if log_z is None else log_z}


def slow(z1, z2, symmetric=False, **own):
    frozen = normaliser(z1, z2, symmetric=symmetric, **own)
    return loops.every(term)(z1, z2, **(own | frozen), symmetric=symmetric)


def test_the_loops_by_hand():
    """All logits 0 and log_z 0: h = 1 / (1 + K)."""
    rows = [1.0, 0.0], [0.0, 1.0], [[0.0, 2.0]] * 3
    assert term(*rows) == pytest.approx(-math.log(1 / 4) - 3 * math.log(3 / 4))
    assert term(*rows, log_z=math.log(2), proximal=0.5) == pytest.approx(-math.log(1 / 7) - 3 * math.log(6 / 7) + 1)
    # The negatives' cosines are log 2 and 0: at temperature 1 the mean of e^s is 3 / 2, at 1 / 2 it is 5 / 2.
    z1, z2 = [[1.0, 0.0]] * 2, [[0.0, 1.0], [math.log(2), math.sqrt(1 - math.log(2) ** 2)]]
    assert normaliser(z1, z2, temperature=1.0)["log_z"] == pytest.approx(math.log(1.5))
    assert normaliser(z1, z2, temperature=0.5)["log_z"] == pytest.approx(math.log(2.5))


@loops.each_case
@pytest.mark.parametrize(
    "own", [{}, {"temperature": 0.4, "proximal": 0.6}, {"log_z": 1.5, "temperature": 0.2}], ids=str
)
def test_value_and_gradient_equal_the_loops(views, own, negatives, held, symmetric):
    count = 2 + len(held) % 4
    shared = loops.who(count, 3, negatives, held, symmetric)
    loops.agree(instance_nce, slow, *views(count, 3, seed=1), frozen=normaliser, **shared, **own)


def test_defaults_and_an_anchor_without_negatives(views):
    z1, z2 = views(5, 3)
    assert instance_nce(z1, z2, reduction="none").shape == (5,)
    assert instance_nce(z1, z2).item() == pytest.approx(np.mean(slow(z1.tolist(), z2.tolist())), rel=1e-10)
    for log_z in (None, 0.7):
        own = {"proximal": 0.4, "temperature": 0.3, "log_z": log_z, "symmetric": False}
        loops.agree(instance_nce, slow, *views(2, 3), frozen=normaliser, **loops.lonely(3), **own)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), log_z=st.one_of(st.none(), st.floats(-5, 5)), proximal=st.floats(0, 3))
def test_equals_the_loops_everywhere(reference, data, log_z, proximal):
    z1, z2 = data.draw(reference.projections())
    own = data.draw(reference.settings_common()) | {"log_z": log_z, "proximal": proximal}
    got = instance_nce(torch.tensor(z1), torch.tensor(z2), reduction="none", **own)
    np.testing.assert_allclose(got, slow(z1.tolist(), z2.tolist(), **own), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_normaliser_given_or_found_is_the_same_constant(views, gradients, symmetric):
    z1, z2 = views(6, 3)
    found = normaliser(z1.tolist(), z2.tolist(), symmetric=symmetric)
    loss, given_it = partial(instance_nce, symmetric=symmetric), partial(instance_nce, symmetric=symmetric, **found)
    assert loss(z1, z2).item() == pytest.approx(given_it(z1, z2).item(), rel=1e-10)
    np.testing.assert_allclose(gradients(loss, z1, z2), gradients(given_it, z1, z2), rtol=1e-9, atol=1e-11)


def test_explicit_rows_and_many_rows():
    loops.agree_explicitly(instance_nce, term, explicit, "cosine", log_z=0.5, proximal=0.3, temperature=0.2)
    for log_z in (None, 2.0):
        loops.agree_in_tiles(instance_nce, log_z=log_z, proximal=0.3)


@pytest.mark.parametrize("symmetric", [True, False])
def test_gradcheck_with_a_given_normaliser(views, symmetric):
    z1, z2 = (z.requires_grad_() for z in views(3, 2))
    for negatives in ("cross", "all"):
        own = {"log_z": 1.0, "proximal": 0.5, "temperature": 0.3, "negatives": negatives, "symmetric": symmetric}
        assert gradcheck(partial(instance_nce, reduction="none", **own), (z1, z2))


def test_low_temperatures_and_zero_rows_stay_finite(views):
    z1, z2 = views(5, 3)
    z1[0] = z2[3] = 0
    for engine in ("dense", "tiled"):
        for own in ({}, {"temperature": 0.005}, {"log_z": -500.0}, {"log_z": 500.0}):
            loops.finite(partial(instance_nce, engine=engine, **own), z1, z2)
        loops.finite(partial(instance_nce, engine=engine), 0 * z1, 0 * z2)


@pytest.mark.parametrize("wrong", [-0.1, math.inf, math.nan])
def test_proximal_out_of_range(views, wrong):
    with pytest.raises(InputError, match=rf"^`proximal` must be in \[0, inf\), got {wrong}"):
        instance_nce(*views(3, 2), proximal=wrong)
