"""Projectors: layers between the embedding and the loss. They are discarded after training."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

from torch import Tensor, nn

from graphcl.arguments import ProjectorName
from graphcl.errors import InputError
from graphcl.models.encoder import initialise
from graphcl.models.perceptron import Perceptron


def make_projector(width: int, out: int, form: ProjectorName = "mlp") -> nn.Module:
    """Return a new projector, with Xavier-initialised weights and zero biases unless `form` is `elu`.

    The input and the hidden layers have `width` columns, the output `out`. The form is `mlp` (Linear, ReLU, Linear),
    `elu` (Linear, ELU, Linear, with PyTorch's initial weights, as in GRACE), `linear` (one layer, as in MoCo v1),
    `residual` (three blocks of Linear and ReLU, plus a linear shortcut, as in InfoGraph) or `none` (the identity, as in
    BGRL and DGI). An unknown form, or `none` for unequal widths, raises InputError.
    """
    if form not in get_args(ProjectorName):
        raise InputError(f"`projector` must be 'mlp', 'elu', 'linear', 'residual' or 'none', got {form!r}.")
    if form == "none":
        if width != out:
            raise InputError(f"`projection` must be the encoder's width {width} with projector none, got {out}.")
        return nn.Identity()
    if form == "elu":
        return nn.Sequential(nn.Linear(width, width), nn.ELU(), nn.Linear(width, out))
    if form == "residual":
        return initialise(_Residual(width, out))
    return initialise(Perceptron(width, width, out) if form == "mlp" else nn.Sequential(nn.Linear(width, out)))


class _Residual(nn.Module):
    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        layers = [[nn.Linear(a, b), nn.ReLU()] for a, b in pairwise([width, width, width, out])]
        self.block = nn.Sequential(*(each for layer in layers for each in layer))
        self.shortcut = nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x) + self.shortcut(x)
