"""Momentum contrast: a slow encoder makes keys, and a queue keeps them as negatives (He et al. 2020)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import Fraction, interval
from graphcl.distributed import ranks
from graphcl.losses.engine.pairs import normalize
from graphcl.methods.method import LossOfViews, Method, Outcome, follow, need, slow_copy
from graphcl.methods.queue import KeyQueue
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods

Size = Annotated[int, interval("[0, inf)")]


@methods.register("moco")
class MoCo(Method):
    r"""MoCo: queries of one view against keys of the other from a slow encoder, and a queue of earlier keys.

    $$\theta_k \leftarrow m\, \theta_k + (1 - m)\, \theta_q$$

    In this order: the slow encoder follows, keys are made without a gradient, the loss, the optimiser's step, and then
    the keys join the queue. Any loss with an argument `queue` fits; a key of an anchor's own graph, of an earlier
    epoch, is no negative of it (a queue may well be longer than a small data set), where the loader tells which graphs
    a batch holds: ResidentLoader and make_loader do. A symmetric loss takes queries of both views, at twice the price.

    Across ranks the keys of all join the queue, in the order of ranks, so that it is the same on each.

    MoCo v1 has a linear head and temperature 0.07: `head: linear`, `loss: moco`. v2 has this library's default head and
    `--loss.temperature 0.2`.

    Differs: keys are not shuffled across devices for BatchNorm; the queue starts empty, not with noise.

    Args:
        model: encoder and projector, the queries'.
        loss: of queries, keys and queue.
        momentum: m, in [0, 1].
        queue_size: keys at most, >= 0.

    Raises:
        InputError: a loss without external negatives.

    References:
        He et al., "Momentum Contrast for Unsupervised Visual Representation Learning", CVPR 2020 (arXiv 1911.05722).
        Chen et al., "Improved Baselines with Momentum Contrastive Learning", 2020 (arXiv 2003.04297).
    """

    def __init__(
        self, model: ContrastiveModel, loss: LossOfViews, *, momentum: Fraction = 0.999, queue_size: Size = 4096
    ) -> None:
        super().__init__(model, loss)
        need(self.loss, ("queue", "symmetric"), "moco")
        self.momentum = momentum
        self.slow = slow_copy(model)
        self.queue = KeyQueue(queue_size, model.projection)
        self._new: list[tuple[Tensor, Tensor | None]] = []

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """See `Method`."""
        if self.training:
            follow(self.slow, self.model, self.momentum)
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
        """The batch's keys join the queue."""
        for keys, ids in self._new:
            self.queue.add(ranks.gather(normalize(keys)), None if ids is None else ranks.gather(ids))
        self._new = []

    @torch.no_grad()
    def _key(self, view: Batch) -> Tensor:
        key: Tensor = self.slow(view)
        return key

    def _compare(self, query: Tensor, key: Tensor, ids: Tensor | None) -> Tensor:
        known = {} if ids is None or not len(self.queue) else {"ids": ids, "queue_ids": self.queue.ids}
        value: Tensor = self.loss(query, key, queue=self.queue.keys, symmetric=False, **known)
        return value
