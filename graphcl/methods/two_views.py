"""Two views of every graph through one encoder: SimCLR, GraphCL."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.methods.method import LossOfViews, Method, Outcome, need_repulsion
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("two_views")
class TwoViews(Method):
    """Two views of every graph through one encoder and projector (SimCLR, GraphCL).

    Args:
        model: encoder and projector.
        loss: of the two views' projections.
        labels: whether the loss is given the graphs' labels `batch.y`. Only `supcon` takes them, and what is trained
            with labels must be scored on other graphs.

    Raises:
        InputError: a loss that needs labels without `labels=True`, a loss that only pulls together.

    References:
        You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020 (arXiv 2010.13902).
    """

    def __init__(self, model: ContrastiveModel, loss: LossOfViews, *, labels: bool = False) -> None:
        super().__init__(model, loss)
        need_repulsion(self.loss, "two_views")
        if isinstance(self.loss, Loss) and self.loss.accepts("labels") != labels:
            raise InputError(
                f"`labels` is true, but loss `{self.loss.name}` takes none."
                if labels
                else f"loss `{self.loss.name}` trains on labels; if that is meant, pass `labels=True`."
            )
        self._labels = labels

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """See `Method`."""
        h, other = self.model.encode_views(view1, view2)
        z1, z2 = self.model.projector(h), self.model.projector(other)
        value = self.loss(z1, z2, labels=view1.y) if self._labels else self.loss(z1, z2)
        return Outcome(value, h, z1, z2)
