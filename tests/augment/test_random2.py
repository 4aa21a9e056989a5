"""Test `random2`, GraphCL's pool of two augmentations."""

from graphcl.augment import NodeDrop, OneOf, Subgraph, random2
from tests.strategies import assert_same_graph, induced, kept_nodes, make_batch, path, seeded


def test_the_pool():
    for arguments, ratio in (((), 0.2), ((0.35,), 0.35)):
        pool = random2(*arguments)
        assert isinstance(pool, OneOf)
        assert [type(member) for member in pool.members] == [NodeDrop, Subgraph]
        assert {member.ratio for member in pool.members} == {ratio}
        assert repr(pool) == repr(OneOf([NodeDrop(ratio), Subgraph(ratio)]))


def test_edges_and_features_stay():
    """Neither node dropping nor subgraph sampling rewires an edge or changes a feature."""
    batch = make_batch(*[(6, path(6))] * 50)
    view = random2(0.5)(batch, seeded(0))
    assert view.ptr.diff().tolist() == [3] * 50
    for after, before in zip(view.to_data_list(), batch.to_data_list(), strict=True):
        assert_same_graph(after, induced(before, kept_nodes(after)))


def test_both_members_are_drawn():
    """A region of three nodes of a path has four directed edges; fewer edges show that NodeDrop was drawn."""
    view = random2(0.5)(make_batch(*[(6, path(6))] * 50), seeded(0))
    assert {graph.num_edges for graph in view.to_data_list()} == {0, 2, 4}
