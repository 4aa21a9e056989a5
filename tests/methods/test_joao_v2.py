"""Test the method `joao_v2`: each graph uses the projector of its augmentation."""

import copy

import pytest
import torch
from torch import nn

from graphcl.augment import AttributeMask, EdgePerturb, Identity, NodeDrop, OneOf, Subgraph, random2, random4, two_views
from graphcl.datasets.resident import ResidentLoader
from graphcl.losses import Loss
from graphcl.methods import JOAO, JOAOv2
from graphcl.training.loop import train
from tests.methods.small import Summed, graphs, make_model, pick, seeded, trainable

IDS = list(range(12))
FIVE = OneOf([NodeDrop(), EdgePerturb(), Subgraph(), AttributeMask(), Identity()])


def build(first, second, loss="infonce", **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return JOAOv2(make_model(encoder=Summed, **options).double(), Loss(loss), first, second).double()


def views_of(method, seed=0):
    return two_views(pick(graphs(dtype=torch.float64), IDS), *method.augmentations(*method._given), seeded(seed))


@pytest.mark.parametrize(
    ("first", "second", "projectors"),
    [
        (Identity(), random4(), ([0], [1, 2, 3, 4])),
        (Identity(), FIVE, ([0], [1, 2, 3, 4, 0])),
        (random4(), random4(), ([0, 1, 2, 3], [0, 1, 2, 3])),
        (random4(0.1), random2(0.3), ([0, 1, 2, 3], [4, 5])),
        (random2(), NodeDrop(), ([0, 1], [0])),
    ],
)
def test_each_different_augmentation_has_a_projector(first, second, projectors):
    method = build(first, second)
    assert tuple(method._numbers) == projectors
    count = 1 + max(max(each) for each in projectors)
    assert len(method.others) == count - 1
    ids = {id(each) for number in range(count) for each in method.projector(number).parameters()}
    assert len(ids) == 4 * count
    assert ids <= {id(each) for each in trainable(method)}
    assert method.projector(0) is method.model.projector
    weights = [method.projector(number)[0].weight for number in range(count)]
    assert not any(torch.equal(a, b) for i, a in enumerate(weights) for b in weights[:i])


@pytest.mark.parametrize(("first", "second"), [(Identity(), FIVE), (random4(0.1), random2(0.3)), (FIVE, Identity())])
def test_projections_and_gradients_against_a_loop_over_graphs(first, second):
    method = build(first, second)
    again = copy.deepcopy(method)
    views = views_of(method)
    outcome = method(*views)
    rows = []
    for number, view in enumerate(views):
        h = again.model.encode(view)
        members = [first, second][number]
        every = members.members if isinstance(members, OneOf) else [members]
        projectors = [again.projector(each) for each in again._numbers[number]]
        assert len(projectors) == len(every)
        drawn = view.drawn.tolist() if isinstance(members, OneOf) else [0] * len(IDS)
        rows.append(torch.stack([projectors[member](row) for member, row in zip(drawn, h, strict=True)]))
    torch.testing.assert_close(outcome.z1, rows[0])
    torch.testing.assert_close(outcome.z2, rows[1])
    outcome.loss.backward()
    Loss("infonce")(*rows).backward()
    for mine, theirs in zip(method.parameters(), again.parameters(), strict=True):
        expected = torch.zeros_like(theirs) if theirs.grad is None else theirs.grad
        torch.testing.assert_close(mine.grad, expected, rtol=1e-9, atol=1e-12)


def test_with_equal_numbers_it_is_joao():
    method = build(Identity(), random4())
    for projector in method.others:
        projector.load_state_dict(method.model.projector.state_dict())
    plain = JOAO(method.model, Loss("infonce"), Identity(), random4()).double()
    views = views_of(method)
    torch.testing.assert_close(method(*views).loss, plain(*views).loss, rtol=1e-12, atol=1e-12)


def test_numbers_are_shaped_as_the_models_own():
    method = build(Identity(), random2(), projection=5, projector="linear")
    assert [(type(each[0]), len(each)) for each in method.others] == [(nn.Linear, 1)] * 2
    assert method(*views_of(method)).z2.shape == (12, 5)


def test_training_moves_every_projector_and_the_probabilities():
    pool = random4()
    method = JOAOv2(make_model(), Loss("adnce"), Identity(), pool)
    before = copy.deepcopy(method.state_dict())
    loader = ResidentLoader(graphs(), 8, shuffle=True, generator=seeded(0))
    history = train(method, loader, Identity(), pool, epochs=2, generator=seeded(1))
    assert sum(history[-1].diagnostics.values()) == pytest.approx(1, abs=1e-6)
    after = method.state_dict()
    still = {key for key, value in after.items() if torch.equal(value, before[key])}
    assert still == {"distributions.0.losses", "distributions.0.draws"}
