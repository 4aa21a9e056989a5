"""The method of SimCLR and GraphCL: two views of every graph through one encoder."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.methods.method import LossOfViews, Method, Outcome, require_ids, weight_of
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("two_views", repels="yes", pairs="weight negatives towers")
class TwoViews(Method):
    """The method of SimCLR and GraphCL: contrast two views of every graph, encoded by one encoder and projector.

    Args:
        model: encoder and projector.
        loss: loss of the two views' projections.
        labels: whether to pass the graphs' labels `batch.y` to the loss, for `supcon` only; do not evaluate such a
            model on its training graphs. With "ids", pass the groups or queries of pairs instead, see
            `EpochPairs` and `ListedPairs`.

    Raises:
        InputError: the loss needs labels and `labels` is False, or the reverse; the loss has no negatives.

    References:
        You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020 (arXiv 2010.13902).
    """

    in_pieces = capturable = True

    def __init__(
        self, model: ContrastiveModel, loss: LossOfViews, *, labels: Literal[False, True, "ids"] = False
    ) -> None:
        super().__init__(model, loss)
        if isinstance(self.loss, Loss) and self.loss.accepts("labels") != bool(labels):
            if labels:
                raise InputError(f"`labels` is true, but loss `{self.loss.name}` takes no labels.")
            raise InputError(f"loss `{self.loss.name}` trains on labels; to allow this, pass `labels=True`.")
        self._labels = labels

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the loss of a batch, see `Method`.

        Graphs of the second view beyond the number of the first view are negatives of all anchors. The attribute
        `pair_weight` of the first view, `[B]`, weights the pairs; see `ListedPairs` for both.
        """
        h, z1, z2 = self.model.project_views(view1, view2)
        others: dict[str, Any] = weight_of(view1) | self.draws(generator)
        if len(z2) > len(z1):  # known negatives
            z2, others["queue"] = z2[: len(z1)], z2[len(z1) :]
        if self._labels:
            others["labels"] = require_ids(ids, "two_views") if self._labels == "ids" else view1.y
        return Outcome(self.loss(z1, z2, **others), h, z1, z2)
