"""Test node dropping against a plain loop, and the distribution of the removed nodes."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from torch_geometric.data import Data

from graphcl.augment import NodeDrop
from tests.strategies import (
    QUICK,
    assert_law,
    assert_same_graph,
    batches,
    copies,
    generators,
    induced,
    kept_nodes,
    make_batch,
    path,
    ratio_count,
    ratios,
    seeded,
    uniform,
)


@QUICK
@given(batches(), ratios, generators)
def test_each_graph_loses_its_share_of_nodes_and_keeps_the_induced_edges(batch, ratio, generator):
    view = NodeDrop(ratio)(batch, generator)
    for after, before in zip(view.to_data_list(), batch.to_data_list(), strict=True):
        kept = kept_nodes(after)
        assert len(kept) == before.num_nodes - ratio_count(ratio, before.num_nodes)
        assert_same_graph(after, induced(before, kept))


def test_a_decimal_ratio_means_the_decimal_number():
    assert NodeDrop(0.29)(make_batch((100, [])), seeded(0)).num_nodes == 71
    assert NodeDrop(0.57)(make_batch((100, []), (200, [])), seeded(0)).ptr.tolist() == [0, 43, 129]


def test_three_nodes_by_hand():
    """One of three nodes is removed; `x` shows which one."""
    graph = Data(x=torch.tensor([[0.0], [1.0], [2.0]]), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    expected = {
        (1.0, 2.0): [[0, 1], [1, 0]],
        (0.0, 2.0): [[], []],
        (0.0, 1.0): [[0, 1], [1, 0]],
    }
    seen = {}
    generator = seeded(0)
    for _ in range(40):
        view = NodeDrop(0.4)(graph, generator)
        seen[tuple(view.x.flatten().tolist())] = view.edge_index.tolist()
    assert seen == expected


@pytest.mark.parametrize(("n", "ratio"), [(5, 0.4), (4, 0.25), (6, 0.5)])
def test_all_subsets_of_nodes_are_equally_likely(n, ratio):
    draws = 10_000
    view = NodeDrop(ratio)(copies(draws, n, path(n)), seeded(n))
    kept = n - ratio_count(ratio, n)
    outcomes = [tuple(row) for row in view.node_id.view(draws, kept).tolist()]
    assert_law(outcomes, uniform(combinations(range(n), kept)))


def test_graphs_of_a_batch_are_drawn_independently():
    draws = 10_000
    view = NodeDrop(0.5)(copies(2 * draws, 3, path(3)), seeded(1))
    outcomes = [tuple(row) for row in view.node_id.view(draws, 4).tolist()]
    pairs = list(combinations(range(3), 2))
    assert_law(outcomes, uniform((*a, *b) for a in pairs for b in pairs))
