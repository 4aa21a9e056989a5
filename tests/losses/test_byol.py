"""Test `byol` against float64 reference loops; targets have no gradient."""

import math

import numpy as np
import pytest
import torch

from graphcl.losses import byol, simsiam
from tests.losses import loops


def term(anchor, target, _):
    """Return 2 - 2 cos(anchor, target)."""
    return 2 - 2 * loops.cosine(anchor, target)


batch = loops.of_rows(term)
STOPPED = True
SMOOTH = [{}]


def slow(z1, z2):
    return [term(*rows, None) for rows in zip(z1, z2, strict=True)]


def test_the_loops_by_hand():
    """The rows are orthogonal, opposite, and at 45 degrees."""
    z1, z2 = [[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[0.0, 3.0], [0.0, -5.0], [4.0, 4.0]]
    assert slow(z1, z2) == pytest.approx([2.0, 4.0, 2 - math.sqrt(2)])


def test_byol_is_two_and_twice_simsiam(views, gradients):
    z1, z2 = views(6, 4)
    weight = torch.arange(6.0).double()
    for own in ({}, {"weight": weight}, {"reduction": "none"}):
        torch.testing.assert_close(byol(z1, z2, **own), 2 + 2 * simsiam(z1, z2, **own), rtol=1e-12, atol=1e-12)
    # Add 0 * target, as `gradients` needs a gradient for both views.
    first, second = (gradients(lambda a, b, loss=loss: loss(a, b) + 0 * b.sum(), z1, z2) for loss in (byol, simsiam))
    np.testing.assert_allclose(first, 2 * second, rtol=1e-12, atol=1e-14)
