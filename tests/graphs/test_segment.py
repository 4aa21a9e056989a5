"""Test segment operations against plain loops, and random draws against their distributions."""

import math
from itertools import accumulate, permutations, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcl.graphs import segment
from tests.strategies import QUICK, assert_law, loops, seeded, uniform
from tests.strategies import ratio_count as exact_count


def pointers_of(counts):
    return [*accumulate(counts, initial=0)]


def long(values):
    return torch.tensor(values, dtype=torch.long)


def test_picked_columns_have_a_gradient():
    values = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: segment.pick(v, long([3, 3, 0]), dim=1), (values,))


@QUICK
@given(st.lists(st.integers(0, 5), max_size=20), st.booleans())
def test_group_is_a_stable_sort(ids, compiled):
    with loops(compiled):
        order, ptr = segment.group(long(ids), 6)
        values, again = segment.group(long(ids), 6, 10 * torch.arange(len(ids)))
    assert order.tolist() == sorted(range(len(ids)), key=lambda i: ids[i])
    assert ptr.tolist() == again.tolist() == pointers_of([ids.count(g) for g in range(6)])
    assert torch.equal(values, 10 * order)


def test_group_refuses_ids_out_of_range():
    for wrong, compiled in product([-1, 2, 2**40], [True, False]):
        with loops(compiled), pytest.raises(IndexError, match=r"out of range|must be in"):
            segment.group(long([0, wrong]), 2)


@QUICK
@given(st.integers(0, 10**6), st.integers(0, 999_999))
def test_ratio_count_is_exact_for_decimals(count, millionths):
    ratio = millionths / 10**6
    assert segment.ratio_count(ratio, long([count])).tolist() == [exact_count(ratio, count)]


def test_ratio_count_of_what_floating_point_gets_wrong():
    for ratio, n, expected in [(0.29, 100, 29), (0.57, 100, 57), (1 / 3, 3, 1), (0.7, 10, 7)]:
        assert segment.ratio_count(ratio, long([n])).tolist() == [expected]
    counts = long([1, 2, 3, 10, 1000])
    for largest in (0.999999, 1 - 1e-9, 1 - 1e-12, math.nextafter(1, 0)):
        assert (segment.ratio_count(largest, counts) < counts).all()


# -- random subsets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("n", "k"), [(4, 2), (3, 3)])
def test_samples_are_uniform_in_random_order_and_independent(n, k, compiled):
    """Segments of n and of 2 elements alternate; one of the latter is drawn."""
    draws, law = 6_000, list(permutations(range(n), k))
    with loops(compiled):
        ptr = segment.pointers(long([n, 2]).repeat(draws))
        found = segment.random_sample(ptr, long([k, 1]).repeat(draws), seeded(n))
    found = found.view(draws, k + 1) - (n + 2) * torch.arange(draws)[:, None]
    assert_law(map(tuple, found.tolist()), uniform((*one, other) for one in law for other in (n, n + 1)))
