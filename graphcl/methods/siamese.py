"""The methods SimSiam and BYOL, which predict the projection of the other view and need no negatives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import Channels, Fraction
from graphcl.methods.method import LossOfViews, Method, Outcome, ema_update, momentum_copy, weight_of
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("simsiam", pairs="weight towers")
class SimSiam(Method):
    """SimSiam: predict the same encoder's projection of the other view, with a stopped gradient.

    Args:
        model: encoder and projector.
        loss: loss of predictions and targets, such as `simsiam`.
        hidden_channels: width of the predictor's hidden layer; that of the projection by default.

    References:
        Chen and He, "Exploring Simple Siamese Representation Learning", CVPR 2021 (arXiv 2011.10566).
    """

    in_pieces = capturable = True

    def __init__(self, model: ContrastiveModel, loss: LossOfViews, *, hidden_channels: Channels | None = None) -> None:
        super().__init__(model, loss)
        width, hidden = model.projection, hidden_channels or model.projection
        self.predictor = nn.Sequential(
            nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, width)
        )

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the mean loss of both directions, see `Method`."""
        h, z1, z2 = self.model.project_views(view1, view2)
        target1, target2 = self._targets(view1, view2, z1, z2)
        there, back = self.predictor(z1), self.predictor(z2)
        others: dict[str, Any] = weight_of(view1) | self.draws(generator)
        value = (self.loss(there, target2, **others) + self.loss(back, target1, **others)) / 2
        return Outcome(value, h, there, target2)

    def _targets(self, view1: Batch, view2: Batch, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
        return z1.detach(), z2.detach()


@methods.register("byol", pairs="weight towers")
class BYOL(SimSiam):
    r"""BYOL: predict the momentum encoder's projection of the other view.

    $$\xi \leftarrow m\, \xi + (1 - m)\, \theta$$

    This update is made after every step. Here xi are the parameters of the momentum encoder and theta those of
    the model.

    Differs: the paper raises m from 0.996 to 1 during training and adds the losses of both directions; here m is
    constant, and the losses are averaged.

    Args:
        model: encoder and projector.
        loss: loss of predictions and targets, such as `byol`.
        momentum: momentum m, in [0, 1].
        hidden_channels: width of the predictor's hidden layer; that of the projection by default.

    References:
        Grill et al., "Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning", NeurIPS 2020 (arXiv
        2006.07733).
    """

    def __init__(
        self,
        model: ContrastiveModel,
        loss: LossOfViews,
        *,
        momentum: Fraction = 0.99,
        hidden_channels: Channels | None = None,
    ) -> None:
        super().__init__(model, loss, hidden_channels=hidden_channels)
        self.momentum = momentum
        self.momentum_model = momentum_copy(model)

    @torch.no_grad()
    def _targets(self, view1: Batch, view2: Batch, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
        return self.momentum_model(view1), self.momentum_model.role("target")(view2)

    def after_step(self) -> None:
        """Update the momentum encoder."""
        ema_update(self.momentum_model, self.model, self.momentum)
