"""The compiled loops against torch's operations: what is computed is equal, what is drawn follows the law."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcl.graphs import native
from graphcl.graphs.restrict import restrict
from graphcl.graphs.segment import pointers
from tests.strategies import QUICK, seeded

pytestmark = pytest.mark.skipif(not native.enabled, reason="the compiled loops are not there")


def long(values):
    return torch.tensor(values, dtype=torch.long)


@st.composite
def batches(draw, undirected=False):
    """Boundaries of nodes and edges, and edges within their graphs: sorted and undirected ones, or any."""
    nodes, edges, columns, first = [], [], [], 0
    for _ in range(draw(st.integers(0, 4))):
        n = draw(st.integers(1, 6))
        pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=12))
        if undirected:
            pairs = sorted({*pairs, *((v, u) for u, v in pairs)})
        nodes.append(n)
        edges.append(len(pairs))
        columns += [(first + u, first + v) for u, v in pairs]
        first += n
    return pointers(long(nodes)), pointers(long(edges)), long(columns).view(-1, 2).T.contiguous()


def masks(n):
    return st.lists(st.booleans(), min_size=n, max_size=n).map(lambda m: torch.tensor(m, dtype=torch.bool))


@QUICK
@given(batches(), st.data())
def test_restricting_is_what_torch_does(batch, data):
    ptr, edge_ptr, edge_index = batch
    graph = torch.arange(ptr.numel() - 1).repeat_interleave(ptr.diff())
    keep_node = data.draw(st.none() | masks(graph.numel()))
    keep_edge = data.draw(st.none() | masks(edge_index.size(1)))
    given_ = ptr, graph, edge_index, edge_ptr, keep_node, keep_edge
    ours, reference = restrict(*given_, compiled=True), restrict(*given_)
    for name, expected in vars(reference).items():
        got = getattr(ours, name)
        assert (got is None) == (expected is None), name
        assert got is None or torch.equal(got, expected), name
    assert restrict(*given_, with_edges=False, compiled=True).edges is None


@QUICK
@given(st.lists(st.integers(0, 5), max_size=20))
def test_grouping_is_a_stable_sort(ids):
    order, ptr = native.group(long(ids), 6)
    assert torch.equal(order, long(ids).argsort(stable=True))
    assert ptr.tolist() == pointers(torch.bincount(long(ids), minlength=6)).tolist()
    assert (native.starts(long(ids), 6) is None) == (ids != sorted(ids))
    assert native.starts(long(sorted(ids)), 6).tolist() == ptr.tolist()
    beside, _ = native.group(long(ids), 6, 10 * torch.arange(len(ids)))
    assert torch.equal(beside, 10 * order)


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
@given(batches(undirected=True), st.floats(0, 0.99), st.booleans(), st.integers(0, 99))
def test_sorted_undirected_graphs_are_perturbed_here(batch, ratio, add, seed):
    """The law is tested where torch's operations are; here, that these graphs do not fall back to them."""
    ptr, edge_ptr, edge_index = batch
    assert native.perturb(ptr, edge_ptr, edge_index, None, ratio, add, seeded(seed)) is not None


@pytest.mark.parametrize(
    "edges",
    [[[0, 1], [1, 2]], [[1, 0], [0, 1]], [[0, 0, 1, 1], [1, 1, 0, 0]], [[0], [1]]],
    ids=["directed", "unsorted", "parallel", "one way"],
)
def test_other_graphs_are_left_to_torch(edges):
    edge_index = long(edges)
    ptr, edge_ptr = long([0, 3]), long([0, edge_index.size(1)])
    assert native.perturb(ptr, edge_ptr, edge_index, None, 0.5, True, seeded(0)) is None


def test_an_untouched_graph_may_be_any():
    edge_index = long([[0, 1, 2, 3], [1, 0, 3, 4]])  # the second is directed
    touched = torch.tensor([True, False])
    found = native.perturb(long([0, 2, 5]), long([0, 2, 4]), edge_index, touched, 0.9, True, seeded(0))
    assert found is not None


def test_generators_decide():
    ptr, k = long([0, 50]), long([25])
    first, again = (native.random_subset(ptr, k, seeded(3)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, native.random_subset(ptr, k, seeded(4)))


LEAVES = "an edge leaves its graph"


@pytest.mark.parametrize("end", [-1, 2, 3, 2**40])
def test_edges_that_leave_their_graph_are_refused(end):
    """Two graphs of two nodes; memory that is not theirs is never touched."""
    edge_index, ptr, edge_ptr = long([[0, end], [end, 0]]), long([0, 2, 4]), long([0, 2, 2])
    every = torch.ones(4, dtype=torch.bool)
    for call in (
        lambda: native.grow(ptr, edge_ptr, long([1, 1]), edge_index, seeded(0)),
        lambda: native.perturb(ptr, edge_ptr, edge_index, None, 0.5, True, seeded(0)),
        lambda: native.keep_edges(ptr, edge_index, edge_ptr, None, every, long([0] * 4), True),
    ):
        with pytest.raises(IndexError, match=LEAVES):
            call()


@pytest.mark.parametrize("ptr", [[1, 2], [0, 2, 1, 4], [-1, 4]], ids=str)
def test_boundaries_that_do_not_ascend_are_refused(ptr):
    ptr = long(ptr)
    for call in (
        lambda: native.random_subset(ptr, torch.ones_like(ptr[1:]), seeded(0)),
        lambda: native.keep_nodes(torch.ones(4, dtype=torch.bool), ptr),
        lambda: native.grow(ptr, torch.zeros_like(ptr), torch.ones_like(ptr[1:]), long([[], []]), seeded(0)),
    ):
        with pytest.raises(IndexError, match="boundaries of graphs must ascend from 0"):
            call()


@pytest.mark.parametrize("graph", [-1, 2, 2**40])
def test_graphs_that_are_not_there_are_refused(graph):
    with pytest.raises(IndexError, match="there is no such graph"):
        native.cut(torch.zeros(4, 1), long([0, 2, 4]), long([graph]), 2)
    with pytest.raises(IndexError, match="there is no such group"):
        native.group(long([graph]), 2)
    with pytest.raises(IndexError, match="there is no such group"):
        native.starts(long([graph]), 2)


def test_a_total_that_does_not_fit_is_refused():
    with pytest.raises(IndexError, match="there is no such graph"):
        native.cut(torch.zeros(4, 1), long([0, 2, 4]), long([0]), 1)


def test_only_what_they_can_read_is_taken():
    whole = torch.zeros(2, 4, dtype=torch.long)
    assert native.takes(whole, None)
    assert not native.takes(whole.T)
    assert not native.takes(whole.int())
    assert not native.takes(whole.to("meta"))


def test_masks_may_be_slices_of_others():
    """Every second entry of a larger one: what lies between is not read."""
    ptr, edge_ptr, edge_index = long([0, 3, 5]), long([0, 4, 6]), long([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    batch = long([0, 0, 0, 1, 1])
    keep_node = torch.tensor([1, 0, 0, 0, 1, 0, 0, 1, 1, 0], dtype=torch.bool)[::2]
    keep_edge = torch.tensor([1, 0, 1, 0, 0, 1, 1, 0, 1, 0, 1, 1], dtype=torch.bool)[::2]
    given_ = ptr, batch, edge_index, edge_ptr, keep_node, keep_edge
    for got, expected in zip(
        vars(restrict(*given_, compiled=True)).values(), vars(restrict(*given_)).values(), strict=True
    ):
        assert torch.equal(got, expected)
    touched = torch.tensor([False, True, True, False])[::2]  # the second graph only, whose one edge has nowhere to go
    keep, _, _ = native.perturb(ptr, edge_ptr, edge_index, touched, 0.9, True, seeded(0))
    assert keep[:4].all()


@pytest.mark.parametrize("size", [4, 6])
def test_masks_of_another_size_are_refused(size):
    ptr, edge_ptr, edge_index = long([0, 3, 5]), long([0, 2, 2]), long([[0, 1], [1, 0]])
    batch, wrong = long([0, 0, 0, 1, 1]), torch.ones(size, dtype=torch.bool)
    for call in (
        lambda: restrict(ptr, batch, edge_index, edge_ptr, wrong, None, compiled=True),
        lambda: restrict(ptr, batch, edge_index, edge_ptr, None, wrong, compiled=True),
        lambda: native.perturb(ptr, edge_ptr, edge_index, wrong, 0.5, True, seeded(0)),
    ):
        with pytest.raises(IndexError, match="a mask must have"):
            call()
