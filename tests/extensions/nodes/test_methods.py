"""Test `grace`, `dgi` and `bgrl`, which contrast nodes, against loops over nodes."""

import math

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data

from graphcl import BGRL, DGI, GRACE
from graphcl.augment import drop_and_mask, two_views
from graphcl.errors import InputError
from graphcl.extensions.nodes.models import NodeModel
from graphcl.losses import Loss
from graphcl.models.interface import make_encoder
from graphcl.training.loop import train
from tests.extensions.nodes.nodes import graph, node_model, node_views
from tests.methods.small import dot, reload, seeded, unit
from tests.methods.test_siamese import equals_a_plain_loop


def grace_by_hand(z1, z2, temperature):
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


def test_graces_loss_of_all_drawn_or_seed_nodes():
    """`nodes_per_step` draws nodes; neighbours sampled by a loader are encoded but not contrasted."""
    model, views, temperature = node_model(), node_views(20), 0.9
    z = [model(view) for view in views]
    loss = Loss("nt_xent", temperature=temperature)
    drawn = torch.randperm(20, generator=seeded(3))[:7]
    for arguments, rows in (({}, slice(None)), ({"nodes_per_step": 20}, slice(None)), ({"nodes_per_step": 7}, drawn)):
        outcome = GRACE(model, loss, **arguments)(*views, generator=seeded(3))
        assert outcome.loss.item() == pytest.approx(grace_by_hand(z[0][rows], z[1][rows], temperature), rel=1e-12)
        torch.testing.assert_close(outcome.z2, z[1][rows])
    for view in views:
        view.num_seeds = 7
    outcome = GRACE(model, loss)(*views)
    assert outcome.h.shape == (7, 6)
    assert outcome.loss.item() == pytest.approx(grace_by_hand(z[0][:7], z[1][:7], temperature), rel=1e-12)
    batch = graph(20)
    batch.num_seeds = 7
    views = two_views(batch, drop_and_mask(0.2, 0.2), drop_and_mask(0.3, 0.3), seeded(0))
    assert [view.num_seeds for view in views] == [7, 7]


def build_dgi(seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return DGI(node_model(projector="none"), Loss("jsd")).double()


def test_dgis_loss_is_the_papers_and_near_log_2_before_training():
    method, view = build_dgi(), graph()
    before = view.x.clone()
    got = method(view, view, generator=seeded(1)).loss.item()
    assert torch.equal(view.x, before)
    corrupted = view.clone()
    corrupted.x = view.x[torch.randperm(12, generator=seeded(1))]
    h, other = (method.model.encode(each).tolist() for each in (view, corrupted))
    summary = [1 / (1 + math.exp(-sum(row[k] for row in h) / 12)) for k in range(6)]
    direction = [dot(row, summary) for row in method.discriminator.tolist()]
    terms = [math.log1p(math.exp(-dot(row, direction))) for row in h]
    terms += [math.log1p(math.exp(dot(row, direction))) for row in other]
    assert got == pytest.approx(sum(terms) / 24, rel=1e-12)
    view = graph(200)
    values = [build_dgi(seed)(view, view, generator=seeded(seed)).loss.item() for seed in range(5)]
    assert values == pytest.approx([math.log(2)] * 5, abs=0.05)


def build_bgrl(**options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return BGRL(node_model(projector="none"), Loss("byol"), **options).double()


def test_steps_of_bgrl_against_a_plain_loop():
    equals_a_plain_loop(build_bgrl(momentum=0.8), lambda _, number: node_views(seed=number))


def test_the_width_of_bgrls_predictor():
    for options, width in (({}, 512), ({"hidden_channels": 3}, 3)):
        layers = [layer for layer in build_bgrl(**options).predictor if isinstance(layer, nn.Linear)]
        assert [(layer.in_features, layer.out_features) for layer in layers] == [(6, width), (width, 6)]


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
    first, second = (build_bgrl(momentum=0.9, rise=4) for _ in range(2))
    assert momenta(first, 2) == pytest.approx(whole[:2])
    second.load_state_dict(reload(first.state_dict()))
    assert momenta(second, 4) == pytest.approx(whole[2:])
    assert momenta(build_bgrl(momentum=0.9), 3) == pytest.approx([0.9] * 3)


def test_bgrl_on_one_node_gets_one_line():
    graph = Batch.from_data_list([Data(x=torch.rand(1, 4), edge_index=torch.zeros(2, 0, dtype=torch.long))])
    for encoder in ("gin", "node_gcn"):
        method = BGRL(NodeModel(make_encoder(encoder, {}, 4, None)), Loss("byol"))
        with pytest.raises(InputError, match=r"needs at least (two rows|2 graphs)"):
            train(method, [graph], "identity", "identity", epochs=1)
