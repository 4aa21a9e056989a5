"""Test `byol`, `simsiam` and `bgrl`: predictor, detached targets, both directions, momentum encoder."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize
from torch_geometric.data import Batch, Data

from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.methods import BGRL, BYOL, SimSiam
from graphcl.models.interface import make_encoder
from graphcl.models.nodes import NodeModel
from graphcl.training.loop import train
from tests.methods.nodes import node_model, node_views
from tests.methods.small import Summed, graphs, make_model, reload, same_weights, schedule, step, trainable, views_of

DATA = graphs(dtype=torch.float64)


def build(kind, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = node_model(projector="none") if kind is BGRL else make_model(encoder=Summed)
        return kind(model, Loss("byol"), **options).double()


@pytest.mark.parametrize("kind", [BYOL, SimSiam, BGRL])
def test_steps_against_a_plain_loop(kind):
    """Compare with the algorithm in the papers: prediction, target, Adam, moving average after the step."""
    m, options = 0.8, {} if kind is SimSiam else {"momentum": 0.8}
    method = build(kind, **options)
    optimiser = torch.optim.Adam(trainable(method), lr=0.02)
    online, predictor = copy.deepcopy(method.model), copy.deepcopy(method.predictor)
    target = online if kind is SimSiam else copy.deepcopy(method.momentum_model)
    other = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=0.02)
    for number, ids in enumerate(schedule(len(DATA), 7, 5)):
        views, total = node_views(seed=number) if kind is BGRL else views_of(DATA, ids, number), 0.0
        got = step(method, optimiser, views)
        for source, goal in (views, views[::-1]):
            p, t = normalize(predictor(online(source))), normalize(target(goal).detach())
            total = total + sum(((a - b) ** 2).sum() for a, b in zip(p, t, strict=True)) / len(p)
        torch.testing.assert_close(normalize(got.z1), normalize(predictor(online(views[0]))))
        torch.testing.assert_close(got.z2, target(views[1]))
        other.zero_grad()
        (total / 2).backward()
        other.step()
        if kind is not SimSiam:
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.data = m * slow.data + (1 - m) * fast.data
        torch.testing.assert_close(got.loss, total / 2, rtol=1e-9, atol=1e-9)
    same_weights(method.model, online)
    same_weights(method.predictor, predictor)
    same_weights(getattr(method, "momentum_model", online), target)


def test_the_targets_of_any_loss_get_no_gradient():
    method, views = build(SimSiam), views_of(DATA, list(range(9)), 1)
    method.loss = Loss("adnce")  # unlike `byol`, it does not detach its second argument
    again = copy.deepcopy(method)
    z1, z2 = (again.model(view) for view in views)
    expected = (again.loss(again.predictor(z1), z2.detach()) + again.loss(again.predictor(z2), z1.detach())) / 2
    method(*views).loss.backward()
    expected.backward()
    same_weights(method, again, gradients=True)


def test_the_predictors_width():
    for kind, hidden in ((BYOL, None), (SimSiam, None), (BGRL, None), (BYOL, 3), (SimSiam, 3), (BGRL, 3)):
        method = build(kind, **({} if hidden is None else {"hidden_channels": hidden}))
        layers = [each for each in method.predictor if isinstance(each, nn.Linear)]
        width = method.model.projection
        wanted = hidden or (512 if kind is BGRL else width)
        assert [(each.in_features, each.out_features) for each in layers] == [(width, wanted), (wanted, width)]


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
    first, second = (build(BGRL, momentum=0.9, rise=4) for _ in range(2))
    assert momenta(first, 2) == pytest.approx(whole[:2])
    second.load_state_dict(reload(first.state_dict()))
    assert momenta(second, 4) == pytest.approx(whole[2:])
    assert momenta(build(BGRL, momentum=0.9), 3) == pytest.approx([0.9] * 3)


def test_bgrl_on_one_node_gets_one_line():
    graph = Batch.from_data_list([Data(x=torch.rand(1, 4), edge_index=torch.zeros(2, 0, dtype=torch.long))])
    for encoder in ("gin", "node_gcn"):
        method = BGRL(NodeModel(make_encoder(encoder, {}, 4, None)), Loss("byol"))
        with pytest.raises(InputError, match=r"needs at least (two rows|2 graphs)"):
            train(method, [graph], "identity", "identity", epochs=1)
