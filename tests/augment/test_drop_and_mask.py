"""Test `drop_and_mask`, GRACE's view: edges are dropped, columns are masked, and row i stays node i."""

import torch

from graphcl.augment import EdgeDrop, FeatureMask, drop_and_mask
from tests.strategies import make_batch, seeded, star


def test_members_and_their_ratios():
    members = drop_and_mask(0.4, 0.1).members
    assert [type(each) for each in members] == [EdgeDrop, FeatureMask]
    assert [each.ratio for each in members] == [0.4, 0.1]


def test_every_node_keeps_its_row():
    batch = make_batch((51, star(50)), (31, star(30)))
    view = drop_and_mask(0.5, 0.5)(batch, seeded(0))
    assert torch.equal(view.node_id, batch.node_id)
    assert view.num_edges < batch.num_edges
    assert torch.equal(view.x, torch.where(view.x == 0, 0, batch.x))
