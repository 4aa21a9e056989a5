"""Test sums over neighbours and segments: values against plain loops, gradients, and edge cases of the input."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcl.models.aggregate import CSRAdjacency, SegmentIndex, gather_rows, segment_sum


@st.composite
def edges(draw):
    n = draw(st.integers(1, 8))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30))
    return n, torch.tensor(pairs, dtype=torch.long).view(-1, 2).T


@settings(max_examples=60, deadline=None)
@given(edges(), st.integers(1, 5))
def test_neighbours_sum_is_the_loop(graph, width):
    n, edge_index = graph
    x = torch.arange(n * width, dtype=torch.float64).view(n, width) ** 1.5
    expected = torch.zeros(n, width, dtype=torch.float64)
    for u, v in edge_index.T.tolist():
        expected[v] += x[u]
    neighbours = CSRAdjacency.of(edge_index, n)
    assert torch.allclose(neighbours.sum(x), expected, rtol=1e-14)
    assert torch.allclose(neighbours.sum(x, with_self=True), expected + x, rtol=1e-14)


@settings(max_examples=60, deadline=None)
@given(edges())
def test_group_sum_and_spread_are_loops(graph):
    n, edge_index = graph
    ids = edge_index[1]
    groups = SegmentIndex.of(ids, n)
    values = torch.arange(ids.numel() * 2, dtype=torch.float64).view(-1, 2)
    expected = torch.zeros(n, 2, dtype=torch.float64)
    for element, group in enumerate(ids.tolist()):
        expected[group] += values[element]
    assert torch.equal(segment_sum(values, groups), expected)
    assert torch.equal(gather_rows(expected, groups), expected[ids])


@pytest.mark.parametrize("shuffled", [False, True])
def test_gradients(shuffled):
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(6, (2, 20), generator=generator)
    if not shuffled:
        edge_index = edge_index[:, edge_index[1].argsort()]
    neighbours, groups = CSRAdjacency.of(edge_index, 6), SegmentIndex.of(edge_index[1], 6)
    x = torch.randn(6, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    messages = torch.randn(20, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(neighbours.sum, (x,))
    assert torch.autograd.gradgradcheck(neighbours.sum, (x,))
    assert torch.autograd.gradcheck(lambda x: neighbours.sum(x, with_self=True), (x,))
    assert torch.autograd.gradgradcheck(lambda x: neighbours.sum(x, with_self=True), (x,))
    assert torch.autograd.gradcheck(lambda m: segment_sum(m, groups), (messages,))
    assert torch.autograd.gradgradcheck(lambda m: segment_sum(m, groups), (messages,))
    assert torch.autograd.gradcheck(lambda v: gather_rows(v, groups), (x,))
    assert torch.autograd.gradgradcheck(lambda v: gather_rows(v, groups), (x,))


def test_groups_without_elements_sum_to_zero():
    groups = SegmentIndex.of(torch.tensor([3, 1]), 6)
    assert segment_sum(torch.ones(2, 1), groups).flatten().tolist() == [0, 1, 0, 1, 0, 0]
    assert torch.equal(
        segment_sum(torch.ones(0, 2), SegmentIndex.of(torch.empty(0, dtype=torch.long), 3)), torch.zeros(3, 2)
    )


def test_sorted_ids_are_not_sorted_again():
    assert SegmentIndex.of(torch.tensor([0, 0, 2]), 3).order is None
    assert SegmentIndex.of(torch.tensor([2, 0]), 3).order is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_precisions(dtype):
    edge_index = torch.tensor([[0, 1, 2], [1, 1, 0]])
    x = torch.tensor([[1.0], [2.0], [4.0]], dtype=dtype)
    out = CSRAdjacency.of(edge_index, 3).sum(x)
    assert out.dtype == dtype
    assert out.flatten().tolist() == [4, 3, 0]


def test_non_contiguous_rows():
    x = torch.arange(12.0).view(3, 4).T[:3]
    assert torch.equal(CSRAdjacency.of(torch.tensor([[1], [0]]), 3).sum(x)[0], x[1])


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_the_cpu():
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(500, (2, 4000), generator=generator)
    x = torch.randn(500, 32, generator=generator)
    there = CSRAdjacency.of(edge_index.cuda(), 500).sum(x.cuda())
    assert torch.allclose(there.cpu(), CSRAdjacency.of(edge_index, 500).sum(x), atol=1e-5)
