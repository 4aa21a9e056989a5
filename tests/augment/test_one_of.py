"""Test `OneOf`, which draws one of several augmentations for each graph."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcl.augment import (
    AttributeMask,
    Augmentation,
    Compose,
    EdgePerturb,
    Identity,
    NodeDrop,
    OneOf,
    Subgraph,
    apply,
)
from graphcl.errors import InputError
from tests.strategies import (
    QUICK,
    assert_law,
    assert_same_batch,
    assert_same_graph,
    assert_true_batch,
    batches,
    copies,
    make_batch,
    make_graph,
    path,
    seeded,
    typical_batch,
    uniform,
)


def masking(value):
    return AttributeMask(0.9, noise_mean=value, noise_std=0)


def choices(view):
    """Return, for each graph of at least two nodes, the i of the `masking(i)` that was applied."""
    first = torch.full((view.num_graphs,), -torch.inf)
    value = torch.where(view.x[:, 0] == 99, -torch.inf, view.x[:, 0])
    return first.scatter_reduce(0, view.batch, value, "amax").tolist()


def unmasked(count):
    batch = copies(count, 3, path(3))
    batch.x = torch.full((3 * count, 2), 99.0)
    return batch


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_members_are_drawn_uniformly(count):
    view = OneOf([masking(i) for i in range(count)])(unmasked(10_000), seeded(count))
    assert_law(choices(view), uniform(range(count)))


def test_each_graph_has_a_draw_of_its_own():
    drawn = choices(OneOf([masking(0), masking(1)])(unmasked(20_000), seeded(0)))
    assert_law(zip(drawn[::2], drawn[1::2], strict=True), uniform((a, b) for a in (0, 1) for b in (0, 1)))


def test_nested_ones_are_drawn_by_their_own_odds():
    augment = OneOf([masking(0), OneOf([masking(1), Compose([Identity(), masking(2)])])])
    assert_law(choices(augment(unmasked(10_000), seeded(0))), {0: 0.5, 1: 0.25, 2: 0.25})


def test_what_a_member_draws_does_not_depend_on_being_chosen():
    """Removed nodes are uniform in the graphs for which NodeDrop was drawn."""
    view = OneOf([NodeDrop(0.4), Identity()])(copies(20_000, 3, path(3)), seeded(0))
    sizes = view.ptr.diff()
    assert_law(sizes.tolist(), {3: 0.5, 2: 0.5})
    kept = view.node_id[(sizes == 2)[view.batch]].view(-1, 2).tolist()
    assert_law(map(tuple, kept), uniform([(0, 1), (0, 2), (1, 2)]))


def test_every_graph_is_changed_by_exactly_one_member():
    """Each graph has at most one kind of change: removed nodes, rewired edges or new features."""
    batch = make_batch(*[(6, path(6))] * 60)
    view = OneOf([NodeDrop(0.4), EdgePerturb(0.4), AttributeMask(0.4), Identity()])(batch, seeded(0))
    kinds = Counter()
    for after, before in zip(view.to_data_list(), batch.to_data_list(), strict=True):
        if after.num_nodes < 6:
            kinds["nodes"] += 1
            assert torch.equal(after.x, before.x[after.node_id % 100])
        elif not torch.equal(after.edge_index, before.edge_index):
            kinds["edges"] += 1
            assert torch.equal(after.x, before.x)
        elif not torch.equal(after.x, before.x):
            kinds["features"] += 1
        else:
            kinds["none"] += 1
            assert_same_graph(after, before)
    assert set(kinds) == {"nodes", "edges", "features", "none"}


@QUICK
@given(batches(needs=("x",)), st.integers(0, 9))
def test_chosen_graphs_look_as_the_member_alone_would_make_them(batch, seed):
    """Both members are equal, so each graph loses the same number of nodes, whichever member is drawn."""
    view = OneOf([NodeDrop(0.5), NodeDrop(0.5)])(batch, seeded(seed))
    assert_true_batch(view)
    assert view.ptr.diff().tolist() == [n - n // 2 for n in batch.ptr.diff().tolist()]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool, torch.float64])
def test_several_members_that_mask(dtype):
    batch = make_batch(*[(4, path(4))] * 20)
    batch.x = torch.ones(80, 3, dtype=dtype)
    view = OneOf([AttributeMask(0.5, "zero"), AttributeMask(0.25, "zero")])(batch, seeded(0))
    assert view.x.dtype == dtype
    masked = (view.x == 0).all(dim=1).view(20, 4).sum(dim=1)
    assert ((view.x == 0) == (view.x == 0)[:, :1]).all()
    assert set(masked.tolist()) == {1, 2}


class Twice(Augmentation):
    """Custom augmentation with a two-step decision."""

    def __init__(self, first, second):
        self.first, self.second = first, second

    def decide(self, batch, generator=None, graphs=None):
        return Compose([self.first, self.second]).decide(batch, generator, graphs)


def test_a_member_of_another_class_may_take_several_steps():
    augment = OneOf([Twice(NodeDrop(0.5), NodeDrop(0.5)), Twice(Subgraph(0.5), NodeDrop(0.5))])
    batch = make_batch(*[(8, path(8))] * 10)
    for view in (augment(batch, seeded(0)), apply(batch, augment.decide(batch, seeded(0)))):
        assert_true_batch(view)
        assert view.ptr.diff().tolist() == [2] * 10


def test_a_single_graph():
    augment, graph = OneOf([NodeDrop(0.5), NodeDrop(0.25)]), make_graph(4, path(4))
    assert {augment(graph, seeded(seed)).num_nodes for seed in range(20)} == {2, 3}


def test_one_member_touches_all_graphs():
    view = OneOf([NodeDrop(0.5)])(typical_batch(), seeded(0))
    assert view.ptr.diff().tolist() == [n - n // 2 for n in typical_batch().ptr.diff().tolist()]


def test_compositions_as_members_keep_to_their_graphs():
    augment = OneOf([Compose([NodeDrop(0.5), EdgePerturb(0.5)]), Compose([AttributeMask(0.5)]), OneOf([Subgraph(0.5)])])
    batch = make_batch(*[(6, path(6))] * 40)
    view = augment(batch, seeded(0))
    assert_true_batch(view)
    assert_same_batch(apply(batch, augment.decide(batch, seeded(0))), view)
    assert Counter(view.ptr.diff().tolist()).keys() == {3, 6}


@pytest.mark.parametrize("weights", [[1, 1, 1], [0.2, 0.3, 0.5], [0, 3, 1], [0.0, 0.0, 7.5], [1e-300, 1e-300, 2e-300]])
def test_members_are_drawn_by_their_weights(weights):
    view = OneOf([masking(i) for i in range(3)], weights=weights)(unmasked(10_000), seeded(1))
    assert_law(choices(view), {i: weight / sum(weights) for i, weight in enumerate(weights)})


def test_uniform_draws_are_those_of_randint():
    """Pools without weights must reproduce the draws of earlier versions."""
    drawn = OneOf([masking(i) for i in range(3)]).draw(1000, seeded(7), torch.device("cpu"))
    assert torch.equal(drawn, torch.randint(3, (1000,), generator=seeded(7)))


@pytest.mark.parametrize("weights", [[], [1], [1, 1, 1], [0, 0]])
def test_weights_that_do_not_fit_the_members(weights):
    with pytest.raises(InputError, match=r"^`weights` must be 2 numbers, one per member and not all 0, got \[.*\]\.$"):
        OneOf([NodeDrop(0.5), Identity()], weights=weights)


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_weights_out_of_range(weight):
    with pytest.raises(InputError, match=r"^`weights\.1` must be in \[0, inf\), got "):
        OneOf([NodeDrop(0.5), Identity()], weights=[0.5, weight])
