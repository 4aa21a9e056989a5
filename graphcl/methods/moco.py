"""MoCo, momentum contrast: negatives from a queue of a momentum encoder's keys (He et al. 2020)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import Fraction, interval
from graphcl.distributed import ranks
from graphcl.losses.engine.pairs import normalize
from graphcl.methods.method import LossOfViews, Method, Outcome, ema_update, momentum_copy, require_arguments
from graphcl.methods.queue import KeyQueue
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods

Size = Annotated[int, interval("[0, 1e7]")]


@methods.register("moco")
class MoCo(Method):
    r"""MoCo: contrast queries of one view with a momentum encoder's keys of the other view and a queue of earlier keys.

    $$\theta_k \leftarrow m\, \theta_k + (1 - m)\, \theta_q$$

    Here theta_q are the parameters of the model and theta_k those of the momentum encoder. Each step updates the
    momentum encoder, computes the keys (without gradient) and the loss, takes the optimiser step, and then appends the
    keys to the queue. Any loss with an argument `queue` fits. A symmetric loss also compares queries of the second
    view with keys of the first, at twice the cost. If the loader gives the graphs' indices, as ResidentLoader and
    make_loader do, an anchor's negatives exclude keys of its own graph.

    Across ranks, the keys of all ranks are appended in rank order, so that the queue is the same on every rank.

    MoCo v1 has a linear projector and temperature 0.07: `projector: linear`, `loss: moco`. MoCo v2 has this library's
    default projector and `--loss.temperature 0.2`.

    Differs: keys are not shuffled across devices for BatchNorm. The queue is initially empty instead of random.

    Args:
        model: encoder and projector that compute the queries.
        loss: loss of queries, keys and the queue.
        momentum: momentum m, in [0, 1].
        queue_size: capacity of the queue, >= 0.

    Raises:
        InputError: the loss takes no `queue`.

    References:
        He et al., "Momentum Contrast for Unsupervised Visual Representation Learning", CVPR 2020 (arXiv 1911.05722).
        Chen et al., "Improved Baselines with Momentum Contrastive Learning", 2020 (arXiv 2003.04297).
    """

    def __init__(
        self, model: ContrastiveModel, loss: LossOfViews, *, momentum: Fraction = 0.999, queue_size: Size = 4096
    ) -> None:
        super().__init__(model, loss)
        require_arguments(self.loss, ("queue", "symmetric"), "moco")
        self.momentum = momentum
        self.momentum_model = momentum_copy(model)
        self.queue = KeyQueue(queue_size, model.projection)
        self._new: list[tuple[Tensor, Tensor | None]] = []

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the loss of a batch, see `Method`."""
        if self.training:
            ema_update(self.momentum_model, self.model, self.momentum)
        h = self.model.encode(view1)
        query1, key2 = self.model.projector(h), self._key(view2)
        value = self._compare(query1, key2, ids)
        self._new = [(key2, ids)]
        if self.setting("symmetric", False):
            query2, key1 = self.model(view2), self._key(view1)
            value = (value + self._compare(query2, key1, ids)) / 2
            self._new.append((key1, ids))
        return Outcome(value, h, query1, key2)

    def after_step(self) -> None:
        """Append the keys of the last batch to the queue."""
        for keys, ids in self._new:
            self.queue.add(ranks.gather(normalize(keys)), None if ids is None else ranks.gather(ids))
        self._new = []

    @torch.no_grad()
    def _key(self, view: Batch) -> Tensor:
        key: Tensor = self.momentum_model(view)
        return key

    def _compare(self, query: Tensor, key: Tensor, ids: Tensor | None) -> Tensor:
        known = {} if ids is None or not len(self.queue) else {"ids": ids, "queue_ids": self.queue.ids}
        value: Tensor = self.loss(query, key, queue=self.queue.keys, symmetric=False, **known)
        return value
