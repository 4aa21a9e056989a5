"""Test the method `bgrl`: its formula, its range, and the momentum's rise."""

import math

import pytest
import torch
from torch_geometric.data import Batch, Data

from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.methods import BGRL
from graphcl.models.interface import make_encoder
from graphcl.models.nodes import NodeModel
from graphcl.training.loop import train
from tests.methods.nodes import node_model, node_views
from tests.methods.small import dot, through_a_file, unit


def build(**options):
    return BGRL(node_model(projector="none"), Loss("byol"), hidden=8, **options).double()


def by_hand(method, view1, view2):
    total = 0.0
    for one, other in ((view1, view2), (view2, view1)):
        predicted = method.predictor(method.model.encode(one))
        target = method.momentum_model.encode(other)
        n = len(target)
        total += sum(2 - 2 * dot(unit(p), unit(t)) for p, t in zip(predicted, target, strict=True)) / n
    return total / 2


def test_the_loss_is_the_papers():
    method, views = build(), node_views()
    loss = method(*views).loss
    assert loss.item() == pytest.approx(by_hand(method, *views), rel=1e-12)
    assert 0 <= loss.item() <= 4


def test_perfect_and_opposite_predictions_reach_the_ends_of_the_range():
    for sign, end in ((1.0, 0.0), (-1.0, 4.0)):
        method, (view, _) = build(), node_views()
        method.predictor = torch.nn.Linear(6, 6, bias=False).double()
        with torch.no_grad():
            method.predictor.weight.copy_(sign * torch.eye(6))
        assert method(view, view).loss.item() == pytest.approx(end, abs=1e-12)


def momenta(method, steps):
    """Return the momentum of each step, read off the distance of a weight of the momentum encoder to the encoder."""
    weight, slow = next(method.model.parameters()), next(method.momentum_model.parameters())
    found = []
    for _ in range(steps):
        with torch.no_grad():
            weight.fill_(1.0)
            slow.fill_(0.0)
        method.after_step()
        found.append(1 - slow.flatten()[0].item())
    return found


def test_the_momentum_rises_along_a_cosine():
    expected = [1 - 0.1 * (math.cos(math.pi * min(k / 4, 1)) + 1) / 2 for k in range(6)]
    assert momenta(build(momentum=0.9, rise=4), 6) == pytest.approx(expected)
    assert momenta(build(momentum=0.9), 3) == pytest.approx([0.9] * 3)


def test_the_rise_goes_on_after_loading():
    first, second = build(momentum=0.9, rise=4), build(momentum=0.9, rise=4)
    whole = momenta(first, 4)
    again = build(momentum=0.9, rise=4)
    assert momenta(again, 2) == pytest.approx(whole[:2])
    second.load_state_dict(through_a_file(again.state_dict()))
    assert momenta(second, 2) == pytest.approx(whole[2:])


@pytest.mark.parametrize("encoder", ["gin", "node_gcn"])
def test_one_node_gets_one_line(encoder):
    graph = Batch.from_data_list([Data(x=torch.rand(1, 4), edge_index=torch.zeros(2, 0, dtype=torch.long))])
    method = BGRL(NodeModel(make_encoder(encoder, {}, 4, None)), Loss("byol"))
    with pytest.raises(InputError, match=r"needs at least (two rows|2 graphs)"):
        train(method, [graph], "identity", "identity", epochs=1)
