"""Test `random4`, GraphCL's pool of four augmentations."""

from collections import Counter

import pytest
import torch

from graphcl.augment import AttributeMask, EdgePerturb, NodeDrop, OneOf, Subgraph, random4
from graphcl.errors import InputError
from tests.strategies import make_batch, path, seeded


def test_the_pool():
    for arguments, ratio in (((), 0.2), ((0.35,), 0.35)):
        pool = random4(*arguments)
        assert isinstance(pool, OneOf)
        assert [type(member) for member in pool.members] == [NodeDrop, Subgraph, EdgePerturb, AttributeMask]
        assert {member.ratio for member in pool.members} == {ratio}
        assert repr(pool) == repr(OneOf([NodeDrop(ratio), Subgraph(ratio), EdgePerturb(ratio), AttributeMask(ratio)]))


def test_all_members_are_drawn():
    batch = make_batch(*[(6, path(6))] * 80)
    kinds = Counter()
    for after, before in zip(random4(0.5)(batch, seeded(0)).to_data_list(), batch.to_data_list(), strict=True):
        if after.num_nodes < 6:
            kinds["nodes"] += 1
        elif not torch.equal(after.x, before.x):
            kinds["features"] += 1
        elif not torch.equal(after.edge_index, before.edge_index):
            kinds["edges"] += 1
    assert sum(kinds.values()) == 80
    assert 25 <= kinds["nodes"] <= 55
    assert min(kinds["features"], kinds["edges"]) >= 8


def test_masking_in_the_pool_needs_features():
    with pytest.raises(InputError, match="`x`"):
        random4()(make_batch((3, path(3)), keys=()), seeded(0))
