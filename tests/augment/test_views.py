"""Test `two_views`."""

import torch

from graphcl.augment import Identity, NodeDrop, Subgraph, two_views
from tests.strategies import assert_same_batch, make_batch, path, seeded, snapshot, typical_batch


def test_views_are_made_in_order_from_one_generator():
    batch = typical_batch()
    generator = seeded(0)
    expected = NodeDrop(0.5)(batch, generator), Subgraph(0.5)(batch, generator)
    for view, wanted in zip(two_views(batch, NodeDrop(0.5), Subgraph(0.5), seeded(0)), expected, strict=True):
        assert_same_batch(view, wanted)


def test_both_views_start_from_the_original():
    batch = make_batch((10, path(10)), (4, []))
    before = snapshot(batch)
    first, second = two_views(batch, NodeDrop(0.5), NodeDrop(0.5), seeded(0))
    assert first.ptr.tolist() == second.ptr.tolist() == [0, 5, 7]
    assert not torch.equal(first.node_id, second.node_id)
    assert_same_batch(two_views(batch, Identity(), Identity())[0], batch)
    assert all(torch.equal(batch[key], value) for key, value in before[0].items() if isinstance(value, torch.Tensor))
