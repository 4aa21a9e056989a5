"""Test edge perturbation: the fate of every edge, and the distribution of the draws."""

from collections import Counter
from itertools import combinations, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcl.augment import EdgePerturb
from tests.strategies import (
    QUICK,
    assert_law,
    assert_same_value,
    batches,
    both_ways,
    copies,
    generators,
    lollipop,
    make_batch,
    path,
    ratio_count,
    ratios,
    seeded,
    star,
    uniform,
)


def entries_by_id(graph):
    """Return the two ends of each directed edge by the edge's original index."""
    return dict(zip((graph.edge_id % 100).tolist(), map(tuple, graph.edge_index.t().tolist()), strict=True))


def account(before, after):
    """Compare a graph with its view; return unchanged pairs, the new pair of each moved pair, and removed pairs."""
    old, new = entries_by_id(before), entries_by_id(after)
    assert set(new) <= set(old)
    assert len(new) == after.num_edges
    groups = {}
    for i, (u, v) in old.items():
        if u == v:
            assert new[i] == (u, v), "a self-loop was touched"
        else:
            groups.setdefault(frozenset((u, v)), []).append(i)
    stayed, moved, gone = set(), {}, set()
    for pair, entries in groups.items():
        ends = [new.get(i) for i in entries]
        if None in ends:
            assert set(ends) == {None}, "a pair is partly gone"
            gone.add(pair)
        elif ends == [old[i] for i in entries]:
            stayed.add(pair)
        else:
            (target,) = {frozenset(end) for end in ends}
            assert len(target) == 2
            renamed = {old[i][0]: end[0] for i, end in zip(entries, ends, strict=True)}
            renamed |= {old[i][1]: end[1] for i, end in zip(entries, ends, strict=True)}
            assert len(set(renamed.values())) == 2, "directions got mixed up"
            assert all((renamed[old[i][0]], renamed[old[i][1]]) == new[i] for i in entries), "directions got mixed up"
            moved[pair] = target
    return stayed, moved, gone


@QUICK
@given(batches(), ratios, st.booleans(), generators)
def test_the_right_number_of_pairs_goes_and_comes(batch, ratio, add, generator):
    view = EdgePerturb(ratio, add)(batch, generator)
    for key in ("x", "pos", "node_id", "node_flag", "batch", "ptr"):
        if key in batch:
            assert_same_value(view[key], batch[key], key)
    for after, before in zip(view.to_data_list(), batch.to_data_list(), strict=True):
        stayed, moved, gone = account(before, after)
        pairs = stayed | set(moved) | gone
        absent = {frozenset(pair) for pair in combinations(range(before.num_nodes), 2)} - pairs
        removed = ratio_count(ratio, len(pairs))
        assert len(stayed) == len(pairs) - removed
        assert len(moved) == (min(removed, len(absent)) if add else 0)
        assert len(set(moved.values())) == len(moved), "two edges moved to one pair"
        assert set(moved.values()) <= absent, "a pair that was connected is no new pair"


@QUICK
@given(batches(), ratios, st.booleans(), generators)
def test_undirected_graphs_stay_undirected(batch, ratio, add, generator):
    graphs = batch.to_data_list()
    undirected = torch.tensor([Counter(map(tuple, graph.edge_index.t().tolist())) == Counter(
        map(tuple, graph.edge_index.flip(0).t().tolist())) for graph in graphs])  # fmt: skip
    view = EdgePerturb(ratio, add)(batch, generator)
    for was, graph in zip(undirected, view.to_data_list(), strict=True):
        if was:
            entries = Counter(map(tuple, graph.edge_index.t().tolist()))
            assert entries == Counter({(v, u): count for (u, v), count in entries.items()})


def test_the_share_of_edges_counts_pairs_not_entries():
    batch = make_batch((12, path(12)), (6, [(0, 1)] * 5 + [(1, 2), (3, 3)]))
    view = EdgePerturb(0.5, add=False)(batch, seeded(0))
    assert view[0].num_edges == 22 - 2 * 5  # 11 pairs
    assert view[1].num_edges in (7 - 5, 7 - 1)  # one of two pairs goes, with all its parallel edges


def test_a_complete_graph_has_nowhere_to_go():
    batch = make_batch((4, both_ways(combinations(range(4), 2))), (5, path(5)))
    view = EdgePerturb(0.5)(batch, seeded(0))
    assert [graph.num_edges for graph in view.to_data_list()] == [6, 8]


def test_one_absent_pair_takes_one_edge():
    entries = both_ways(set(combinations(range(4), 2)) - {(1, 3)})
    for graph in EdgePerturb(0.7)(make_batch(*[(4, entries)] * 20), seeded(0)).to_data_list():
        pairs = {frozenset(entry) for entry in graph.edge_index.t().tolist()}
        assert len(pairs) == 5 - 3 + 1
        assert {1, 3} in pairs


def test_a_large_sparse_graph():
    """In a graph with millions of unconnected pairs, edges must move only to unconnected pairs."""
    n = 5_000
    for seed in range(3):
        batch = make_batch((4, path(4)), (n, path(n)), (7, star(6)), keys=())
        view = EdgePerturb(0.9)(batch, seeded(seed))
        low, high = view.edge_index.min(dim=0).values, view.edge_index.max(dim=0).values
        assert (low < high).all()
        assert (low * view.num_nodes + high).unique().numel() * 2 == view.num_edges == batch.num_edges
        assert torch.equal(view.batch[low], view.batch[high])
        moved = (view.edge_index != batch.edge_index).any(dim=0)[6 : 6 + 2 * (n - 1)]
        assert int(moved.sum()) == 2 * ratio_count(0.9, n - 1)
        neighbours = (high - low == 1) & (view.batch[low] == 1)
        assert int(neighbours.sum()) == 2 * (n - 1) - int(moved.sum())


@pytest.mark.parametrize(
    ("n", "entries", "ratio"),
    [
        pytest.param(4, path(4), 0.7, id="path"),
        pytest.param(5, star(4), 0.25, id="star"),
        pytest.param(5, lollipop(), 0.4, id="lollipop"),
        pytest.param(5, [(0, 1), (1, 2), (2, 0), (2, 2), (4, 2)], 0.5, id="directed"),
        pytest.param(7, [(5, 6), (2, 4)], 0.5, id="many-absent-pairs"),
    ],
)
def test_removed_and_new_pairs_are_uniform_and_independent(n, entries, ratio):
    pairs = {frozenset(entry) for entry in entries if len(set(entry)) == 2}
    absent = {frozenset(pair) for pair in combinations(range(n), 2)} - pairs
    k = ratio_count(ratio, len(pairs))
    view = EdgePerturb(ratio)(copies(10_000, n, entries), seeded(n))
    ends = view.node_id[view.edge_index].t().tolist()
    found = [set() for _ in range(view.num_graphs)]
    for g, (u, v) in zip(view.batch[view.edge_index[0]].tolist(), ends, strict=True):
        if u != v:
            found[g].add(frozenset((u, v)))
    outcomes = [(frozenset(pairs - now), frozenset(now - pairs)) for now in found]
    law = uniform((frozenset(a), frozenset(b)) for a in combinations(pairs, k) for b in combinations(absent, k))
    assert_law(outcomes, law)


def moves(view, entries):
    """Return the new node pair of each moved edge, for each graph; the graphs must have no parallel edges."""
    ends = view.node_id[view.edge_index].t().tolist()
    found = [{} for _ in range(view.num_graphs)]
    for g, i, end in zip(view.batch[view.edge_index[0]].tolist(), view.edge_id.tolist(), ends, strict=True):
        if tuple(end) != entries[i]:
            found[g][i] = frozenset(end)
    return found


def test_where_an_edge_moves_does_not_depend_on_its_place():
    """Otherwise edge attributes would depend on the node numbering: low edges would move to low pairs."""
    entries = [(i, i + 1) for i in range(4)]
    absent = [pair for pair in map(frozenset, combinations(range(5), 2)) if max(pair) - min(pair) > 1]
    found = moves(EdgePerturb(0.5)(copies(10_000, 5, entries), seeded(0)), entries)
    assert_law([(i, pair) for graph in found for i, pair in graph.items()], uniform(product(range(4), absent)))


def test_which_edge_takes_the_only_absent_pair_does_not_depend_on_its_place():
    entries = [pair for pair in combinations(range(4), 2) if pair != (1, 3)]
    found = moves(EdgePerturb(0.7)(copies(10_000, 4, entries), seeded(0)), entries)
    assert_law([tuple(graph.items()) for graph in found], uniform(((i, frozenset((1, 3))),) for i in range(5)))


def test_without_adding_the_removed_pairs_are_uniform():
    view = EdgePerturb(0.5, add=False)(copies(10_000, 5, path(5)), seeded(0))
    kept = view.edge_id.view(-1, 4).tolist()
    law = uniform((2 * a, 2 * a + 1, 2 * b, 2 * b + 1) for a, b in combinations(range(4), 2))
    assert_law(map(tuple, kept), law)
