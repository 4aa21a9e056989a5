"""Methods that predict the other view instead of pushing graphs apart: BYOL and SimSiam."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import Count, Fraction
from graphcl.methods.method import LossOfViews, Method, Outcome, follow, slow_copy
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


class _Siamese(Method):
    """A predictor on top of the projector, and targets that are constants to the gradient."""

    def __init__(self, model: ContrastiveModel, loss: LossOfViews, hidden: int | None) -> None:
        super().__init__(model, loss)
        width = model.projection
        self.predictor = nn.Sequential(
            nn.Linear(width, hidden or width),
            nn.BatchNorm1d(hidden or width),
            nn.ReLU(),
            nn.Linear(hidden or width, width),
        )

    def _targets(self, view1: Batch, view2: Batch, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """See `Method`; both directions, as in the papers."""
        h, other = self.model.encode_views(view1, view2)
        z1, z2 = self.model.projector(h), self.model.projector(other)
        target1, target2 = self._targets(view1, view2, z1, z2)
        there, back = self.predictor(z1), self.predictor(z2)
        value = (self.loss(there, target2) + self.loss(back, target1)) / 2
        return Outcome(value, h, there, target2)


@methods.register("byol")
class BYOL(_Siamese):
    r"""BYOL: a predictor of the slow encoder's projection of the other view.

    $$\xi \leftarrow m\, \xi + (1 - m)\, \theta$$

    for the slow encoder after every step.

    Differs: the paper raises m from 0.996 to 1 over the training, here it stays what it is; it sums the two directions,
    here they are averaged.

    Args:
        model: encoder and projector.
        loss: of predictions and targets; `byol`, or any other.
        momentum: m, in [0, 1].
        hidden: width of the predictor's hidden layer; the projection's by default.

    References:
        Grill et al., "Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning", NeurIPS 2020 (arXiv
        2006.07733).
    """

    def __init__(
        self, model: ContrastiveModel, loss: LossOfViews, *, momentum: Fraction = 0.99, hidden: Count | None = None
    ) -> None:
        super().__init__(model, loss, hidden)
        self.momentum = momentum
        self.slow = slow_copy(model)

    @torch.no_grad()
    def _targets(self, view1: Batch, view2: Batch, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
        return self.slow(view1), self.slow(view2)

    def after_step(self) -> None:
        """The slow encoder follows."""
        follow(self.slow, self.model, self.momentum)


@methods.register("simsiam")
class SimSiam(_Siamese):
    """SimSiam: a predictor of the same encoder's projection of the other view, taken as a constant.

    Args:
        model: encoder and projector.
        loss: of predictions and targets; `simsiam`, or any other.
        hidden: width of the predictor's hidden layer; the projection's by default.

    References:
        Chen and He, "Exploring Simple Siamese Representation Learning", CVPR 2021 (arXiv 2011.10566).
    """

    def __init__(self, model: ContrastiveModel, loss: LossOfViews, *, hidden: Count | None = None) -> None:
        super().__init__(model, loss, hidden)

    def _targets(self, view1: Batch, view2: Batch, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
        return z1.detach(), z2.detach()
