"""Test `byol`, `simsiam` and `bgrl`: predictor, detached targets, both directions, momentum encoder."""

import copy
import math

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data

from graphcl.errors import InputError
from graphcl.losses import Loss, byol, infonce, simsiam
from graphcl.methods import BGRL, BYOL, SimSiam
from graphcl.models.interface import make_encoder
from graphcl.models.nodes import NodeModel
from graphcl.training.loop import train
from tests.methods.nodes import node_model, node_views
from tests.methods.small import (
    Summed,
    assert_close_parameters,
    graphs,
    make_model,
    schedule,
    seeded,
    step,
    through_a_file,
    trainable,
    unit_rows,
    views_of,
)

DATA = graphs(dtype=torch.float64)
IDS = list(range(9))


def build(kind, loss, model=None, seed=5, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model or (node_model(projector="none") if kind is BGRL else make_model())
        return kind(model, loss, **options).double()


@pytest.mark.parametrize("kind", [BYOL, SimSiam, BGRL])
@pytest.mark.parametrize("loss", [byol, simsiam, infonce, Loss("adnce")], ids=["byol", "simsiam", "infonce", "adnce"])
def test_value_and_gradient_of_both_directions(kind, loss):
    """The loss is given predictions first and constant targets second."""
    method, views = build(kind, loss), node_views() if kind is BGRL else views_of(DATA, IDS, 1)
    if kind is not SimSiam:  # the momentum encoder must differ from the trained one
        with torch.no_grad():
            for number, each in enumerate(method.momentum_model.parameters()):
                each.add_(0.1 * torch.randn(each.shape, generator=seeded(number), dtype=each.dtype))
    again = copy.deepcopy(method)
    outcome, target = method(*views), getattr(again, "momentum_model", again.model)
    targets, predictions = [target(view).detach() for view in views], [again.predictor(again.model(v)) for v in views]
    expected = (loss(predictions[0], targets[1]) + loss(predictions[1], targets[0])) / 2
    torch.testing.assert_close(outcome.loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close((outcome.z1, outcome.z2), (predictions[0], targets[1]))
    torch.testing.assert_close(outcome.h, again.model.encode(views[0]))
    outcome.loss.backward()
    expected.backward()
    assert_close_parameters(method, again, gradients=True)
    assert all(each.grad.abs().sum() > 0 for each in method.predictor[-1].parameters())
    assert not any(each.requires_grad for each in getattr(method, "momentum_model", nn.Identity()).parameters())


@pytest.mark.parametrize(("kind", "steps"), [(BYOL, 8), (SimSiam, 3)])
def test_steps_against_a_plain_loop(kind, steps):
    """Compare with the algorithm in the paper: prediction, target, Adam, moving average after the step."""
    m, options = 0.8, {"momentum": 0.8} if kind is BYOL else {}
    method = build(kind, Loss("byol"), make_model(encoder=Summed), **options)
    optimiser = torch.optim.Adam(trainable(method), lr=0.02)
    online, predictor = copy.deepcopy(method.model), copy.deepcopy(method.predictor)
    target = copy.deepcopy(method.momentum_model) if kind is BYOL else online
    other = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=0.02)
    for number, ids in enumerate(schedule(len(DATA), 7, steps)):
        views, total = views_of(DATA, ids, number), 0.0
        got = step(method, optimiser, views).loss
        for source, goal in (views, views[::-1]):
            p, t = unit_rows(predictor(online(source))), unit_rows(target(goal).detach())
            total = total + sum(((a - b) ** 2).sum() for a, b in zip(p, t, strict=True)) / len(ids)
        other.zero_grad()
        (total / 2).backward()
        other.step()
        if kind is BYOL:
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.data = m * slow.data + (1 - m) * fast.data
        torch.testing.assert_close(got, total / 2, rtol=1e-9, atol=1e-9)
    assert_close_parameters(method.model, online)
    assert_close_parameters(method.predictor, predictor)
    assert_close_parameters(getattr(method, "momentum_model", online), target)


@pytest.mark.parametrize("kind", [BYOL, SimSiam, BGRL])
@pytest.mark.parametrize("hidden", [None, 3, 11])
def test_the_predictors_width(kind, hidden):
    options = {} if hidden is None else {"hidden_channels": hidden}
    method = build(kind, Loss("byol"), **options)
    layers = [each for each in method.predictor if isinstance(each, nn.Linear)]
    width = method.model.projection
    wanted = hidden or (512 if kind is BGRL else width)
    assert [(each.in_features, each.out_features) for each in layers] == [(width, wanted), (wanted, width)]


def test_bgrls_loss_reaches_the_ends_of_its_range():
    for sign, end in ((1.0, 0.0), (-1.0, 4.0)):
        method, (view, _) = build(BGRL, Loss("byol")), node_views()
        method.predictor = nn.Linear(6, 6, bias=False).double()
        with torch.no_grad():
            method.predictor.weight.copy_(sign * torch.eye(6))
        assert method(view, view).loss.item() == pytest.approx(end, abs=1e-12)


def momenta(method, steps):
    """Return the momentum of each step, read off the distance of a weight of the momentum encoder to the encoder."""
    weight, slow, found = next(method.model.parameters()), next(method.momentum_model.parameters()), []
    for _ in range(steps):
        with torch.no_grad():
            weight.fill_(1.0)
            slow.fill_(0.0)
        method.after_step()
        found.append(1 - slow.flatten()[0].item())
    return found


def test_bgrls_momentum_rises_along_a_cosine_also_after_loading():
    whole = [1 - 0.1 * (math.cos(math.pi * min(k / 4, 1)) + 1) / 2 for k in range(6)]
    first, second = (build(BGRL, Loss("byol"), momentum=0.9, rise=4) for _ in range(2))
    assert momenta(first, 2) == pytest.approx(whole[:2])
    second.load_state_dict(through_a_file(first.state_dict()))
    assert momenta(second, 4) == pytest.approx(whole[2:])
    assert momenta(build(BGRL, Loss("byol"), momentum=0.9), 3) == pytest.approx([0.9] * 3)


@pytest.mark.parametrize("encoder", ["gin", "node_gcn"])
def test_bgrl_on_one_node_gets_one_line(encoder):
    graph = Batch.from_data_list([Data(x=torch.rand(1, 4), edge_index=torch.zeros(2, 0, dtype=torch.long))])
    method = BGRL(NodeModel(make_encoder(encoder, {}, 4, None)), Loss("byol"))
    with pytest.raises(InputError, match=r"needs at least (two rows|2 graphs)"):
        train(method, [graph], "identity", "identity", epochs=1)
