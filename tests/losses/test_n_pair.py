"""The N-pair loss against float64 loops: raw dot products and a penalty on the lengths."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from graphcl.errors import InputError
from graphcl.losses import explicit, infonce, n_pair
from tests.losses import loops

SWITCHES = [(negatives, symmetric) for negatives in ("cross", "all") for symmetric in (True, False)]


def term(anchor, positive, negatives, l2_weight=0.002):
    """-f.f+ + log(e^{f.f+} + sum_j e^{f.f_j}) + l2_weight (|f|^2 + |f+|^2) / 2."""
    products = [loops.dot(anchor, key) for key in (positive, *negatives)]
    lengths = loops.dot(anchor, anchor) + loops.dot(positive, positive)
    return -products[0] + loops.log_sum_exp(products) + l2_weight * lengths / 2


slow = loops.every(term)


def test_the_loops_by_hand():
    """Products 2, 3 and -1; squared lengths 5 and 1."""
    expected = -2 + math.log(math.exp(2) + math.exp(3) + math.exp(-1)) + 0.1 * (5 + 1) / 2
    rows = [2.0, 1.0], [1.0, 0.0], [[1.0, 1.0], [0.0, -1.0]]
    assert term(*rows, l2_weight=0.1) == pytest.approx(expected)


@loops.each_case
@pytest.mark.parametrize("l2_weight", [0.0, 0.3])
def test_value_and_gradient_equal_the_loops(views, l2_weight, negatives, held, symmetric):
    count = 2 + len(held) % 4
    shared = loops.who(count, 3, negatives, held, symmetric)
    loops.agree(n_pair, slow, *views(count, 3, seed=1), **shared, l2_weight=l2_weight)


def test_defaults_and_an_anchor_without_negatives(views):
    z1, z2 = views(5, 3)
    assert n_pair(z1, z2).item() == pytest.approx(np.mean(slow(z1.tolist(), z2.tolist())), rel=1e-10)
    loops.agree(n_pair, slow, *views(2, 3), **loops.lonely(3), l2_weight=0.3)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), l2_weight=st.floats(0, 2))
def test_equals_the_loops_everywhere(reference, data, l2_weight):
    z1, z2 = data.draw(reference.projections())
    own = {"negatives": data.draw(st.sampled_from(["cross", "all"])), "symmetric": data.draw(st.booleans())}
    own["l2_weight"] = l2_weight
    got = n_pair(torch.tensor(z1), torch.tensor(z2), reduction="none", **own)
    np.testing.assert_allclose(got, slow(z1.tolist(), z2.tolist(), **own), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("negatives", "symmetric"), SWITCHES)
def test_on_unit_rows_it_is_infonce_at_temperature_one(views, negatives, symmetric):
    z1, z2 = (torch.nn.functional.normalize(z) for z in views(6, 4))
    shared = {"negatives": negatives, "symmetric": symmetric, "queue": z1[:3].flip(1), "reduction": "none"}
    expected = infonce(z1, z2, temperature=1.0, **shared)
    torch.testing.assert_close(n_pair(z1, z2, l2_weight=0.0, **shared), expected, rtol=1e-12, atol=1e-12)
    # All lengths are 1: the penalty is l2_weight itself.
    torch.testing.assert_close(n_pair(z1, z2, l2_weight=0.25, **shared), expected + 0.25, rtol=1e-12, atol=1e-12)


def test_cross_entropy_of_the_dot_products_against_their_diagonal(views):
    z1, z2 = views(6, 4)
    expected = torch.nn.functional.cross_entropy(z1 @ z2.T, torch.arange(6))
    assert n_pair(z1, z2, l2_weight=0.0, symmetric=False).item() == pytest.approx(expected.item(), rel=1e-12)


def test_explicit_rows_and_many_rows():
    loops.agree_explicitly(n_pair, term, explicit, "dot", l2_weight=0.0)
    loops.agree_explicitly(n_pair, term, explicit, "dot", l2_weight=0.3)
    loops.agree_in_tiles(n_pair, l2_weight=0.3)


def test_large_dot_products_do_not_overflow(views):
    z1, z2 = (60 * z for z in views(5, 3))
    exact = np.mean(slow(z1.tolist(), z2.tolist()))
    assert exact > 1000
    for engine in ("dense", "tiled"):
        loss = partial(n_pair, engine=engine)
        loops.finite(loss, z1, z2)
        assert loss(z1.float(), z2.float()).item() == pytest.approx(exact, rel=1e-5)
        loops.finite(loss, 0 * z1, z2)


@pytest.mark.parametrize(("negatives", "symmetric"), SWITCHES)
def test_gradcheck(views, negatives, symmetric):
    z1, z2 = (z.requires_grad_() for z in views(3, 2))
    own = {"negatives": negatives, "symmetric": symmetric, "l2_weight": 0.2, "reduction": "none"}
    assert gradcheck(partial(n_pair, **own), (z1, z2))


@pytest.mark.parametrize("wrong", [-0.1, math.inf, math.nan])
def test_l2_weight_out_of_range(views, wrong):
    with pytest.raises(InputError, match=rf"^`l2_weight` must be in \[0, inf\), got {wrong}"):
        n_pair(*views(3, 2), l2_weight=wrong)
