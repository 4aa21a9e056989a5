"""Test `n_pair` against float64 reference loops: InfoNCE on dot products, and a penalty on squared norms."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from graphcl.losses import infonce, n_pair
from tests.losses import loops


def term(anchor, positive, negatives, l2_weight=0.002):
    """Return -f.f+ + log(e^{f.f+} + sum_j e^{f.f_j}) + l2_weight (|f|^2 + |f+|^2) / 2."""
    products = [loops.dot(anchor, key) for key in (positive, *negatives)]
    lengths = loops.dot(anchor, anchor) + loops.dot(positive, positive)
    return -products[0] + loops.log_sum_exp(products) + l2_weight * lengths / 2


slow = loops.every(term)
batch = loops.of_rows(term)
SIMILARITY = "dot"
SETTINGS = [{"l2_weight": 0.0}, {"l2_weight": 0.3}]
RANDOM = {"l2_weight": st.floats(0, 2)}
SMOOTH = [{"l2_weight": 0.2}]
RANGES = {"l2_weight": "[0, inf)"}


def test_the_loops_by_hand():
    """The dot products are 2, 3 and -1, the squared norms 5 and 1."""
    expected = -2 + math.log(math.exp(2) + math.exp(3) + math.exp(-1)) + 0.1 * (5 + 1) / 2
    rows = [2.0, 1.0], [1.0, 0.0], [[1.0, 1.0], [0.0, -1.0]]
    assert term(*rows, l2_weight=0.1) == pytest.approx(expected)


@pytest.mark.parametrize(("negatives", "symmetric"), loops.SWITCHES)
def test_on_unit_rows_it_is_infonce_at_temperature_one(views, negatives, symmetric):
    z1, z2 = (torch.nn.functional.normalize(z) for z in views(6, 4))
    shared = {"negatives": negatives, "symmetric": symmetric, "queue": z1[:3].flip(1), "reduction": "none"}
    expected = infonce(z1, z2, temperature=1.0, **shared)
    torch.testing.assert_close(n_pair(z1, z2, l2_weight=0.0, **shared), expected, rtol=1e-12, atol=1e-12)
    # All norms are 1, so the penalty is l2_weight.
    torch.testing.assert_close(n_pair(z1, z2, l2_weight=0.25, **shared), expected + 0.25, rtol=1e-12, atol=1e-12)


def test_cross_entropy_of_the_dot_products_against_their_diagonal(views):
    z1, z2 = views(6, 4)
    expected = torch.nn.functional.cross_entropy(z1 @ z2.T, torch.arange(6))
    assert n_pair(z1, z2, l2_weight=0.0, symmetric=False).item() == pytest.approx(expected.item(), rel=1e-12)


def test_large_dot_products_do_not_overflow(views):
    z1, z2 = (60 * z for z in views(5, 3))
    exact = np.mean(slow(z1.tolist(), z2.tolist()))
    assert exact > 1000
    for engine in ("dense", "tiled"):
        loss = partial(n_pair, engine=engine)
        loops.finite(loss, z1, z2)
        assert loss(z1.float(), z2.float()).item() == pytest.approx(exact, rel=1e-5)
        loops.finite(loss, 0 * z1, z2)
