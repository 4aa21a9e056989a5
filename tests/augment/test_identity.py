"""Test the identity augmentation."""

from hypothesis import given

from graphcl.augment import Identity, apply
from tests.strategies import QUICK, assert_same_batch, assert_same_graph, batches, make_graph, path, seeded


@QUICK
@given(batches())
def test_every_graph_stays(batch):
    for view in (Identity()(batch), Identity()(batch, seeded(0)), apply(batch, Identity().decide(batch))):
        assert_same_batch(view, batch)


def test_a_single_graph_stays():
    graph = make_graph(3, path(3))
    assert_same_graph(Identity()(graph), graph)


def test_it_draws_nothing():
    generator = seeded(0)
    before = generator.get_state()
    Identity()(make_graph(3, path(3)), generator)
    assert (generator.get_state() == before).all()
