"""Test subgraph sampling: properties of the regions, and their distribution against brute force."""

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcl.augment import Subgraph
from graphcl.augment.subgraph import first_passage, first_passage_cpu
from graphcl.graphs.segment import group
from tests.strategies import (
    QUICK,
    assert_law,
    assert_same_graph,
    batches,
    both_ways,
    copies,
    generators,
    induced,
    kept_nodes,
    kept_sets,
    lollipop,
    make_batch,
    path,
    ratio_count,
    ratios,
    seeded,
    shapes,
    star,
)


def loose_graph(graph):
    """Return the graph as an undirected networkx graph."""
    out = nx.Graph()
    out.add_nodes_from(range(graph.num_nodes))
    out.add_edges_from(graph.edge_index.t().tolist())
    return out


def check_region(whole, kept):
    """Check that at most one component is partly kept and that its kept part is connected."""
    cut = []
    for component in nx.connected_components(whole):
        inside = component & set(kept)
        if inside and inside != component:
            cut.append(inside)
    assert len(cut) <= 1, f"{len(cut)} components are cut"
    for inside in cut:
        assert nx.is_connected(whole.subgraph(inside)), f"{inside} does not hang together"


@QUICK
@given(batches(), ratios, generators)
def test_regions_have_the_right_size_and_keep_the_induced_edges(batch, ratio, generator):
    view = Subgraph(ratio)(batch, generator)
    for after, before in zip(view.to_data_list(), batch.to_data_list(), strict=True):
        kept = kept_nodes(after)
        assert len(kept) == before.num_nodes - ratio_count(ratio, before.num_nodes)
        assert_same_graph(after, induced(before, kept))
        check_region(loose_graph(before), kept)


@QUICK
@given(batches(), ratios, generators)
def test_one_hop_stays_around_one_node(batch, ratio, generator):
    view = Subgraph(ratio, growth="one_hop")(batch, generator)
    for after, before in zip(view.to_data_list(), batch.to_data_list(), strict=True):
        kept = kept_nodes(after)
        removed = ratio_count(ratio, before.num_nodes)
        assert_same_graph(after, induced(before, kept))
        if removed == 0:
            assert len(kept) == before.num_nodes
            continue
        around = [{seed} for seed in range(before.num_nodes)]
        for u, v in before.edge_index.t().tolist():
            around[u].add(v)
        wanted = before.num_nodes - removed
        assert any(
            seed in kept and set(kept) <= around[seed] and len(kept) == min(wanted, len(around[seed]))
            for seed in range(before.num_nodes)
        )


def test_a_region_of_a_directed_graph_hangs_together():
    """Edge directions are ignored: a weakly connected graph is one component."""
    tree = [(child, (child - 1) // 2) for child in range(1, 15)]
    batch = make_batch(*[(15, tree)] * 200, keys=())
    for after, before in zip(Subgraph(0.5)(batch, seeded(0)).to_data_list(), batch.to_data_list(), strict=True):
        check_region(loose_graph(before), kept_nodes(after))


def test_long_paths_beside_small_graphs():
    """Growth in a long path takes many rounds; the regions of all graphs must still be valid."""
    batch = make_batch((90, path(90)), (1, []), (5, star(4)), (60, both_ways([(i, i + 1) for i in range(0, 59, 2)])))
    for seed in range(10):
        view = Subgraph(0.4)(batch, seeded(seed))
        assert view.ptr.diff().tolist() == [54, 1, 3, 36]
        for after, before in zip(view.to_data_list(), batch.to_data_list(), strict=True):
            check_region(loose_graph(before), kept_nodes(after))


# -- first passage -----------------------------------------------------------------------------------------------------


def earliest_arrivals(start, edges):
    """Return the earliest arrival time at each node of an undirected graph, by a plain Bellman-Ford loop."""
    time = list(start)
    changed = True
    while changed:
        changed = False
        for one, other, travel in edges:
            for u, v in ((one, other), (other, one)):
                if time[u] + travel < time[v]:
                    time[v] = time[u] + travel
                    changed = True
    return time


@st.composite
def networks(draw):
    """Draw start times further apart than any path takes (some infinite), and edges with travel times 1/4 to 10."""
    n, entries = draw(shapes(max_nodes=8))
    order = draw(st.permutations(range(n)))
    start = [1000.0 * rank if draw(st.integers(0, 3)) else math.inf for rank in order]
    return start, [(u, v, draw(st.integers(1, 40)) / 4) for u, v in entries]


def by_rounds(start, edges):
    source, target, travel = both_directions(edges)
    return first_passage(start, source, target, travel)


def by_dijkstra(start, edges):
    source, target, travel = both_directions(edges)
    order, row = group(source, start.numel())
    return first_passage_cpu(start, row, target[order], travel[order])


def both_directions(edges):
    columns = list(zip(*edges, *((v, u, travel) for u, v, travel in edges), strict=True)) or [(), (), ()]
    return *(torch.tensor(column, dtype=torch.long) for column in columns[:2]), torch.tensor(columns[2]).double()


@pytest.mark.parametrize("passage", [by_rounds, by_dijkstra])
@QUICK
@given(networks())
def test_first_passage_against_a_loop(passage, network):
    start, edges = network
    found = passage(torch.tensor(start, dtype=torch.float64), edges)
    assert found.tolist() == earliest_arrivals(start, edges)


@pytest.mark.parametrize("passage", [by_rounds, by_dijkstra])
def test_the_faster_of_parallel_edges_counts(passage):
    start = torch.tensor([0.0, math.inf], dtype=torch.float64)
    assert passage(start, [(0, 1, 3.0), (0, 1, 1.0), (0, 1, 2.0), (1, 0, 5.0)]).tolist() == [0, 1]


# -- laws --------------------------------------------------------------------------------------------------------------


def law_of_growth(n, entries, size):
    """Return the probability of each set of kept nodes if each growth step draws a uniformly random boundary edge."""
    entries = [*entries, *((v, u) for u, v in entries)]
    law = {frozenset([start]): Fraction(1, n) for start in range(n)}
    for _ in range(size - 1):
        larger = Counter()
        for region, p in law.items():
            boundary = [v for u, v in entries if u in region and v not in region]
            choices = boundary or [v for v in range(n) if v not in region]
            for v in choices:
                larger[region | {v}] += p / len(choices)
        law = larger
    return law


def law_of_one_hop(n, entries, size):
    """Return the probability of each set of kept nodes: a uniform start node and a uniform set of its neighbours."""
    law = Counter()
    for start in range(n):
        around = sorted({v for u, v in entries if u == start})
        sets = list(combinations(around, min(size - 1, len(around))))
        for chosen in sets:
            law[frozenset([start, *chosen])] += Fraction(1, n * len(sets))
    return law


SMALL = [
    pytest.param(5, path(5), id="path"),
    pytest.param(5, star(4), id="star"),
    pytest.param(5, lollipop(), id="lollipop"),
    pytest.param(6, both_ways([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (3, 4), (4, 5)]), id="chord-and-tail"),
]


@pytest.mark.parametrize("kept", [2, 3])
@pytest.mark.parametrize(
    ("n", "entries"),
    [
        *SMALL,
        pytest.param(5, both_ways([(0, 1), (2, 3)]), id="components"),
        pytest.param(4, both_ways([(0, 1), (0, 1), (0, 1), (0, 2), (2, 3)]) + both_ways([(0, 1)]), id="parallel-edges"),
        pytest.param(4, [(i, i) for i in range(4)] + path(4), id="self-loops"),
        pytest.param(4, [], id="no-edge"),
        pytest.param(5, [(1, 0), (2, 0), (2, 3), (3, 4)], id="directed"),
        pytest.param(4, [(0, 1), (1, 0), (2, 1), (3, 1), (3, 1), (2, 2)], id="some-edges-both-ways"),
    ],
)
def test_the_law_of_growth(n, entries, kept):
    view = Subgraph(1 - kept / n)(copies(10_000, n, entries), seeded(kept))
    assert_law(kept_sets(view), law_of_growth(n, entries, kept))


@pytest.mark.parametrize(
    ("n", "entries", "kept"),
    [
        pytest.param(6, [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5)], 4, id="triangle-and-tail"),
        pytest.param(10, [(0, i) for i in range(1, 6)] + [(5, i) for i in range(6, 10)], 5, id="double-star"),
    ],
)
def test_growth_forgets_how_long_an_edge_has_waited(n, entries, kept):
    """Several steps need exponential travel times; other distributions give correct results for the first step only."""
    view = Subgraph(1 - kept / n)(copies(40_000, n, entries), seeded(kept))
    assert_law(kept_sets(view), law_of_growth(n, entries, kept))


@pytest.mark.parametrize("kept", [2, 3])
@pytest.mark.parametrize(("n", "entries"), SMALL)
def test_the_law_of_one_hop(n, entries, kept):
    view = Subgraph(1 - kept / n, growth="one_hop")(copies(10_000, n, entries), seeded(kept))
    assert_law(kept_sets(view), law_of_one_hop(n, entries, kept))


def test_the_law_does_not_depend_on_the_other_graphs():
    """A lollipop graph in a batch has the same distribution of regions as alone."""
    batch = make_batch((9, path(9)), (5, lollipop()), (4, star(3)), keys=("x",))
    generator = seeded(0)
    augment = Subgraph(0.4)
    outcomes = [frozenset((augment(batch, generator)[1].node_id % 100).tolist()) for _ in range(500)]
    assert_law(outcomes, law_of_growth(5, lollipop(), 3))


def test_graphs_of_a_batch_are_drawn_independently():
    sets = kept_sets(Subgraph(0.4)(copies(20_000, 3, path(3)), seeded(0)))
    law = law_of_growth(3, path(3), 2)
    pairs = {(a, b): p * q for a, p in law.items() for b, q in law.items()}
    assert_law(zip(sets[::2], sets[1::2], strict=True), pairs)


def test_the_checker_of_regions_notices_gaps():
    whole = loose_graph(make_batch((6, both_ways([(0, 1), (1, 2), (3, 4), (4, 5)])))[0])
    for fine in ([0, 1], [0, 1, 2], [0, 1, 2, 3], [3, 4, 5, 2, 1]):
        check_region(whole, fine)
    for gap in ([0, 2], [0, 3], [0, 1, 2, 3, 5]):
        with pytest.raises(AssertionError):
            check_region(whole, gap)
