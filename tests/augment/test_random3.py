"""Test `random3`, GraphCL's pool of three augmentations."""

from collections import Counter

import torch

from graphcl.augment import EdgePerturb, NodeDrop, OneOf, Subgraph, random3
from tests.strategies import make_batch, path, seeded


def test_the_pool():
    for arguments, ratio in (((), 0.2), ((0.35,), 0.35)):
        pool = random3(*arguments)
        assert isinstance(pool, OneOf)
        assert [type(member) for member in pool.members] == [NodeDrop, Subgraph, EdgePerturb]
        assert {member.ratio for member in pool.members} == {ratio}
        assert repr(pool) == repr(OneOf([NodeDrop(ratio), Subgraph(ratio), EdgePerturb(ratio)]))


def test_all_members_are_drawn_and_features_stay():
    batch = make_batch(*[(6, path(6))] * 60)
    view = random3(0.5)(batch, seeded(0))
    assert torch.equal(view.x, batch.x[view.node_id // 100 * 6 + view.node_id % 100])
    sizes = Counter(view.ptr.diff().tolist())
    assert set(sizes) == {3, 6}
    assert 8 <= sizes[6] <= 32  # a third of 60 graphs is expected
