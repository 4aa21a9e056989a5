"""Test that the optimiser takes the steps of `torch.optim` bit by bit."""

import copy
import io

import pytest
import torch
from torch import nn

from graphcl.training.optimiser import Optimiser
from graphcl.training.settings import TrainingSettings

KINDS = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": lambda *args, **settings: torch.optim.SGD(*args, momentum=0.9, **settings),
}


def saved_and_loaded(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)


@pytest.mark.parametrize("name", KINDS)
def test_it_takes_the_steps_of_torch(name):
    """One step lacks a gradient, and the state is saved and loaded, also into an optimiser of torch."""
    ours = [nn.Parameter(torch.randn(shape)) for shape in ((5, 3), (5,), ())]
    theirs = copy.deepcopy(ours)
    settings = TrainingSettings(optimizer=name, lr=0.1, weight_decay=0.01)
    optimiser = Optimiser(settings, ours)
    groups = [{"params": theirs[:2]}, {"params": theirs[2:], "weight_decay": 0.0}]
    usual = KINDS[name](groups, lr=0.1, weight_decay=0.01, fused=True)
    for step in range(12):
        for group, other in zip(optimiser.torch.param_groups, usual.param_groups, strict=True):
            group["lr"] = other["lr"] = 0.1 / (step + 1)
        optimiser.zero_grad()
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            gradient = None if (step, number) in ((3, 1), (4, 0)) else torch.randn(a.shape)
            a.grad, b.grad = gradient, None if gradient is None else gradient.clone()
        optimiser.step()
        usual.step()
        assert all(map(torch.equal, ours, theirs)), step
        if step == 6:
            optimiser, before = Optimiser(settings, ours), optimiser
            optimiser.load_state_dict(saved_and_loaded(before.torch.state_dict()))
        if step == 9:
            usual.load_state_dict(saved_and_loaded(optimiser.torch.state_dict()))
