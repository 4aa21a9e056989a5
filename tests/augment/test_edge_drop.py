"""Test edge dropping: nodes stay, kept edges are a subset, and every edge is drawn independently."""

import pytest
import torch
from hypothesis import given

from graphcl.augment import EdgeDrop
from tests.strategies import QUICK, batches, generators, make_batch, ratios, seeded, star


@QUICK
@given(batches(), ratios, generators)
def test_nodes_stay_and_the_edges_are_a_subset_in_order(batch, ratio, generator):
    view = EdgeDrop(ratio)(batch, generator)
    assert torch.equal(view.node_id, batch.node_id)
    kept = torch.isin(batch.edge_id, view.edge_id)
    assert torch.equal(view.edge_index, batch.edge_index[:, kept])


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
def test_the_number_of_edges_is_binomial(ratio):
    batch = make_batch(*[(102, star(101))] * 50)  # 10,100 directed edges
    kept = EdgeDrop(ratio)(batch, seeded(0)).num_edges / batch.num_edges
    assert kept == pytest.approx(1 - ratio, abs=5 * (ratio * (1 - ratio) / batch.num_edges) ** 0.5)


def test_the_two_directions_are_independent():
    batch = make_batch((2002, star(2001)))
    view = EdgeDrop(0.5)(batch, seeded(0))
    present = {(int(u), int(v)) for u, v in view.edge_index.t()}
    both = sum((v, u) in present for u, v in present) / batch.num_edges
    assert both == pytest.approx(0.25, abs=0.03)
