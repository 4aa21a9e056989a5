"""Test `simgrace`: the same graphs, encoded by a perturbed encoder."""

import copy

import torch
from scipy.stats import kstest
from torch import nn

from graphcl.losses import Loss, infonce
from graphcl.methods import SimGRACE
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.gin import GINE
from tests.methods.small import assert_close_parameters, graphs, make_model, pick, seeded

IDS = list(range(12))


def test_the_perturbation_is_the_papers():
    """The noise of a tensor is eta times the deviation of its n entries, with n - 1 below, times a normal draw."""
    for eta in (0.1, 10.0):
        method = SimGRACE(make_model().double(), Loss("infonce"), eta=eta)
        own, draws = dict(method.model.encoder.named_parameters()), []
        total = sum(each.numel() for each in own.values())
        for seed in range(20):
            found, normal = method.perturbed(seeded(seed)), torch.randn(total, generator=seeded(seed)).double()
            assert {key.split(".")[0] for key in found} == {"encoder"}
            normal = torch.randn(total, generator=seeded(seed), dtype=torch.float64)
            for (name, each), eps in zip(own.items(), normal.split([w.numel() for w in own.values()]), strict=True):
                deviation = ((each - each.mean()).square().sum() / max(each.numel() - 1, 1)).sqrt()
                expected = each + eta * deviation * eps.view_as(each)
                torch.testing.assert_close(found[f"encoder.{name}"], expected.detach(), rtol=1e-9, atol=1e-12)
            draws += normal.tolist()
        assert kstest(draws, "norm").pvalue > 1e-6


def test_value_gradient_and_state_against_a_copy_with_those_weights():
    """The second side has no gradient. BatchNorm's running statistics change only by the unperturbed pass."""
    method, view = SimGRACE(make_model().double(), infonce), pick(graphs(dtype=torch.float64), IDS)
    plain, twin = copy.deepcopy(method.model), copy.deepcopy(method.model)
    twin.load_state_dict(twin.state_dict() | method.perturbed(seeded(4)))
    outcome, other = method(view, view, generator=seeded(4)), twin(view).detach()
    expected = infonce(plain(view), other)
    torch.testing.assert_close(outcome.z2, other)
    torch.testing.assert_close(outcome.loss, expected)
    assert not torch.allclose(outcome.z1, outcome.z2)
    outcome.loss.backward()
    expected.backward()
    assert_close_parameters(method.model, plain, gradients=True)
    for (name, mine), theirs in zip(method.model.state_dict().items(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, msg=name)
    assert all(type(each) is nn.Parameter for each in method.model.parameters())
    still = SimGRACE(make_model().double(), infonce, eta=0.0)(view, view)
    torch.testing.assert_close(still.z1.detach(), still.z2)


def test_a_parameter_of_one_number_and_an_encoder_with_edge_attributes():
    class Scaled(GINE):
        def __init__(self):
            super().__init__(4, 2, hidden_channels=8, num_layers=2)
            self.scale = nn.Parameter(torch.tensor([2.0]))

        def forward(self, *arguments, edge_attr=None, **options):
            return self.scale * super().forward(*arguments, edge_attr=edge_attr, **options)

    data = graphs()
    for graph in data:
        graph.edge_attr = torch.ones(graph.num_edges, 2)
    method = SimGRACE(ContrastiveModel(Scaled()), Loss("infonce"))
    found = method.perturbed(seeded(0))
    assert found["encoder.scale"] == 2
    assert all(each.isfinite().all() for each in found.values())
    assert method(pick(data, IDS), pick(data, IDS)).loss.isfinite()
