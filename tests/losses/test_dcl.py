"""Decoupled contrastive loss against float64 loops, and its limits."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from graphcl.losses import dcl, infonce

SWITCHES = list(product(["cross", "all"], [True, False]))
SIZES = [(2, 1), (2, 5), (3, 2), (6, 4), (9, 16)]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_equals_the_loops_everywhere(reference, data):
    z1, z2 = data.draw(reference.projections())
    common = data.draw(reference.settings_common())
    expected = reference.terms(reference.dcl, z1, z2, **common)
    z1, z2 = torch.tensor(z1), torch.tensor(z2)
    np.testing.assert_allclose(dcl(z1, z2, reduction="none", **common), expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(dcl(z1, z2, **common), expected.mean(), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("negatives", "symmetric"), SWITCHES)
@pytest.mark.parametrize(("count", "columns"), SIZES)
@pytest.mark.parametrize("temperature", [0.05, 0.2, 1.0])
def test_value_and_gradient_equal_the_loops(
    reference, views, gradients, negatives, symmetric, count, columns, temperature
):
    z1, z2 = views(count, columns, seed=count + columns)
    common = {"temperature": temperature, "negatives": negatives, "symmetric": symmetric}
    expected = reference.terms(reference.dcl, z1, z2, **common)
    np.testing.assert_allclose(dcl(z1, z2, reduction="none", **common), expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(
        gradients(lambda a, b: dcl(a, b, **common), z1, z2),
        reference.gradient(reference.dcl, z1, z2, **common),
        rtol=1e-10,
        atol=1e-10,
    )


def test_one_way_cross_view_is_the_official_graphcl_form(views):
    """-log( pos / (sum of the row - pos) ), exponentials written out: safe at temperature 0.2 in float64."""
    z1, z2 = views(6, 4)
    e = torch.exp(torch.nn.functional.cosine_similarity(z1[:, None], z2[None], dim=-1) / 0.2)
    expected = -torch.log(e.diagonal() / (e.sum(dim=1) - e.diagonal())).mean()
    assert dcl(z1, z2, temperature=0.2, symmetric=False).item() == pytest.approx(expected.item(), rel=1e-10)


@pytest.mark.parametrize(("negatives", "symmetric"), SWITCHES)
@pytest.mark.parametrize("same", [0.0, 1.0])
def test_equal_cosines_give_log_of_the_number_of_negatives(negatives, symmetric, same):
    z = torch.full((6, 3), same, dtype=torch.float64)
    count = {"cross": 5, "all": 10}[negatives]
    value = dcl(z, z, negatives=negatives, symmetric=symmetric)
    assert value.item() == pytest.approx(math.log(count), abs=1e-12)


def test_one_negative_leaves_the_difference_of_two_logits(at_cosines):
    z1, z2 = at_cosines(0.75, [-0.25])
    assert dcl(z1, z2, temperature=0.5, reduction="none")[0].item() == pytest.approx((-0.25 - 0.75) / 0.5, abs=1e-12)


def test_infonce_is_the_softplus_of_dcl(views):
    """log(e^{s+} + e^A) - s+ = softplus(A - s+): two printed values, one quantity."""
    z1, z2 = views(6, 4)
    zero = torch.zeros((), dtype=torch.float64)
    for negatives, symmetric in SWITCHES:
        common = {"negatives": negatives, "symmetric": symmetric, "reduction": "none"}
        torch.testing.assert_close(
            torch.logaddexp(dcl(z1, z2, **common), zero), infonce(z1, z2, **common), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize(("negatives", "symmetric"), SWITCHES)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_gradcheck(views, negatives, symmetric, reduction):
    z1, z2 = (z.requires_grad_() for z in views(3, 2))
    assert gradcheck(lambda a, b: dcl(a, b, negatives=negatives, symmetric=symmetric, reduction=reduction), (z1, z2))
