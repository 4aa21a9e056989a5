"""Test `joao` and `joao_v2`: drawn augmentations, their losses, the update of the probabilities, projectors."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcl.augment import (
    AttributeMask,
    Compose,
    EdgePerturb,
    Identity,
    NodeDrop,
    OneOf,
    Subgraph,
    random2,
    random4,
    two_views,
)
from graphcl.errors import InputError
from graphcl.graphs.batching import split
from graphcl.loaders.resident import ResidentLoader
from graphcl.losses import Loss, infonce
from graphcl.methods import JOAO, JOAOv2, TwoViews
from graphcl.methods.pool import Distribution, names, nearest_distribution
from graphcl.registry import losses
from graphcl.training.loop import train
from tests.methods.small import (
    Summed,
    assert_close_parameters,
    graphs,
    make_model,
    pick,
    seeded,
    step,
    through_a_file,
    trainable,
    unit_rows,
)
from tests.strategies import Mark, assert_law, assert_same_batch, assert_true_batch

IDS = list(range(12))
TERMWISE = [
    name
    for name in losses
    if losses.facts(name)["repels"] == "yes"
    and "reduction" in losses.arguments(name).defaults
    and "labels" not in losses.arguments(name).tensors
    and losses.arguments(name).defaults.get("negatives") != "queue"
]
MARKS = OneOf([Mark(10.0), Mark(20.0), Mark(30.0)])
FIVE = OneOf([NodeDrop(), EdgePerturb(), Subgraph(), AttributeMask(), Identity()])


def build(first=None, second=None, loss="infonce", kind=JOAO, encoder=None, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model, chosen = make_model(encoder=encoder), Loss(loss) if isinstance(loss, str) else loss
        return kind(model, chosen, first or Identity(), second or random4(), **options).double()


def views_of(method, ids=IDS, seed=0):
    return two_views(pick(graphs(dtype=torch.float64), ids), *method.augmentations(*method._given), seeded(seed))


# -- what was drawn ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [[0.25, 0.25, 0.5], [0.0, 0.9, 0.1], [1.0, 0.0, 0.0]])
def test_members_are_drawn_by_their_probabilities_and_recorded(p):
    method, whole = build(second=MARKS), pick(graphs(), list(range(20)) * 300)
    (pool,) = method._pools.values()
    pool.distribution.p.copy_(torch.tensor(p))
    view = method.augmentations(Identity(), MARKS)[1](whole, seeded(3))
    assert_law(view.drawn.tolist(), dict(enumerate(p)))
    assert torch.equal(view.x[view.ptr[:-1], 0], 10.0 * (view.drawn + 1))
    assert "drawn" not in whole
    assert "drawn" not in whole._slice_dict
    few = method.augmentations(Identity(), MARKS)[1](pick(graphs(), IDS), seeded(0))
    assert_true_batch(few)
    assert torch.cat([part.drawn for part in split(few, [5, 4, 3])]).tolist() == few.drawn.tolist()


def test_a_view_in_which_nothing_changed_is_recorded_on_a_copy():
    whole, pool = pick(graphs(), IDS), OneOf([Identity(), Identity()])
    view = build(second=pool).augmentations(Identity(), pool)[1](whole)
    assert "drawn" not in whole
    assert view.drawn.shape == (12,)
    assert torch.equal(view.x, whole.x)


def test_loader_chunks_keep_graphs_and_records_together():
    """`train` augments several batches at once and splits them. Each graph must keep its index `drawn`."""
    seen = []

    class Watched(JOAO):
        def forward(self, view1, view2, **options):
            seen.append((view2.x[view2.ptr[:-1], 0], 10.0 * (view2.drawn + 1)))
            return super().forward(view1, view2, **options)

    method = Watched(make_model(), Loss("infonce"), Identity(), MARKS)
    loader = ResidentLoader(graphs(), 7, shuffle=True, generator=seeded(0))
    train(method, loader, Identity(), MARKS, epochs=2, lr=1e-4, generator=seeded(1))
    assert [marks.numel() for marks, _ in seen] == [7, 7, 7, 3] * 2
    assert all(torch.equal(marks, records) for marks, records in seen)


# -- what it cost ------------------------------------------------------------------------------------------------------


def test_the_value_is_that_of_two_views():
    for name in TERMWISE:
        method = build(loss=name)
        views = views_of(method)
        torch.testing.assert_close(method(*views).loss, TwoViews(method.model, Loss(name))(*views).loss)
    method = build(loss=lambda z1, z2, reduction: infonce(z1, z2, reduction=reduction))
    torch.testing.assert_close(method(*views).loss, TwoViews(method.model, infonce)(*views).loss)


@pytest.mark.parametrize("symmetric", [False, True])
def test_losses_of_augmentations_against_a_plain_loop(symmetric):
    """Compute InfoNCE of each anchor, and its mean over the graphs that drew each augmentation."""
    method = build(random2(), MARKS, Loss("infonce", temperature=0.3, symmetric=symmetric))
    total, count = [[0.0] * 2, [0.0] * 3], [[0] * 2, [0] * 3]
    optimiser = torch.optim.SGD(trainable(method), lr=0.0)
    for seed, ids in enumerate([IDS, IDS[3:], [5, 2, 20, 21]]):
        views = views_of(method, ids, seed)
        method(*views)  # only a step counts
        outcome = step(method, optimiser, views)
        method.after_step()  # and only once
        z1, z2 = unit_rows(outcome.z1.detach()), unit_rows(outcome.z2.detach())
        for b in range(len(ids)):
            anchors = []
            for here, there in ((z1, z2), (z2, z1))[: 1 + symmetric]:
                s = (there @ here[b] / 0.3).tolist()
                anchors.append(-s[b] + math.log(sum(math.exp(each) for each in s)))
            for view in (0, 1):
                member = int(views[view].drawn[b])
                total[view][member] += sum(anchors) / len(anchors)
                count[view][member] += 1
    for pool, sums, numbers in zip(method._pools.values(), total, count, strict=True):
        assert min(numbers) > 0
        expected = torch.tensor(sums, dtype=torch.float64) / torch.tensor(numbers)
        torch.testing.assert_close(pool.distribution.means(), expected, rtol=1e-10, atol=1e-10)
        assert pool.distribution.draws.tolist() == numbers


# -- the step ----------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=5), st.integers(0, 99), st.floats(0, 2), st.floats(0.01, 2))
def test_the_step_of_the_probabilities(weights, seed, gamma, step_size):
    """Compare with the formula in the paper, projected by bisection as in the released code."""
    n, mine = len(weights), Distribution(weights, len(weights)).double()
    drawn = torch.randint(n, (40,), generator=seeded(seed))
    loss = torch.rand(40, generator=seeded(seed + 1), dtype=torch.float64) * 3
    p = mine.p.tolist()
    mine.add(drawn[:25], loss[:25])
    mine.add(drawn[25:], loss[25:])
    means = [float(loss[drawn == i].mean()) if (drawn == i).any() else float(loss.mean()) for i in range(n)]
    b = [p[i] + step_size * (means[i] - gamma * (p[i] - 1 / n)) for i in range(n)]
    low, high = min(b) - 1, max(b)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(each - middle, 0) for each in b) > 1 else (low, middle)
    mine.ascend(gamma, step_size)
    torch.testing.assert_close(mine.p, torch.tensor([max(each - low, 0) for each in b]).double(), rtol=0, atol=1e-6)
    assert mine.losses.tolist() == mine.draws.tolist() == [0] * n


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-20, 20), min_size=1, max_size=7), st.floats(-1e3, 1e3))
def test_the_nearest_distribution(values, shift):
    """p is the nearest point to v if and only if (v - p) (q - p) <= 0 for all vertices q of the simplex."""
    v = torch.tensor(values, dtype=torch.float64)
    p = nearest_distribution(v)
    assert (p >= 0).all()
    assert abs(float(p.sum()) - 1) < 1e-12
    assert ((v - p) - ((v - p) * p).sum()).max() < 1e-11
    torch.testing.assert_close(nearest_distribution(v + shift), p, rtol=0, atol=1e-11)
    torch.testing.assert_close(nearest_distribution(torch.tensor([1e8, 1e8, 0.0])), torch.tensor([0.5, 0.5, 0]))


@pytest.mark.parametrize(
    ("weights", "draws", "gamma", "step_size", "expected"),
    [
        ([1, 0, 0, 0], 50, 0.2, 0.5, [1 - 3 * 0.025, 0.025, 0.025, 0.025]),  # what is never drawn comes back by gamma
        ([1, 0], 50, 0.0, 1.0, [1, 0]),
        ([3, 1], 0, 0.4, 1.0, [0.65, 0.35]),  # an epoch without graphs
    ],
)
def test_what_was_never_drawn(weights, draws, gamma, step_size, expected):
    mine = Distribution([*map(float, weights)], len(weights))
    mine.add(torch.zeros(draws, dtype=torch.long), torch.full((draws,), 3.0))
    mine.ascend(gamma, step_size)
    torch.testing.assert_close(mine.p, torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize(("gamma", "expected"), [(0.5, (0.8, 1.0)), (50.0, (0.44, 0.56))])
def test_training_moves_towards_the_harder_augmentation(gamma, expected):
    """One pool is easy, one contains an augmentation that removes most of a graph; a large gamma holds both equal."""
    easy, hard = OneOf([Identity(), NodeDrop(0.1)]), OneOf([NodeDrop(0.8), Identity()])
    method = JOAO(make_model(), Loss("dcl"), easy, hard, gamma=gamma, step_size=0.1 if gamma < 1 else 0.02)
    loader = ResidentLoader(graphs(48), 16, shuffle=True, generator=seeded(0))
    history = train(method, loader, easy, hard, epochs=8, generator=seeded(1))
    for record in history:
        assert list(record.diagnostics) == ["p1_identity", "p1_node_drop", "p2_node_drop", "p2_identity"]
        assert sum(record.diagnostics.values()) == pytest.approx(2, abs=1e-6)
    last = history[-1].diagnostics
    assert last == method.probabilities()
    assert expected[0] < last["p2_node_drop"] <= expected[1]
    assert abs(last["p1_node_drop"] - 0.5) <= abs(last["p2_node_drop"] - 0.5) + 0.06


def test_names_weights_and_the_state():
    weighted = OneOf([NodeDrop(0.1), Subgraph(0.1), NodeDrop(0.3)], weights=[1, 3, 0])
    assert build(second=weighted).probabilities() == {"p_node_drop": 0.25, "p_subgraph": 0.75, "p_node_drop_2": 0.0}
    assert names([random2(), Compose([Identity()]), Identity()]) == ["one_of", "compose", "identity"]
    method, other = build(random4(), random2()), build(random4(), random2())
    optimiser = torch.optim.Adam(trainable(method))
    for seed in range(2):
        method.after_epoch()
        step(method, optimiser, views_of(method, seed=seed))
    assert other.probabilities() != method.probabilities()
    other.load_state_dict(through_a_file(method.state_dict()))
    # What is loaded is drawn from, and what had been counted counts.
    assert_same_batch(views_of(other)[1], views_of(method)[1])
    assert method.after_epoch() == other.after_epoch()


# -- one projector per augmentation ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "projectors"),
    [
        (Identity(), FIVE, ([0], [1, 2, 3, 4, 0])),
        (random4(), random4(), ([0, 1, 2, 3], [0, 1, 2, 3])),
        (random4(0.1), random2(0.3), ([0, 1, 2, 3], [4, 5])),
        (random2(), NodeDrop(), ([0, 1], [0])),
    ],
)
def test_projections_and_gradients_against_a_loop_over_graphs(first, second, projectors):
    method = build(first, second, kind=JOAOv2, encoder=Summed)
    assert tuple(method._numbers) == projectors
    weights = [method.projector(number)[0].weight for number in range(1 + max(map(max, projectors)))]
    assert len(method.others) == len(weights) - 1
    assert method.projector(0) is method.model.projector
    assert not any(torch.equal(a, b) for i, a in enumerate(weights) for b in weights[:i])
    again, views, rows = copy.deepcopy(method), views_of(method), []
    outcome = method(*views)
    for view, numbers in zip(views, projectors, strict=True):
        drawn = view.drawn.tolist() if "drawn" in view else [0] * 12
        h = again.model.encode(view)
        rows.append(torch.stack([again.projector(numbers[d])(row) for d, row in zip(drawn, h, strict=True)]))
    torch.testing.assert_close((outcome.z1, outcome.z2), tuple(rows))
    outcome.loss.backward()
    Loss("infonce")(*rows).backward()
    assert_close_parameters(method, again, gradients=True)


def test_equal_projectors_give_joao_and_new_ones_have_the_models_form():
    method = build(kind=JOAOv2)
    for projector in method.others:
        projector.load_state_dict(method.model.projector.state_dict())
    views = views_of(method)
    plain = JOAO(method.model, Loss("infonce"), Identity(), random4()).double()
    torch.testing.assert_close(method(*views).loss, plain(*views).loss, rtol=1e-12, atol=1e-12)
    linear = JOAOv2(make_model(projection=5, projector="linear"), Loss("infonce"), Identity(), random2())
    assert [(type(each[0]), len(each)) for each in linear.others] == [(torch.nn.Linear, 1)] * 2


# -- messages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), [(JOAO, "joao"), (JOAOv2, "joao_v2")])
def test_bad_input(kind, name):
    scalar = build(kind=kind, loss=lambda z1, z2, reduction: infonce(z1, z2))
    batch, pool, method = pick(graphs(dtype=torch.float64), IDS), random2(), build(kind=kind)
    cases = [
        (lambda: build(second=Compose([pool]), kind=kind),
         rf"^method `{name}` needs a pool .* got Identity\(\) and Compose\(.*\); make one with"),
        (lambda: build(loss="vicreg", kind=kind), rf"^method `{name}` passes `reduction` to the loss, which `vicreg`"),
        (lambda: build(loss=lambda z1, z2: infonce(z1, z2), kind=kind), r"passes `reduction` .* this function does n"),
        (lambda: scalar(*views_of(scalar)), r"^the loss must return one term per anchor for 12 graphs, got \[\]\.$"),
        (lambda: method(batch, batch), rf"^method `{name}` needs views that record the drawn .* its `augmentations"),
        (lambda: method.augmentations(pool, pool),
         rf"^method `{name}` was constructed with the view Identity\(\), got OneOf\("),
    ]  # fmt: skip
    for call, line in cases:
        with pytest.raises(InputError, match=line):
            call()
