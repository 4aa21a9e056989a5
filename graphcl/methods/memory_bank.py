"""The method of Wu et al. 2018: instance discrimination with a memory bank that has one entry per graph."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import Count, Fraction, interval
from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.losses.formulas.instance_nce import log_mean_exp
from graphcl.losses.pairs import linear
from graphcl.losses.rows import at_least_float32, compare, normalize
from graphcl.methods.method import LossOfViews, Method, Outcome, require_ids, weight_of
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("memory_bank", pairs="weight", queue="yes", sets="negatives=queue")
class MemoryBank(Method):
    r"""Memory bank: a graph's positive is its own entry in a bank; negatives are drawn from the bank.

    $$m_i \leftarrow \mathrm{norm}(\mu\, m_i + (1 - \mu)\, v_i)$$

    This update is made after each visit of graph i. Here m_i is its entry, v_i its normalised projection, and norm(.)
    scales to norm 1. Entries are indexed by the graph's index in the data set, so that a graph is never its own
    negative.

    During the first `warmup` passes over the data, `instance_nce` estimates its normaliser from each batch. The
    estimate of the next batch is then used for the rest of the training. Any other loss with an argument `queue` fits
    too. A symmetric loss compares the projections of both views with the bank.

    Across ranks, every rank holds the whole bank and updates the entries of all ranks' graphs. Rank 0 draws the noise,
    and the normaliser is estimated over all ranks.

    Differs: the paper fixes the normaliser at the first batch (`warmup=0`); as the bank is still random, this value is
    far too small later. Noise is drawn once per batch; if `noise` is at least the number of graphs, it is every entry.

    Args:
        model: encoder and projector.
        loss: loss of projections, their own entries, and noise entries.
        num_graphs: number of graphs in the data set.
        noise: number of noise entries drawn per batch, >= 1.
        momentum: momentum mu, in [0, 1].
        warmup: number of passes over the data before the normaliser is fixed, >= 0.

    Raises:
        InputError: the loss takes no `queue`; when called: `ids` are missing or not in [0, `num_graphs`).

    References:
        Wu et al., "Unsupervised Feature Learning via Non-Parametric Instance Discrimination", CVPR 2018 (arXiv
        1805.01978).
    """

    bank: Tensor

    in_pieces = True

    def __init__(
        self,
        model: ContrastiveModel,
        loss: LossOfViews,
        num_graphs: int,
        *,
        noise: Count = 4096,
        momentum: Fraction = 0.5,
        warmup: Annotated[int, interval("[0, inf)")] = 3,
    ) -> None:
        super().__init__(model, loss)
        named = isinstance(self.loss, Loss) and self.loss.name == "instance_nce"
        self._estimates = named and self.setting("log_z") is None
        if self._estimates and isinstance(self.setting("temperature"), Tensor):
            rule = "as method `memory_bank` fixes the normaliser, which depends on it"
            raise InputError(f"`temperature` of loss `instance_nce` must be a number, {rule}; or pass `log_z`.")
        self.num_graphs, self.noise, self.momentum, self.warmup = num_graphs, noise, momentum, warmup
        self.register_buffer("bank", normalize(torch.randn(num_graphs, model.projection)))
        self.log_z: float | None = None
        self._visits = 0
        self._new: tuple[Tensor, Tensor, float | None] | None = None
        self._one_sided = self.loss_with(negatives="queue", symmetric=False)
        self._fixed: float | None = None

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the loss of a batch, see `Method`."""
        ids = require_ids(ids, "memory_bank")
        if ids.device.type == "cpu" and not 0 <= int(ids.min()) <= int(ids.max()) < self.num_graphs:
            raise InputError(f"`ids` must be in 0 .. {self.num_graphs - 1}, got {int(ids.min())} to {int(ids.max())}.")
        views = [view1, view2] if self.setting("symmetric", False) else [view1]
        rows = [self.model.rows(view) for view in views]
        z = [at_least_float32(projections) for _, projections in rows]  # to match the dtype of the bank
        entries, log_z = self.bank[ids], self.log_z
        if self.noise < self.num_graphs:
            noise = torch.randint(self.num_graphs, (self.noise,), generator=generator, device=entries.device)
            drawn = ranks.broadcast(noise)
        else:
            drawn = torch.arange(self.num_graphs, device=entries.device)
        others: dict[str, Any] = {"queue": self.bank[drawn], "ids": ids, "queue_ids": drawn}
        if self._estimates and log_z is None and self._visits >= self.warmup * self.num_graphs:
            pairs = compare(z[0].detach(), entries, "queue", False, **others)
            (total,) = pairs.logsumexp(linear(1 / self.setting("temperature")))
            log_z = float(log_mean_exp(pairs, total))
        if log_z != self._fixed:  # make the loss once, so that later steps check no settings
            self._one_sided, self._fixed = self.loss_with(negatives="queue", symmetric=False, log_z=log_z), log_z
        others |= weight_of(view1)
        value = torch.stack([self._one_sided(projections, entries, **others) for projections in z]).mean()
        # `after_step` stores these values, so that a skipped step changes nothing.
        self._new = ids, torch.stack([normalize(projections.detach()) for projections in z]).mean(dim=0), log_z
        return Outcome(value, rows[0][0], z[0], entries)

    def check_pairs(self, listed: bool = False, weights: bool = False, negatives: bool = False) -> None:
        """Raise InputError if the method does not use what pairs hold; a one-sided loss uses no targets of a list."""
        super().check_pairs(listed, weights, negatives)
        if listed and not self.setting("symmetric", False):
            rule = "`loss.symmetric` false encodes the queries only with method `memory_bank`"
            advice = "so the targets of the pairs would have no effect; set it to true, or use two_views"
            raise InputError(f"{rule}, {advice}.")

    def after_step(self) -> None:
        """Move the bank entries of the last batch's graphs towards the projections of these graphs."""
        if self._new is not None:
            (ids, v), self.log_z = map(ranks.gather, self._new[:2]), self._new[2]
            self.bank[ids] = normalize(torch.lerp(v.to(self.bank.dtype), self.bank[ids], self.momentum))
            self._visits += ids.numel()
            self._new = None

    def get_extra_state(self) -> dict[str, Any]:
        """Return the normaliser and the number of visits so far, for `state_dict`."""
        return {"log_z": self.log_z, "visits": self._visits}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore `state`, a result of `get_extra_state`."""
        self.log_z, self._visits = state["log_z"], state["visits"]
