"""Test the method `grace` against a loop over nodes, its draw of nodes, and every loss that can take its pairs."""

import math

import pytest
import torch

from graphcl.augment import drop_and_mask, two_views
from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.methods import GRACE
from graphcl.registry import losses
from tests.methods.nodes import graph, node_model, node_views
from tests.methods.small import dot, seeded, unit

OTHER_METHODS = ("byol", "simsiam")
"""Losses without negatives, which `grace` refuses."""
EXTERNAL = [name for name in losses if losses.facts(name)["method"] in ("moco", "memory_bank")]
"""Losses whose negatives come from a queue or a bank."""
TAKEN = [name for name in losses if name not in (*OTHER_METHODS, *EXTERNAL, "supcon")]


def by_hand(z1, z2, temperature):
    """Return Eq. 2 of the paper: cross-view and intra-view negatives, both views as anchors."""
    u, v = ([unit(row) for row in z] for z in (z1, z2))
    n, total = len(u), 0.0
    for one, other in ((u, v), (v, u)):
        for i in range(n):
            positive = math.exp(dot(one[i], other[i]) / temperature)
            cross = sum(math.exp(dot(one[i], other[k]) / temperature) for k in range(n) if k != i)
            intra = sum(math.exp(dot(one[i], one[k]) / temperature) for k in range(n) if k != i)
            total -= math.log(positive / (positive + cross + intra))
    return total / (2 * n)


@pytest.mark.parametrize("temperature", [0.2, 0.9])
def test_the_loss_is_the_papers(temperature):
    model, views = node_model(), node_views()
    outcome = GRACE(model, Loss("nt_xent", temperature=temperature))(*views)
    z1, z2 = model(views[0]), model(views[1])
    assert z1.shape == (12, 6)
    assert outcome.loss.item() == pytest.approx(by_hand(z1, z2, temperature), rel=1e-12)


@pytest.mark.parametrize("name", TAKEN)
def test_every_loss_of_two_views_trains_nodes(name):
    method = GRACE(node_model(), Loss(name))
    outcome = method(*node_views())
    outcome.loss.backward()
    assert outcome.loss.isfinite()
    weights = [each.grad for each in method.model.encoder.parameters()]
    assert all(each is not None and each.isfinite().all() for each in weights)
    assert any(each.abs().sum() > 0 for each in weights)


@pytest.mark.parametrize("name", OTHER_METHODS)
def test_a_loss_without_negatives_is_refused(name):
    with pytest.raises(InputError, match=rf"^loss `{name}` pushes nothing apart, so with method `grace`"):
        GRACE(node_model(), Loss(name))


def test_a_step_contrasts_the_drawn_nodes_only():
    model, views = node_model(), node_views(20)
    method = GRACE(model, Loss("nt_xent"), nodes_per_step=7)
    outcome = method(*views, generator=seeded(3))
    drawn = torch.randperm(20, generator=seeded(3))[:7]
    z1, z2 = model(views[0])[drawn], model(views[1])[drawn]
    assert outcome.loss.item() == pytest.approx(by_hand(z1, z2, 0.2), rel=1e-12)
    assert method(*views, generator=seeded(4)).loss != outcome.loss


def test_all_nodes_are_contrasted_if_there_are_no_more():
    model, views = node_model(), node_views()
    sampled, whole = GRACE(model, "nt_xent", nodes_per_step=12), GRACE(model, "nt_xent")
    assert torch.equal(sampled(*views).loss, whole(*views).loss)


def test_sampled_neighbours_are_encoded_but_not_contrasted():
    model, views = node_model(), [*node_views(20)]
    whole = [model(view)[:7] for view in views]
    for view in views:
        view.num_seeds = 7
    outcome = GRACE(model, Loss("nt_xent"))(*views)
    assert outcome.h.shape == (7, 6)
    assert outcome.loss.item() == pytest.approx(by_hand(*whole, 0.2), rel=1e-12)


def test_views_keep_the_number_of_seeds():
    batch = graph(20)
    batch.num_seeds = 7
    views = two_views(batch, drop_and_mask(0.2, 0.2), drop_and_mask(0.3, 0.3), seeded(0))
    assert [view.num_seeds for view in views] == [7, 7]
