"""Test `joao` and `joao_v2`: drawn augmentations, their losses, the update of the probabilities, projectors."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from graphcl.augment import Compose, Identity, NodeDrop, OneOf, Subgraph, random2, random4, two_views
from graphcl.errors import InputError
from graphcl.graphs.batching import split
from graphcl.losses import Loss, infonce
from graphcl.methods import JOAO, JOAOv2
from graphcl.methods.joao import Distribution, names
from tests.methods.small import Summed, graphs, make_model, pick, reload, same_weights, seeded, step, trainable
from tests.strategies import Mark, assert_law, assert_same_batch, assert_true_batch

IDS = list(range(12))
MARKS = OneOf([Mark(10.0), Mark(20.0), Mark(30.0)])


def build(first=None, second=None, loss="infonce", kind=JOAO, encoder=None, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model, chosen = make_model(encoder=encoder), Loss(loss) if isinstance(loss, str) else loss
        return kind(model, chosen, first or Identity(), second or random4(), **options).double()


def views_of(method, ids=IDS, seed=0):
    return two_views(pick(graphs(dtype=torch.float64), ids), *method.augmentations(*method._views), seeded(seed))


# -- what was drawn and what it cost -----------------------------------------------------------------------------------


def test_members_are_drawn_by_their_probabilities_and_recorded():
    """The record belongs to the view, not to the original graphs, also if no graph changes, and may be split."""
    whole = pick(graphs(), list(range(20)) * 100)
    for p in ([0.25, 0.25, 0.5], [0.0, 0.9, 0.1], [1.0, 0.0, 0.0]):
        method = build(second=MARKS)
        method.distributions[0].p.copy_(torch.tensor(p))
        view = method.augmentations(Identity(), MARKS)[1](whole, seeded(3))
        assert_law(view.drawn.tolist(), dict(enumerate(p)))
        assert torch.equal(view.x[view.ptr[:-1], 0], 10.0 * (view.drawn + 1))
    few, still = pick(graphs(), IDS), OneOf([Identity(), Identity()])
    for pool in (MARKS, still):
        view = build(second=pool).augmentations(Identity(), pool)[1](few, seeded(0))
        assert_true_batch(view)
        assert torch.cat([part.drawn for part in split(view, [5, 4, 3])]).tolist() == view.drawn.tolist()
        assert "drawn" not in few
        assert "drawn" not in few._slice_dict
    assert torch.equal(view.x, few.x)


@pytest.mark.parametrize("symmetric", [False, True])
def test_losses_of_augmentations_against_a_plain_loop(symmetric):
    """Compute InfoNCE of each anchor, and its mean over the graphs that drew each augmentation."""
    method = build(random2(), MARKS, Loss("infonce", temperature=0.3, symmetric=symmetric))
    total, count = [[0.0] * 2, [0.0] * 3], [[0] * 2, [0] * 3]
    optimiser = torch.optim.SGD(trainable(method), lr=0.0)
    for seed, ids in enumerate([IDS, IDS[3:], [5, 2, 20, 21]]):
        views = views_of(method, ids, seed)
        method(*views)  # only a step counts
        outcome, terms = step(method, optimiser, views), []
        method.after_step()  # and only once
        z1, z2 = normalize(outcome.z1.detach()), normalize(outcome.z2.detach())
        for b in range(len(ids)):
            anchors = []
            for here, there in ((z1, z2), (z2, z1))[: 1 + symmetric]:
                s = (there @ here[b] / 0.3).tolist()
                anchors.append(-s[b] + math.log(sum(math.exp(each) for each in s)))
            terms.append(sum(anchors) / len(anchors))
            for view in (0, 1):
                member = int(views[view].drawn[b])
                total[view][member] += terms[-1]
                count[view][member] += 1
        assert outcome.loss.item() == pytest.approx(sum(terms) / len(terms), rel=1e-9)
    for distribution, sums, numbers in zip(method.distributions, total, count, strict=True):
        assert min(numbers) > 0
        expected = torch.tensor(sums, dtype=torch.float64) / torch.tensor(numbers)
        torch.testing.assert_close(distribution.means(), expected, rtol=1e-10, atol=1e-10)
        assert distribution.draws.tolist() == numbers


# -- the step of the probabilities -------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=5), st.integers(0, 20), st.floats(0, 2), st.floats(0.01, 2))
def test_the_step_of_the_probabilities(weights, count, gamma, step_size):
    """Compare with the formula in the paper, projected by bisection as in the released code.

    A member that was not drawn counts with the mean loss, and an epoch without graphs with the loss 0.
    """
    n, mine = len(weights), Distribution([0.0, *weights[1:]], len(weights)).double()
    drawn = torch.randint(n, (count,), generator=seeded(count))
    loss = torch.rand(count, generator=seeded(1), dtype=torch.float64) * 3
    p = mine.p.tolist()
    mine.add(drawn[:9], loss[:9])
    mine.add(drawn[9:], loss[9:])
    groups = [loss[drawn == i] if (drawn == i).any() else loss for i in range(n)]
    means = [float(group.sum()) / max(len(group), 1) for group in groups]
    b = [p[i] + step_size * (means[i] - gamma * (p[i] - 1 / n)) for i in range(n)]
    low, high = min(b) - 1, max(b)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(each - middle, 0) for each in b) > 1 else (low, middle)
    mine.ascend(gamma, step_size)
    torch.testing.assert_close(mine.p, torch.tensor([max(each - low, 0) for each in b]).double(), rtol=0, atol=1e-6)
    assert mine.losses.tolist() == mine.draws.tolist() == [0] * n


def test_names_weights_and_the_state():
    weighted = OneOf([NodeDrop(0.1), Subgraph(0.1), NodeDrop(0.3)], weights=[1, 3, 0])
    assert build(second=weighted).probabilities() == {"p_node_drop": 0.25, "p_subgraph": 0.75, "p_node_drop_2": 0.0}
    assert [*build(random2(), random2()).probabilities()] == [
        "p1_node_drop",
        "p1_subgraph",
        "p2_node_drop",
        "p2_subgraph",
    ]
    assert names([random2(), Compose([Identity()]), Identity()]) == ["one_of", "compose", "identity"]
    method, other = build(random4(), random2()), build(random4(), random2())
    optimiser = torch.optim.Adam(trainable(method))
    for seed in range(2):
        method.after_epoch()
        step(method, optimiser, views_of(method, seed=seed))
    assert other.probabilities() != method.probabilities()
    other.load_state_dict(reload(method.state_dict()))
    # What is loaded is drawn from, and what had been counted counts.
    assert_same_batch(views_of(other)[1], views_of(method)[1])
    assert method.after_epoch() == other.after_epoch()


# -- one projector per augmentation ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "projectors"),
    [
        (Identity(), OneOf([NodeDrop(), Subgraph(), Identity()]), ([0], [1, 2, 0])),
        (random4(), random4(), ([0, 1, 2, 3], [0, 1, 2, 3])),
        (random4(0.1), random2(0.3), ([0, 1, 2, 3], [4, 5])),
    ],
)
def test_projections_and_gradients_against_a_loop_over_graphs(first, second, projectors):
    method = build(first, second, kind=JOAOv2, encoder=Summed)
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
    same_weights(method, again, gradients=True)


def test_bad_input():
    batch, pool, method = pick(graphs(dtype=torch.float64), IDS), random2(), build()
    for call, line in (
        (lambda: build(second=Compose([pool])),
         r"^method `joao` needs a pool .* got Identity\(\) and Compose\(.*\); make one with"),
        (lambda: build(loss="vicreg", kind=JOAOv2), r"^method `joao_v2` passes `reduction` to the loss, which `vic"),
        (lambda: method(batch, batch), r"^method `joao` needs views that record the drawn .* its `augmentations"),
        (lambda: method.augmentations(pool, pool),
         r"^method `joao` was constructed with the view Identity\(\), got OneOf\("),
    ):  # fmt: skip
        with pytest.raises(InputError, match=line):
            call()
    own = build(loss=lambda z1, z2, reduction: infonce(z1, z2, reduction=reduction))
    torch.testing.assert_close(own(*views_of(own)).loss, method(*views_of(own)).loss)  # a function of the user's
