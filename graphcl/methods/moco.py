"""MoCo, momentum contrast: negatives from a queue of a momentum encoder's keys (He et al. 2020)."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import Fraction, interval
from graphcl.distributed import ranks
from graphcl.losses.rows import normalize
from graphcl.methods.method import LossOfViews, Method, Outcome, ema_update, momentum_copy, weight_of
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods

Size = Annotated[int, interval("[0, 1e7]")]


@methods.register("moco", pairs="weight", queue="yes")
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

    in_pieces = True

    def __init__(
        self, model: ContrastiveModel, loss: LossOfViews, *, momentum: Fraction = 0.999, queue_size: Size = 4096
    ) -> None:
        super().__init__(model, loss)
        self._one_sided = self.loss_with(symmetric=False)
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
        h, query = self.model.rows(view1)
        queries = [query, self.model(view2)] if self.setting("symmetric", False) else [query]
        with torch.no_grad():
            keys = [self.momentum_model(view) for view in (view2, view1)[: len(queries)]]
        others = {"queue": self.queue.keys, **weight_of(view1)}
        if ids is not None and len(self.queue):
            others |= {"ids": ids, "queue_ids": self.queue.ids}
        values = [self._one_sided(query, key, **others) for query, key in zip(queries, keys, strict=True)]
        self._new = [(key, ids) for key in keys]
        return Outcome(torch.stack(values).mean(), h, queries[0], keys[0])

    def after_step(self) -> None:
        """Append the keys of the last batch to the queue."""
        for keys, ids in self._new:
            self.queue.add(ranks.gather(normalize(keys)), None if ids is None else ranks.gather(ids))
        self._new = []


class KeyQueue(nn.Module):
    """First-in, first-out queue of keys, initially empty.

    Args:
        size: capacity, >= 0.
        width: number of columns D of a key.

    Example:
        >>> queue = KeyQueue(3, 2)
        >>> queue.add(torch.eye(2), torch.tensor([4, 5]))
        >>> queue.add(-torch.eye(2), torch.tensor([6, 7]))
        >>> sorted(queue.ids.tolist())
        [5, 6, 7]
    """

    _keys: Tensor
    _ids: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.register_buffer("_keys", torch.zeros(size, width))
        self.register_buffer("_ids", torch.full((size,), -1))
        # Keep the fill level in Python numbers, as reading a tensor would synchronise with the device.
        self._filled, self._next = 0, 0

    def __len__(self) -> int:
        return self._filled

    @property
    def keys(self) -> Tensor:
        """Keys in the queue, `[Q, D]`, in arbitrary order."""
        return self._keys[: self._filled]

    @property
    def ids(self) -> Tensor:
        """Index of the graph of each key, `[Q]`; -1 if unknown."""
        return self._ids[: self._filled]

    @torch.no_grad()
    def add(self, keys: Tensor, ids: Tensor | None = None) -> None:
        """Append `keys [B, D]` of the graphs `ids [B]`; beyond the capacity, the oldest keys are overwritten."""
        size = self._ids.numel()
        if size == 0:
            return
        ids = self._ids.new_full((keys.size(0),), -1) if ids is None else ids
        keys, ids = keys[-size:], ids[-size:]
        number = torch.arange(self._next, self._next + keys.size(0), device=keys.device) % size  # a circular buffer
        self._keys.index_copy_(0, number, keys.to(self._keys.dtype))
        self._ids.index_copy_(0, number, ids.to(self._ids))
        self._next = (self._next + keys.size(0)) % size
        self._filled = min(size, self._filled + keys.size(0))

    def get_extra_state(self) -> dict[str, Any]:
        """Return the fill level and the next position to write, for `state_dict`."""
        return {"filled": self._filled, "next": self._next}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore `state`, a result of `get_extra_state`."""
        self._filled, self._next = state["filled"], state["next"]
