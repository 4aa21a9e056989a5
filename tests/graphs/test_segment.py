"""Test segment operations against plain loops, and random draws against their distributions."""

import itertools
import math
from itertools import pairwise, permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcl.graphs import segment
from tests.strategies import QUICK, assert_law, generators, loops, needs_cuda, ratios, seeded, uniform
from tests.strategies import ratio_count as exact_count

sizes = st.lists(st.integers(0, 7), max_size=8)


@st.composite
def sizes_and_parts(draw, largest=9):
    """Draw segment sizes, and a number between 0 and its size for each segment; 0 and the size itself are frequent."""
    counts = draw(st.lists(st.integers(0, largest), min_size=1, max_size=8))
    return counts, [draw(st.sampled_from([0, n]) | st.integers(0, n)) for n in counts]


def pointers_of(counts):
    ptr = [0]
    for count in counts:
        ptr.append(ptr[-1] + count)
    return ptr


def long(values):
    return torch.tensor(values, dtype=torch.long)


@QUICK
@given(sizes, st.data())
def test_pointers_nonzero_and_count(counts, data):
    ptr = segment.pointers(long(counts))
    assert ptr.tolist() == pointers_of(counts)
    assert ptr.dtype == torch.long
    mask = data.draw(st.lists(st.booleans(), min_size=sum(counts), max_size=sum(counts)))
    flags = torch.tensor(mask, dtype=torch.bool)
    assert segment.nonzero(flags).tolist() == [i for i, wanted in enumerate(mask) if wanted]
    assert segment.count(flags, ptr).tolist() == [sum(mask[a:b]) for a, b in pairwise(ptr.tolist())]


def test_pick():
    for shape, kind in itertools.product([(5,), (2, 5), (5, 3), (2, 5, 3)], [torch.long, torch.float32, torch.bool]):
        dim = shape.index(5)
        values = torch.arange(math.prod(shape)).view(shape).to(kind)
        for index in ([4, 0, 0], []):
            assert torch.equal(segment.pick(values, long(index), dim), values.index_select(dim, long(index)))
        transposed = values.transpose(0, -1)  # rows are not contiguous
        where = transposed.dim() - 1 - dim if transposed.dim() < 3 else dim
        assert torch.equal(segment.pick(transposed, long([1]), where), transposed.index_select(where, long([1])))


def test_pick_has_a_gradient():
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
    for wrong, compiled in itertools.product([-1, 2, 2**40], [True, False]):
        with loops(compiled), pytest.raises(IndexError, match=r"out of range|must be in"):
            segment.group(long([0, wrong]), 2)


@QUICK
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20))
def test_sort_pairs(pairs):
    first, second = (long(column) for column in (zip(*pairs, strict=True) if pairs else ([], [])))
    order, is_new = segment.sort_pairs(first, second, 5)
    expected = sorted(range(len(pairs)), key=lambda i: pairs[i])
    assert order.tolist() == expected
    assert is_new.tolist() == [n == 0 or pairs[i] != pairs[expected[n - 1]] for n, i in enumerate(expected)]


@QUICK
@given(st.lists(st.integers(0, 4), max_size=20), generators)
def test_shuffled(ids, generator):
    order = segment.shuffled(long(ids), 5, generator).tolist()
    assert sorted(order) == list(range(len(ids)))
    assert [ids[i] for i in order] == sorted(ids)


@QUICK
@given(st.lists(st.tuples(st.integers(-3, 20), st.integers(0, 5)), max_size=8))
def test_ranges(parts):
    starts, counts = (long(column) for column in (zip(*parts, strict=True) if parts else ([], [])))
    expected = [i for start, count in parts for i in range(start, start + count)]
    assert segment.ranges(starts, counts).tolist() == expected
    assert segment.ranges(starts, counts, len(expected)).tolist() == expected


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


@QUICK
@given(sizes_and_parts(), st.integers(0, 2**32 - 1))
def test_random_subsets_have_the_sizes_asked_for_and_depend_on_the_generator_alone(parts, seed):
    counts, k = parts
    ptr, wanted, before = long(pointers_of(counts)), long(k), torch.get_rng_state()
    chosen = segment.random_subset(ptr, wanted, seeded(seed))
    assert torch.equal(torch.get_rng_state(), before)
    assert (chosen.dtype, chosen.shape) == (torch.bool, (sum(counts),))
    assert [int(chosen[a:b].sum()) for a, b in pairwise(ptr.tolist())] == k
    torch.rand(1)
    assert torch.equal(segment.random_subset(ptr, wanted, seeded(seed)), chosen)
    assert (ptr.tolist(), wanted.tolist()) == (pointers_of(counts), k)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("n", "k"), [(4, 2), (3, 3)])
def test_samples_are_uniform_in_random_order_and_independent(n, k, compiled):
    """Segments of n and of 2 elements alternate; one of the latter is drawn."""
    draws, law = 6_000, list(permutations(range(n), k))
    with loops(compiled):
        found = segment.random_sample(
            segment.pointers(long([n, 2]).repeat(draws)), long([k, 1]).repeat(draws), seeded(n)
        )
    found = found.view(draws, k + 1) - (n + 2) * torch.arange(draws)[:, None]
    assert_law(map(tuple, found.tolist()), uniform((*one, other) for one in law for other in (n, n + 1)))


# -- CUDA --------------------------------------------------------------------------------------------------------------


@pytest.mark.cuda
@needs_cuda
@QUICK
@given(sizes_and_parts(largest=40), ratios)
def test_on_cuda_as_on_the_cpu(parts, ratio):
    counts, k = (long(part) for part in parts)
    ptr = segment.pointers(counts)
    on_device = segment.pointers(counts.cuda())
    assert on_device.is_cuda
    assert torch.equal(on_device.cpu(), ptr)
    assert torch.equal(segment.ranges(k.cuda(), counts.cuda()).cpu(), segment.ranges(k, counts))
    assert torch.equal(segment.ratio_count(ratio, counts.cuda()).cpu(), segment.ratio_count(ratio, counts))
    chosen = segment.random_subset(on_device, k.cuda(), seeded(0, "cuda"))
    assert torch.equal(segment.count(chosen, on_device).cpu(), k)
