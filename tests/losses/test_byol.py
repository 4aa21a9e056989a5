"""BYOL's loss against float64 loops: predictions follow targets, and targets do not move."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from graphcl.errors import InputError
from graphcl.losses import byol, simsiam
from tests.losses import loops


def slow(z1, z2):
    """2 - 2 cos(z1_i, z2_i)."""
    return [2 - 2 * loops.cosine(a, b) for a, b in zip(z1, z2, strict=True)]


def test_the_loops_by_hand():
    """Orthogonal, opposite, 45 degrees."""
    z1, z2 = [[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[0.0, 3.0], [0.0, -5.0], [4.0, 4.0]]
    assert slow(z1, z2) == pytest.approx([2.0, 4.0, 2 - math.sqrt(2)])


@pytest.mark.parametrize(("count", "columns"), [(2, 2), (3, 4), (5, 3)])
def test_value_and_gradient_equal_the_loops(views, count, columns):
    """Differences of z2 are not looked for: a target has no gradient."""
    z1, z2 = views(count, columns, seed=count)
    weight = torch.tensor([0.5, 0.0, 2.0, 1.0, 3.0])[:count].double()
    for own in ({}, {"weight": weight}):
        loops.agree(byol, slow, z1, z2, engines=(None,), stopped=True, **own)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_equals_the_loops_everywhere(reference, data):
    z1, z2 = data.draw(reference.projections())
    got = byol(torch.tensor(z1), torch.tensor(z2), reduction="none")
    np.testing.assert_allclose(got, slow(z1.tolist(), z2.tolist()), rtol=1e-10, atol=1e-12)


def test_the_target_has_no_gradient(views):
    """Not even where it comes out of the same network as the prediction: only the prediction's path counts."""
    z1, z2 = (z.requires_grad_() for z in views(4, 3))
    byol(z1, z2).backward()
    assert z2.grad is None or not z2.grad.any()
    assert z1.grad.abs().max() > 1e-3

    z = views(4, 3)[0].requires_grad_()
    turned = z.flip(0) * torch.tensor([1.0, -2.0, 0.5])
    (slope,) = torch.autograd.grad(byol(z, turned), z)
    (expected,) = torch.autograd.grad(byol(z, turned.detach()), z)
    assert torch.equal(slope, expected)


def test_byol_is_two_and_twice_simsiam(views, gradients):
    z1, z2 = views(6, 4)
    weight = torch.arange(6.0).double()
    for own in ({}, {"weight": weight}, {"reduction": "none"}):
        torch.testing.assert_close(byol(z1, z2, **own), 2 + 2 * simsiam(z1, z2, **own), rtol=1e-12, atol=1e-12)
    # The target enters each with nothing but a zero: gradients() wants one for both views.
    first, second = (gradients(lambda a, b, loss=loss: loss(a, b) + 0 * b.sum(), z1, z2) for loss in (byol, simsiam))
    np.testing.assert_allclose(first, 2 * second, rtol=1e-12, atol=1e-14)


def test_gradcheck_of_the_prediction(views):
    z1, z2 = views(4, 3)
    z1.requires_grad_()
    assert gradcheck(lambda a: byol(a, z2, reduction="none"), (z1,))


def test_zero_rows_have_cosine_zero(views):
    z1, z2 = views(4, 3)
    for a, b in ((0 * z1, z2), (z1, 0 * z2), (0 * z1, 0 * z2)):
        assert byol(a, b).item() == pytest.approx(2, abs=1e-12)
        loops.finite(byol, a, b)
    z1[0] = z2[2] = 0
    loops.finite(byol, z1, z2)
    loops.finite(byol, z1, z1)


def test_symmetry_is_the_callers(views):
    """One direction only: the loss knows which argument is the prediction."""
    z1, z2 = views(4, 3)
    assert byol(z1, z2, reduction="none").shape == (4,)
    z1.requires_grad_()
    (first,) = torch.autograd.grad(byol(z1, z2) + byol(z2, z1), z1)
    (second,) = torch.autograd.grad(byol(z1, z2), z1)
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize("wrong", [[1.0, 1.0], [1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [math.nan, 1.0, 1.0]], ids=str)
def test_weights_that_do_not_fit(views, wrong):
    with pytest.raises(InputError, match=r"^`weight` "):
        byol(*views(3, 2), weight=torch.tensor(wrong))
