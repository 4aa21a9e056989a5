"""Test `nt_xent` against float64 reference loops, cross-entropy over the [2N, 2N] matrix, and `infonce`."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from graphcl.losses import nt_xent
from tests.losses import loops
from tests.losses.test_infonce import term

batch = loops.of_cosines(term)
SETTINGS = [{"temperature": temperature} for temperature in (0.1, 0.5, 2.0)]
SMOOTH = [{}]
WHOLE = {"negatives": "all", "symmetric": True}


def test_by_hand(at_cosines):
    """At temperature 0.5, the cosines are 0.5 (positive), 0.6 and -0.4 (other view), and 1 twice (own view)."""
    expected = -math.log(math.e / (math.e + math.exp(1.2) + math.exp(-0.8) + 2 * math.exp(2)))
    assert term(0.5, [0.6, -0.4, 1, 1], 0.5) == pytest.approx(expected, rel=1e-14)
    got = nt_xent(*at_cosines(0.5, [0.6, -0.4]), temperature=0.5, reduction="none")
    assert got.shape == (6,)
    assert got[0].item() == pytest.approx(expected, rel=1e-13)


def test_is_cross_entropy_over_both_views(views, gradients):
    """SimCLR's code uses a [2N, 2N] matrix with a masked diagonal and the other view as the label."""

    def plain(z1, z2):
        z = functional.normalize(torch.cat([z1, z2]))
        logits = (z @ z.T / 0.2).fill_diagonal_(-torch.inf)
        return functional.cross_entropy(logits, torch.arange(12).roll(6))

    z1, z2 = views(6, 4)
    assert nt_xent(z1, z2).item() == pytest.approx(plain(z1, z2).item(), rel=1e-12)
    np.testing.assert_allclose(gradients(nt_xent, z1, z2), gradients(plain, z1, z2), rtol=1e-10, atol=1e-12)
