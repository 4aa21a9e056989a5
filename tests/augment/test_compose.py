"""Test `Compose`, and decisions of several steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcl.augment import AttributeMask, Compose, EdgePerturb, Identity, NodeDrop, OneOf, Subgraph, apply, random3
from graphcl.errors import InputError
from tests.strategies import (
    QUICK,
    assert_same_batch,
    assert_true_batch,
    batches,
    make_batch,
    path,
    ratio_count,
    seeded,
    typical_batch,
)

steps = st.sampled_from(
    [NodeDrop(0.3), EdgePerturb(0.4), EdgePerturb(0.4, add=False), Subgraph(0.3), AttributeMask(0.5), Identity()]
)


def combinations(inner):
    some = st.lists(inner, min_size=1, max_size=3)
    return some.map(Compose) | some.map(OneOf)


trees = st.recursive(steps, combinations, max_leaves=6)


@QUICK
@given(batches(needs=("x",)), st.lists(steps, min_size=1, max_size=4), st.integers(0, 9))
def test_it_is_its_members_in_turn(batch, members, seed):
    generator = seeded(seed)
    expected = batch
    for member in members:
        expected = member(expected, generator)
    assert_same_batch(Compose(members)(batch, seeded(seed)), expected)


@QUICK
@given(batches(needs=("x",)), trees, st.integers(0, 9), st.data())
def test_nested_ones_replay_what_they_decided(batch, augment, seed, data):
    flags = data.draw(st.none() | st.lists(st.booleans(), min_size=batch.num_graphs, max_size=batch.num_graphs))
    graphs = None if flags is None else batch.ptr.new_tensor(flags).bool()
    decision = augment.decide(batch, seeded(seed), graphs)
    view = augment(batch, seeded(seed), graphs)
    assert_true_batch(view)
    assert_same_batch(apply(batch, decision), view)
    assert_same_batch(apply(batch, decision), view)


def test_ratios_count_what_the_members_before_left():
    batch = make_batch((20, path(20)), (7, []))
    view = Compose([NodeDrop(0.5), Subgraph(0.5), NodeDrop(0.25)])(batch, seeded(0))
    expected = []
    for n in (20, 7):
        left = n
        for ratio in (0.5, 0.5, 0.25):
            left -= ratio_count(ratio, left)
        expected.append(left)
    assert view.ptr.diff().tolist() == expected


def test_one_member_is_that_member():
    batch = typical_batch()
    assert_same_batch(Compose([NodeDrop(0.5)])(batch, seeded(1)), NodeDrop(0.5)(batch, seeded(1)))


def test_a_composition_of_compositions_is_one_composition():
    batch = typical_batch()
    a, b, c = NodeDrop(0.3), EdgePerturb(0.5), AttributeMask(0.5)
    flat = Compose([a, b, c])
    left, right, deep = Compose([Compose([a, b]), c]), Compose([a, Compose([b, c])]), Compose([Compose([flat])])
    for nested in (left, right, deep):
        assert_same_batch(nested(batch, seeded(2)), flat(batch, seeded(2)))
        assert_same_batch(apply(batch, nested.decide(batch, seeded(2))), flat(batch, seeded(2)))


def test_the_list_of_members_is_its_own():
    members = [NodeDrop(0.5)]
    augment = Compose(members)
    members.append(None)
    assert augment.members == members[:1]


@pytest.mark.parametrize("combine", [Compose, OneOf])
@pytest.mark.parametrize("wrong", [[], [None], [NodeDrop], [random3], ["drop"], [lambda data: data], None])
def test_members_that_are_no_augmentations(combine, wrong):
    with pytest.raises(InputError, match=r"`members` must be|unknown augmentation 'drop'; did you mean"):
        combine(wrong)


def test_names_of_members():
    assert repr(OneOf(["node_drop", Subgraph()])) == repr(OneOf([NodeDrop(), Subgraph()]))
    with pytest.raises(InputError, match="augmentation `one_of` needs `members`; pass an object instead"):
        Compose(["one_of"])
