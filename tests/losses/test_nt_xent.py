"""Test `nt_xent` against float64 reference loops, cross-entropy over the [2N, 2N] matrix, and `infonce`."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from graphcl.losses import infonce, nt_xent
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


def test_is_infonce_over_both_views(views, gradients):
    z1, z2 = views(6, 4)
    queue = views(3, 4, seed=9)[0]
    for arguments in ({}, {"temperature": 0.07}, {"queue": queue}, {"weight": torch.arange(6.0)}):
        whole = {**WHOLE, **arguments}
        expected = infonce(z1, z2, reduction="none", **whole)
        torch.testing.assert_close(nt_xent(z1, z2, reduction="none", **arguments), expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(
            gradients(lambda a, b: nt_xent(a, b, **arguments), z1, z2),  # noqa: B023 (called at once)
            gradients(lambda a, b: infonce(a, b, **whole), z1, z2),  # noqa: B023
            rtol=1e-10,
            atol=1e-12,
        )
    # The default of InfoNCE has other negatives, so its value differs.
    assert abs(nt_xent(z1, z2).item() - infonce(z1, z2).item()) > 0.1


@pytest.mark.parametrize("same", [0.0, 1.0])
def test_equal_cosines_give_log_of_the_number_of_candidates(same):
    z = torch.full((6, 3), same, dtype=torch.float64)
    assert nt_xent(z, z).item() == pytest.approx(math.log(11), abs=1e-12)
    assert nt_xent(z, z, queue=z[:4]).item() == pytest.approx(math.log(15), abs=1e-12)
