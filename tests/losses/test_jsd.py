"""Test `jsd` against float64 reference loops."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from graphcl.losses import jsd
from tests.losses import loops


def term(anchor, positive, negatives):
    """Return softplus(-x+) + mean_j softplus(x_j), with x the dot products."""
    pushed = [loops.softplus(loops.dot(anchor, key)) for key in negatives]
    return loops.softplus(-loops.dot(anchor, positive)) + math.fsum(pushed) / len(pushed)


slow = loops.every(term)
batch = loops.of_rows(term)
SIMILARITY = "dot"
SMOOTH = [{}]


def test_the_loops_by_hand():
    """The dot products are 2, 3 and -1."""
    e = math.exp
    expected = math.log(1 + e(-2)) + (math.log(1 + e(3)) + math.log(1 + e(-1))) / 2
    assert term([2.0, 1.0], [1.0, 0.0], [[1.0, 1.0], [0.0, -1.0]]) == pytest.approx(expected)


def test_binary_cross_entropy_of_positives_and_negatives_at_equal_weight(views, gradients):
    """The loss is a binary cross-entropy, averaged separately over positives and negatives."""

    def plain(z1, z2):
        products = z1 @ z2.T
        entropy = torch.nn.functional.binary_cross_entropy_with_logits
        off = products[~torch.eye(len(z1), dtype=torch.bool)]
        ones = torch.ones(len(z1), dtype=z1.dtype)
        return entropy(products.diagonal(), ones) + entropy(off, torch.zeros_like(off))

    z1, z2 = views(6, 4)
    for symmetric in (True, False):
        loss = partial(jsd, symmetric=symmetric)
        assert loss(z1, z2).item() == pytest.approx(plain(z1, z2).item(), rel=1e-12)
        np.testing.assert_allclose(gradients(loss, z1, z2), gradients(plain, z1, z2), rtol=1e-11, atol=1e-13)


def test_large_dot_products_are_exact(views):
    """e^x overflows float32 for x > 88. For large |x|, softplus(x) is x or e^x."""
    z1, z2 = (60 * z for z in views(5, 3))
    exact = np.mean(slow(z1.tolist(), z2.tolist()))
    assert exact > 1000
    for engine in ("dense", "tiled"):
        loops.finite(partial(jsd, engine=engine), z1, z2)
        assert jsd(z1.float(), z2.float(), engine=engine).item() == pytest.approx(exact, rel=1e-5)
    # With products 40 (positive) and -40 (negative), both terms are e^-40, which must not be rounded to 0.
    z = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    for engine in ("dense", "tiled"):
        got = jsd(z, 40 * z, reduction="none", engine=engine)
        np.testing.assert_allclose(got, [2 * math.exp(-40)] * 4, rtol=1e-9)
