"""Test `tuplet` against float64 reference loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcl.errors import InputError
from graphcl.losses import n_pair, tuplet
from tests.losses import loops


@loops.whole
def slow(z1, z2, num_negatives=None, symmetric=True):
    """Return log(1 + sum_j e^{f.f_j - f.f+}) per anchor, over rows j = i+1 .. i+K modulo N of the other view."""
    count = len(z1)
    taken = count - 1 if num_negatives is None else min(num_negatives, count - 1)
    values = []
    for own, other in [(z1, z2), (z2, z1)] if symmetric else [(z1, z2)]:
        for i, row in enumerate(own):
            positive = loops.dot(row, other[i])
            gaps = [loops.dot(row, other[(i + k) % count]) - positive for k in range(1, taken + 1)]
            values.append(loops.log_sum_exp([0.0, *gaps]))
    return values


def test_the_loops_by_hand():
    z1, z2 = [[1.0], [2.0], [-1.0]], [[1.0], [3.0], [0.5]]
    e = math.exp
    one = [math.log(1 + e(3 - 1)), math.log(1 + e(1 - 6)), math.log(1 + e(-1 + 0.5))]
    assert slow(z1, z2, num_negatives=1, symmetric=False) == pytest.approx(one)
    both = [math.log(1 + e(2) + e(-0.5)), math.log(1 + e(1 - 6) + e(2 - 6)), math.log(1 + e(-0.5) + e(-2.5))]
    assert slow(z1, z2, symmetric=False) == pytest.approx(both)
    assert slow(z2, z1, num_negatives=1, symmetric=False) == pytest.approx(slow(z1, z2, num_negatives=1)[3:])


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("num_negatives", [None, 1, 2, 4, 100])
def test_value_and_gradient_equal_the_loops(views, symmetric, count, num_negatives):
    weight = torch.tensor([0.5, 0.0, 2.0, 1.0, 3.0])[:count].double()
    own = {"symmetric": symmetric, "num_negatives": num_negatives}
    for more in ({}, {"weight": weight}):
        loops.agree(tuplet, slow, *views(count, 3, seed=count), engines=(None,), **own, **more)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), num_negatives=st.one_of(st.none(), st.integers(1, 5)), symmetric=st.booleans())
def test_equals_the_loops_everywhere(data, num_negatives, symmetric):
    z1, z2 = data.draw(loops.projections())
    own = {"num_negatives": num_negatives, "symmetric": symmetric}
    got = tuplet(torch.tensor(z1), torch.tensor(z2), reduction="none", **own)
    np.testing.assert_allclose(got, slow(z1.tolist(), z2.tolist(), **own), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("symmetric", [True, False])
def test_with_all_negatives_it_is_n_pair_without_the_penalty(views, gradients, symmetric):
    z1, z2 = views(6, 4)
    common = {"symmetric": symmetric, "weight": torch.arange(6.0).double()}
    for reduction in ("none", "mean"):
        torch.testing.assert_close(
            tuplet(z1, z2, reduction=reduction, **common),
            n_pair(z1, z2, l2_weight=0.0, reduction=reduction, **common),
            rtol=1e-12,
            atol=1e-12,
        )
    np.testing.assert_allclose(
        gradients(lambda a, b: tuplet(a, b, **common), z1, z2),
        gradients(lambda a, b: n_pair(a, b, l2_weight=0.0, **common), z1, z2),
        rtol=1e-11,
        atol=1e-12,
    )


def test_large_dot_products_do_not_overflow(views):
    z1, z2 = views(5, 3)
    exact = np.mean(slow((60 * z1).tolist(), (60 * z2).tolist()))
    loops.finite(tuplet, 60 * z1, 60 * z2)
    assert exact > 1000
    assert tuplet(60 * z1.float(), 60 * z2.float()).item() == pytest.approx(exact, rel=1e-5)
    loops.finite(tuplet, 0 * z1, z2)


@pytest.mark.parametrize("wrong", [0, -3])
def test_num_negatives_out_of_range(views, wrong):
    with pytest.raises(InputError, match=rf"^`num_negatives` must be .*1.*, got {wrong}"):
        tuplet(*views(3, 2), num_negatives=wrong)


@pytest.mark.parametrize("num_negatives", [1, 3, 9, 30])
@pytest.mark.parametrize("symmetric", [True, False])
def test_chunks_of_rows_choose_the_same_negatives(views, monkeypatch, num_negatives, symmetric):
    monkeypatch.setattr("graphcl.losses.engine.tiled.ROW_ELEMENTS", 40)  # four rows of eleven at a time
    leaves = [z.requires_grad_() for z in views(11, 4)]
    options = {"num_negatives": num_negatives, "symmetric": symmetric, "reduction": "none"}
    dense, tiled = (tuplet(*leaves, engine=engine, **options) for engine in ("dense", "tiled"))
    torch.testing.assert_close(tiled, dense, rtol=1e-12, atol=1e-12)
    for a, b in zip(torch.autograd.grad(tiled.sum(), leaves), torch.autograd.grad(dense.sum(), leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)
