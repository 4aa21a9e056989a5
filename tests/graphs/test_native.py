"""Test the compiled loops against torch's operations, and the arguments that they reject."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from graphcl.augment.edge_perturb import _pairs
from graphcl.augment.transform import restrict, select
from graphcl.graphs import native
from graphcl.graphs.batching import Layout
from graphcl.graphs.segment import pointers, random_sample
from tests.strategies import QUICK, batches, loops, seeded

pytestmark = pytest.mark.skipif(not native.enabled, reason="the compiled loops are not there")


def long(values):
    return torch.tensor(values, dtype=torch.long)


layouts = batches(min_nodes=0).map(Layout.of)


def masks(n):
    """Return a strategy for masks that are strided views; their skipped entries are the opposite."""
    flags = st.lists(st.booleans(), min_size=n, max_size=n).map(lambda m: torch.tensor(m, dtype=torch.bool))
    return flags.map(lambda m: torch.stack([m, ~m], dim=1)[:, 0])


def fields(part):
    """Return the tensors of a `Part`, with those of `cuts` in a row."""
    *own, cuts = vars(part).values()
    return [*own, *(cuts or (None, None))]


@QUICK
@given(layouts, st.data())
def test_restricting_is_what_torch_does(layout, data):
    keep_node = data.draw(st.none() | masks(layout.num_nodes))
    keep_edge = data.draw(st.none() | masks(layout.num_edges))
    kept = layout, layout.edge_index, keep_node, keep_edge
    ours = restrict(*kept)
    with loops(False):
        reference = restrict(*kept)
    for got, expected in zip(fields(ours), fields(reference), strict=True):
        assert got is expected is None or torch.equal(got, expected)
    assert restrict(*kept, with_edges=False).edges is None


@QUICK
@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.data())
def test_cutting_takes_rows_and_shifts_pairs(sizes, data):
    start = pointers(long(sizes))
    graphs = long(data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=8)))
    rows = torch.cat([torch.arange(int(start[g]), int(start[g + 1])) for g in graphs] or [long([])])
    values = torch.randn(sum(sizes), 3, generator=seeded(0))
    assert torch.equal(native.cut(values, start, graphs, rows.numel()), values[rows])
    pairs = torch.randint(9, (2, sum(sizes)), generator=seeded(0))
    shift = 100 * torch.arange(graphs.numel() + 1)
    expected = pairs[:, rows] + shift[:-1].repeat_interleave(long([sizes[g] for g in graphs]))
    assert torch.equal(native.cut_pairs(pairs, start, graphs, rows.numel(), shift), expected)


@QUICK
@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.data())
def test_samples_are_those_of_torch(sizes, data):
    k = long([data.draw(st.integers(0, size)) for size in sizes])
    ours = random_sample(pointers(long(sizes)), k, seeded(0))
    with loops(False):
        assert torch.equal(ours, random_sample(pointers(long(sizes)), k, seeded(0)))


@QUICK
@given(layouts, st.data())
def test_pairs_are_those_of_torch(layout, data):
    mask = data.draw(st.none() | masks(layout.num_graphs))
    ours = _pairs(layout, mask)
    with loops(False):
        for edge_ptr in (layout.host_edge_ptr, None):
            reference = _pairs(replace(layout, host_edge_ptr=edge_ptr), mask)
            assert all(torch.equal(got, expected) for got, expected in zip(ours, reference, strict=True))


PTR, EVERY = long([0, 2, 4]), torch.ones(4, dtype=torch.bool)
ROWS = torch.zeros(4, 1)
OUT, LARGE = "a (graph|segment|node or edge) index is out of range", "a sample is larger than its segment"
LEAVES, ASCEND = (
    "an edge leaves its graph",
    "boundaries must ascend from 0 to the number of elements|an array must have",
)
REFUSED = [
    *((native.keep_edges, (PTR, long([[0, end], [end, 0]]), long([0, 2, 2]), None, EVERY, long([0] * 4), True), LEAVES)
      for end in (-1, 2, 3, 2**40)),
    (native.grow, (PTR, long([2, 1]), long([0, 2, 2, 2, 2]), long([2, 3]), torch.ones(2).double(), long([0, 1, 2, 3]),
                   9.0), LEAVES),
    *((native.keep_nodes, (EVERY, long(ptr)), ASCEND) for ptr in ([1, 2], [0, 2, 1, 4], [-1, 4])),
    *((native.grow, (long(ptr), long(ptr[1:]), *[long(ptr)] * 2, torch.zeros(9), long(ptr), 1.0), ASCEND)
      for ptr in ([1, 2], [0, 2, 1, 4], [-1, 4])),
    *((native.cut, (ROWS, PTR, long([g]), total), OUT) for g, total in [(-1, 2), (2, 2), (2**40, 2), (0, 1)]),
    *((loop, (long([g]), 2), OUT) for g in (-1, 2, 2**40) for loop in (native.group, native.starts)),
    *((native.sample, (PTR, long(k), long(order)), LARGE)
      for k, order in [([3, 0], [0, 1]), ([-1, 1], [0, 1]), ([1, 0], [0]), ([1, 0], [0, 2]), ([1, 1], [0, 1])]),
    *((native.pairs, (long([[edge], [0]]), long(among), 4), OUT)
      for edge, among in [(4, [0]), (-1, [0]), (1, [1]), (1, [-1])]),
    *((native.mask, (torch.ones(size, dtype=torch.bool), 5), "a mask must have") for size in (4, 6)),
]  # fmt: skip


def test_indices_that_do_not_fit_are_refused_before_any_memory_access():
    for loop, arguments, message in REFUSED:
        with pytest.raises(IndexError, match=message):
            loop(*arguments)


def test_fewer_edges_than_the_layout_has_raise():
    """The compiled loop would read on behind the given edges, here in zeros of the same storage."""
    batch = Batch.from_data_list([Data(x=torch.ones(2, 1), edge_index=torch.zeros(2, 4, dtype=torch.long))])
    fewer = torch.zeros(100, dtype=torch.long)[:2].view(2, 1)
    with pytest.raises(IndexError):
        select(batch, Layout.of(batch), torch.tensor([True, False]), None, {"edge_index": fewer})
