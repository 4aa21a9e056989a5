"""Test the method `simgrace`: the same graphs, encoded by a perturbed encoder."""

import copy
import json
import math

import pytest
import torch
from scipy.stats import kstest
from torch import nn

from graphcl.losses import Loss, infonce
from graphcl.methods import SimGRACE
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.gin import GINE
from graphcl.run import main
from tests.methods.small import graphs, make_model, pick, seeded

IDS = list(range(12))


def batch(dtype=torch.float32):
    return pick(graphs(dtype=dtype), IDS)


def noise_of(method, seed=0):
    """Return the perturbation of each parameter, by its name in the model."""
    own, found = dict(method.model.named_parameters()), method.perturbed(seeded(seed))
    return {name: (found[name] - own[name]).detach() for name in found if name in own}


@pytest.mark.parametrize("eta", [0.1, 1.0, 10.0])
def test_the_law_of_the_perturbation(eta):
    """The noise is normal, with standard deviation eta times that of the tensor's entries (Kolmogorov-Smirnov test)."""
    method = SimGRACE(make_model().double(), Loss("infonce"), eta=eta)
    own = dict(method.model.named_parameters())
    standard = {name: [] for name in noise_of(method)}
    for seed in range(40):
        for name, noise in noise_of(method, seed).items():
            values = own[name].flatten().tolist()
            mean = sum(values) / len(values)
            spread = math.sqrt(sum((each - mean) ** 2 for each in values) / (len(values) - 1))
            if spread == 0:
                assert not noise.any(), name
            else:
                standard[name] += (noise.flatten() / (eta * spread)).tolist()
    spreading = {name: values for name, values in standard.items() if values}
    assert {name for name in own if name.startswith("encoder.") and own[name].std() > 0} == set(spreading)
    assert any("nn.0.weight" in name for name in spreading)
    for name, values in spreading.items():
        assert kstest(values, "norm").pvalue > 1e-6 / len(spreading), name
    # Noise is independent between tensors and between steps.
    first, second = (noise_of(method, seed) for seed in (0, 1))
    a, b = (torch.cat([each.flatten() for each in found.values()]) for found in (first, second))
    assert not torch.equal(a, b)


def test_the_encoder_alone_is_perturbed():
    method = SimGRACE(make_model(), Loss("infonce"))
    assert {name.split(".")[0] for name in noise_of(method)} == {"encoder"}
    changed = {name for name, noise in noise_of(method).items() if noise.any()}
    own = {f"encoder.{name}": each for name, each in method.model.encoder.named_parameters()}
    assert changed == {name for name, each in own.items() if each.std() > 0}


def test_the_projections_against_a_copy_with_those_weights():
    method = SimGRACE(make_model().double(), infonce)
    view = batch(torch.float64)
    outcome = method(view, view, generator=seeded(4))
    twin = make_model().double()
    with torch.no_grad():
        for name, value in method.perturbed(seeded(4)).items():
            dict(twin.named_parameters() if name in dict(twin.named_parameters()) else twin.named_buffers())[
                name
            ].copy_(value)
    plain = make_model().double()
    torch.testing.assert_close(outcome.z1, plain(view))
    torch.testing.assert_close(outcome.z2, twin(view))
    torch.testing.assert_close(outcome.h, make_model().double().encode(view))
    torch.testing.assert_close(outcome.loss, infonce(plain(view), twin(view)))
    assert not torch.allclose(outcome.z1, outcome.z2)


def test_the_encoder_is_left_as_it_was():
    """Weights do not change. Running statistics of BatchNorm change only by the unperturbed pass."""
    model = make_model()
    method, plain, view = SimGRACE(model, Loss("infonce")), copy.deepcopy(model), batch()
    method(view, view, generator=seeded(0))
    plain.encode(view)
    for (name, mine), theirs in zip(model.state_dict().items(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, msg=name)
    assert all(type(each) is nn.Parameter for each in model.parameters())


def test_the_gradient_is_that_of_a_constant_second_side():
    method = SimGRACE(make_model().double(), infonce)
    view, plain = batch(torch.float64), make_model().double()
    outcome = method(view, view, generator=seeded(0))
    assert not outcome.z2.requires_grad
    outcome.loss.backward()
    infonce(plain(view), outcome.z2).backward()
    for mine, theirs in zip(method.model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-9, atol=1e-12)


def test_without_a_perturbation_both_sides_are_one():
    method, view = SimGRACE(make_model(), Loss("infonce"), eta=0.0), batch()
    outcome = method(view, view)
    torch.testing.assert_close(outcome.z1.detach(), outcome.z2)


def test_a_parameter_of_one_number_and_an_encoder_with_edge_attributes():
    class Scaled(GINE):
        def __init__(self):
            super().__init__(4, 2, hidden=8, layers=2)
            self.scale = nn.Parameter(torch.tensor([2.0]))

        def forward(self, *arguments, edge_attr=None, **options):
            return self.scale * super().forward(*arguments, edge_attr=edge_attr, **options)

    data = graphs()
    for graph in data:
        graph.edge_attr = torch.ones(graph.num_edges, 2)
    method = SimGRACE(ContrastiveModel(Scaled()), Loss("infonce"))
    noise = noise_of(method)
    assert noise["encoder.scale"] == 0
    assert all(each.isfinite().all() for each in noise.values())
    assert method(pick(data, IDS), pick(data, IDS)).loss.isfinite()


@pytest.mark.parametrize("words", [[], ["--loss", "dcl", "--views.first", "identity", "--method.eta", "0.1"]])
def test_the_command_line(words, saved_graphs, tmp_path, capsys):
    words = ["--method", "simgrace", "--epochs", "2", "--seeds", "0", "--eval", "knn", "--report", "false", *words]
    words += ["--dataset", saved_graphs(), "--batch-size", "16", "--evaluation.folds", "3"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().err == ""
    config = json.loads((tmp_path / "run" / "result.json").read_text())["config"]
    assert config["views"] == {"first": {"name": "identity"}, "second": {"name": "identity"}}
