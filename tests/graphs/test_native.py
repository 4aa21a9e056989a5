"""Test the compiled loops against torch's operations, and the arguments that they reject."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from graphcl.augment import EdgePerturb, Subgraph
from graphcl.augment.transform import restrict, select
from graphcl.graphs import native
from graphcl.graphs.batching import Layout
from graphcl.graphs.segment import pointers, random_sample
from tests.strategies import QUICK, batches, loops, make_batch, path, ratios, seeded, star

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
    bounds = pointers(long([sizes[g] for g in graphs]))
    assert torch.equal(native.cut_bounds(start, graphs)[0], bounds)
    assert native.cut_bounds(start, graphs)[1] == rows.numel()
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
@given(batches(min_nodes=0), ratios, st.sampled_from([EdgePerturb, Subgraph]), st.data())
def test_decisions_are_those_of_torch(batch, ratio, augment, data):
    mask = data.draw(st.none() | masks(batch.num_graphs))
    ours = augment(ratio).decide(batch, seeded(0), mask)
    with loops(False):
        reference = augment(ratio).decide(batch, seeded(0), mask)
    for got, expected in zip(vars(ours).values(), vars(reference).values(), strict=True):
        assert got is expected is None or torch.equal(got, expected)


def test_pairs_are_drawn_again_as_by_torch(monkeypatch):
    """The first round draws self-loops only, the second those and connected pairs among others."""
    batch, rand = make_batch((60, path(60)), (4, path(4)), (70, star(60))), torch.rand
    moved = []
    for compiled in (True, False):
        rounds = iter([0.0, 0.1])

        def draws(*size, factors=rounds, **options):
            return rand(*size, **options) * next(factors, 1)

        monkeypatch.setattr(torch, "rand", draws)
        with loops(compiled):
            moved.append(EdgePerturb(0.3).decide(batch, seeded(0)).moved_to)
        assert next(rounds, None) is None
    assert torch.equal(*moved)


def perturb(nodes, listed, tries, order=(0, 1, 2)):
    """Move one of the three edges of a path by random numbers of the wrong number or range."""
    pairs = native.EdgePairs(long([0, nodes]), long([0, 3]), long([[0, 1, 2], [1, 2, 3]]), None, 0.4, True)
    if listed or tries:
        pairs.draw_ends(listed and long(listed), torch.rand(2, tries).double() if tries else None)
    pairs.replace(long(order))


PTR, EVERY = long([0, 2, 4]), torch.ones(4, dtype=torch.bool)
ROWS, K = torch.zeros(4, 1), long([1, 0])
OUT, LARGE = "a (graph|segment) index is out of range", "a sample is larger than its segment"
LEAVES, ASCEND = (
    "an edge leaves its graph",
    "boundaries must ascend from 0 to the number of elements|an array must have",
)
REFUSED = [
    *((native.keep_edges, (PTR, long([[0, end], [end, 0]]), long([0, 2, 2]), None, EVERY, long([0] * 4), True), LEAVES)
      for end in (-1, 2, 3, 2**40)),
    *((native.grow, (PTR, K, long([0, 1, 1]), long([[0], [end]]), long(order), torch.ones(times).double()), message)
      for end, order, times, message in [(2, [0, 1], 1, LEAVES), (1, [0, 1], 2, LARGE), (1, [0], 1, LARGE),
                                         (1, [0, 2], 1, LARGE)]),
    *((native.keep_nodes, (EVERY, long(ptr)), ASCEND) for ptr in ([1, 2], [0, 2, 1, 4], [-1, 4])),
    *((native.grow, (long(ptr), long(ptr[1:]), long(ptr), long([[0], [0]]), long(ptr), torch.zeros(1).double()), ASCEND)
      for ptr in ([1, 2], [0, 2, 1, 4], [-1, 4])),
    *((native.EdgePairs, (long(ptr), long(ptr), long([[0], [0]]), None, 0.5, True), ASCEND)
      for ptr in ([1, 2], [0, 2, 1, 4], [-1, 4])),
    *((native.cut_bounds, (PTR, long([g])), OUT) for g in (-1, 2, 2**40)),
    *((native.rebase, (PTR, long(bounds)), ASCEND) for bounds in ([0, 1], [0, 2, 1, 2], [1, 2])),
    *((native.cut, (ROWS, PTR, long([g]), total), OUT) for g, total in [(-1, 2), (2, 2), (2**40, 2), (0, 1)]),
    *((loop, (long([g]), 2), OUT) for g in (-1, 2, 2**40) for loop in (native.group, native.starts)),
    *((native.sample, (PTR, long(k), long(order), max(sum(k), 0)), LARGE)
      for k, order in [([3, 0], [0, 1]), ([-1, 1], [0, 1]), ([1, 0], [0]), ([1, 0], [0, 2]), ([1, 1], [0, 1])]),
    *((native.EdgePairs, (PTR, long([0, 1, 1]), long([[end], [0]]), None, 0.5, True), LEAVES)
      for end in (-1, 2, 2**40)),
    *((perturb, (nodes, *draws), LARGE)
      for nodes, draws in [(4, ([0], 0)), (4, ([3, 0, 1], 0)), (99, (None, 1))]),
    *((perturb, (4, None, 0, order), LARGE) for order in ([0], [0, 3, 1])),
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
