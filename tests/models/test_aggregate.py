"""Test sums over neighbours and segments: values against plain loops, gradients, and edge cases of the input."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcl.models.aggregate import CSRAdjacency, SegmentIndex, gather_rows, segment_sum
from tests.strategies import QUICK, seeded


@st.composite
def edges(draw):
    n = draw(st.integers(1, 8))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30))
    return n, torch.tensor(pairs, dtype=torch.long).view(-1, 2).T


@QUICK
@given(edges())
def test_sums_and_gathered_rows_are_loops(graph):
    n, edge_index = graph
    x = torch.arange(n * 3, dtype=torch.float64).view(n, 3) ** 1.5
    values = torch.arange(edge_index.size(1) * 2, dtype=torch.float64).view(-1, 2)
    neighbours, sums = torch.zeros_like(x), torch.zeros(n, 2, dtype=torch.float64)
    for row, (u, v) in zip(values, edge_index.T.tolist(), strict=True):
        neighbours[v] += x[u]
        sums[v] += row
    adjacency, groups = CSRAdjacency.of(edge_index, n), SegmentIndex.of(edge_index[1], n)
    assert torch.allclose(adjacency.sum(x), neighbours, rtol=1e-14)
    assert torch.allclose(adjacency.sum(x, with_self=True), neighbours + x, rtol=1e-14)
    assert torch.equal(segment_sum(values, groups), sums)
    assert torch.equal(gather_rows(sums, groups), sums[edge_index[1]])


@pytest.mark.parametrize("shuffled", [False, True])
def test_gradients(shuffled):
    generator = seeded(0)
    edge_index = torch.randint(4, (2, 9), generator=generator)
    if not shuffled:
        edge_index = edge_index[:, edge_index[1].argsort()]
    neighbours, groups = CSRAdjacency.of(edge_index, 4), SegmentIndex.of(edge_index[1], 4)
    assert (groups.order is None) == (not shuffled)  # sorted ids are not sorted again
    x = torch.randn(4, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    messages = torch.randn(9, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    for function, given_ in [
        (neighbours.sum, x),
        (lambda x: neighbours.sum(x, with_self=True), x),
        (lambda m: segment_sum(m, groups), messages),
        (lambda v: gather_rows(v, groups), x),
    ]:
        assert torch.autograd.gradcheck(function, (given_,))
        assert torch.autograd.gradgradcheck(function, (given_,))


def test_empty_groups_other_precisions_and_rows_that_are_not_contiguous():
    groups = SegmentIndex.of(torch.tensor([3, 1]), 6)
    assert segment_sum(torch.ones(2, 1), groups).flatten().tolist() == [0, 1, 0, 1, 0, 0]
    nothing = SegmentIndex.of(torch.empty(0, dtype=torch.long), 3)
    assert torch.equal(segment_sum(torch.ones(0, 2), nothing), torch.zeros(3, 2))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        out = CSRAdjacency.of(torch.tensor([[0, 1, 2], [1, 1, 0]]), 3).sum(torch.tensor([[1], [2], [4]], dtype=dtype))
        assert out.dtype == dtype
        assert out.flatten().tolist() == [4, 3, 0]
    x = torch.arange(12.0).view(3, 4).T[:3]
    assert torch.equal(CSRAdjacency.of(torch.tensor([[1], [0]]), 3).sum(x)[0], x[1])
