"""Test `barlow_twins` against float64 reference loops over columns."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from graphcl.losses import barlow_twins
from tests.losses import loops

RANGES = {"off_diagonal": "[0, inf)"}


def standardised(z):
    """Return the columns of `z` with mean 0 and standard deviation 1 (divisor N). A constant column becomes 0."""
    result = []
    for column in zip(*z, strict=True):
        if max(column) == min(column):
            result.append([0.0] * len(column))
            continue
        middle = math.fsum(column) / len(column)
        deviation = math.sqrt(math.fsum((value - middle) ** 2 for value in column) / len(column))
        result.append([(value - middle) / deviation for value in column])
    return result


def slow(z1, z2, off_diagonal=0.005):
    """Return sum_i (1 - C_ii)^2 + off_diagonal sum_{i != j} C_ij^2, with C the cross-correlation matrix."""
    a, b = standardised(z1), standardised(z2)
    c = [[loops.dot(p, q) / len(z1) for q in b] for p in a]
    own = math.fsum((1 - c[i][i]) ** 2 for i in range(len(c)))
    return own + off_diagonal * math.fsum(c[i][j] ** 2 for i in range(len(c)) for j in range(len(c)) if i != j)


def test_the_loops_by_hand():
    """The correlations C_11, C_22, C_12 and C_21 are 1, 0, 0 and sqrt(3) / 2."""
    z1 = [[0.0, 3.0], [1.0, 5.0], [2.0, 7.0]]
    z2 = [[-5.0, 1.0], [0.0, 0.0], [5.0, 1.0]]
    assert slow(z1, z2, off_diagonal=0.5) == pytest.approx(0 + 1 + 0.5 * (0 + 1))
    assert slow(z1, [[-b, -a] for a, b in z2], off_diagonal=0.5) == pytest.approx(1 + 4 + 0.5 * (1 + 0))
    assert slow(z1, [[-5.0, 0.1]] * 3, off_diagonal=0.5) == pytest.approx(2)


@pytest.mark.parametrize("off_diagonal", [0.0, 0.005, 2.0])
@pytest.mark.parametrize(("count", "columns"), [(2, 1), (2, 3), (3, 2), (5, 4)])
def test_value_and_gradient_equal_the_loops(views, gradients, off_diagonal, count, columns):
    z1, z2 = views(count, columns, seed=count)
    own = {"off_diagonal": off_diagonal}
    assert barlow_twins(z1, z2, **own).item() == pytest.approx(slow(z1.tolist(), z2.tolist(), **own), rel=1e-10)
    np.testing.assert_allclose(
        gradients(partial(barlow_twins, **own), z1, z2),
        loops.differences(partial(slow, **own), z1.tolist(), z2.tolist()),
        rtol=1e-6,
        atol=1e-7,
    )


@settings(max_examples=30, deadline=None)
@given(data=st.data(), off_diagonal=st.floats(0, 3))
def test_equals_the_loops_everywhere(data, off_diagonal):
    """The drawn views often contain constant columns."""
    z1, z2 = data.draw(loops.projections())
    got = barlow_twins(torch.tensor(z1), torch.tensor(z2), off_diagonal=off_diagonal)
    expected = slow(z1.tolist(), z2.tolist(), off_diagonal)
    assert got.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_equal_views_of_uncorrelated_columns_cost_nothing():
    z = torch.tensor([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=torch.float64)
    assert barlow_twins(z, z, off_diagonal=7.0).item() == pytest.approx(0, abs=1e-12)
    assert barlow_twins(z, -z, off_diagonal=7.0).item() == pytest.approx(3 * 4, rel=1e-12)
    # With permuted columns, three correlations on the diagonal are 0 and three off the diagonal are 1.
    assert barlow_twins(z, z.roll(1, dims=1), off_diagonal=7.0).item() == pytest.approx(3 + 7 * 3, rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_shift_and_scale_of_a_column_do_not_matter(data):
    columns = st.lists(st.floats(0.1, 10), min_size=3, max_size=3)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    z1, z2 = torch.randn(2, 6, 3, generator=generator, dtype=torch.float64)
    assume((z1.std(dim=0) > 0.1).all())
    scale, shift = (torch.tensor(data.draw(columns)).double() for _ in range(2))
    expected = barlow_twins(z1, z2, off_diagonal=1.0).item()
    assert barlow_twins(scale * z1 + shift, z2, off_diagonal=1.0).item() == pytest.approx(expected, rel=1e-9)
    assert barlow_twins(z1, scale * z2 - shift, off_diagonal=1.0).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0 / 3, 12345.678])
@pytest.mark.parametrize("count", [3, 7, 100])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_constant_column_correlates_with_nothing(value, count, dtype):
    """Include values whose mean over the batch is not exact in floating point."""
    z1, z2 = torch.randn(2, count, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    z1[:, 1] = value
    expected = slow(z1.tolist(), z2.tolist(), off_diagonal=1.0)
    assert barlow_twins(z1, z2, off_diagonal=1.0).item() == pytest.approx(expected, rel=1e-5)
    assert barlow_twins(z2, z1, off_diagonal=1.0).item() == pytest.approx(
        slow(z2.tolist(), z1.tolist(), off_diagonal=1.0), rel=1e-5
    )
    loops.finite(barlow_twins, z1, z2)
    same = torch.full_like(z1, value)
    assert barlow_twins(same, same).item() == pytest.approx(3, rel=1e-6)
    loops.finite(barlow_twins, same, same)
