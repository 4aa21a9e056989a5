"""Instance discrimination with a memory bank: an entry for every graph (Wu et al. 2018)."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import Count, Fraction, interval
from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.losses.engine.exponent import linear
from graphcl.losses.engine.pairs import at_least_float32, compare, normalize
from graphcl.losses.instance_nce import log_mean_exp
from graphcl.methods.method import LossOfViews, Method, Outcome, need
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods

Passes = Annotated[int, interval("[0, inf)")]


@methods.register("memory_bank")
class MemoryBank(Method):
    r"""Memory bank: every graph has an entry, its positive; negatives are entries drawn from the bank.

    $$m_i \leftarrow \mathrm{norm}(\mu\, m_i + (1 - \mu)\, v_i)$$

    after each visit. The bank's entries are keyed by the graph's number in the data set, so a graph is never its own
    negative. `instance_nce` has a normaliser: each batch's own during the first `warmup` passes over the data, and then
    that of the next batch for good. Any other loss with an argument `queue` fits too. A symmetric loss takes both
    views' projections, each against the bank. Across ranks every rank holds the whole bank and moves the entries of all
    ranks' graphs; the noise is rank 0's draw, and the normaliser that of all.

    Differs: the paper fixes the normaliser at the very first batch (`warmup=0`), when the bank is still noise. An
    untrained graph encoder's projections lie close together, so that is far too small as soon as the bank holds them,
    and all projections flee from the bank together: on the embedded data set (seed 0, lr 0.01) 59 % accuracy after 20
    epochs with a warm-up of 0, 70 with 1, 87 with 3 and 88 if it is never fixed; untrained 73. And noise is drawn once
    for a batch, not for each graph; where it would be as many entries as there are graphs or more, all are taken, once
    each.

    Args:
        model: encoder and projector.
        loss: of projections, their entries, and other entries.
        num_graphs: graphs in the data set, n.
        noise: entries drawn for a batch, >= 1.
        momentum: mu, in [0, 1].
        warmup: passes over the data before the normaliser is fixed, >= 0.

    Raises:
        InputError: a loss without external negatives; when called: ids that are unknown or not below n.

    References:
        Wu et al., "Unsupervised Feature Learning via Non-Parametric Instance Discrimination", CVPR 2018 (arXiv
        1805.01978).
    """

    bank: Tensor

    def __init__(
        self,
        model: ContrastiveModel,
        loss: LossOfViews,
        num_graphs: int,
        *,
        noise: Count = 4096,
        momentum: Fraction = 0.5,
        warmup: Passes = 3,
    ) -> None:
        super().__init__(model, loss)
        need(self.loss, ("queue", "symmetric"), "memory_bank")
        if num_graphs < 1:
            raise InputError(f"`num_graphs` must be at least 1, got {num_graphs}.")
        self.num_graphs, self.noise, self.momentum, self.warmup = num_graphs, noise, momentum, warmup
        self.register_buffer("bank", normalize(torch.randn(num_graphs, model.projection)))
        self.log_z: float | None = None
        self._visits = 0
        self._new: tuple[Tensor, Tensor] | None = None

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """See `Method`."""
        if ids is None:
            raise InputError(
                "method `memory_bank` must know which graphs a batch holds; use ResidentLoader or make_loader."
            )
        if ids.device.type == "cpu" and not 0 <= int(ids.min()) <= int(ids.max()) < self.num_graphs:
            raise InputError(
                f"`ids` must be graphs of the {self.num_graphs} in the bank, got {int(ids.min())} to {int(ids.max())}."
            )
        views = [view1, view2] if self.setting("symmetric", False) else [view1]
        h = [self.model.encode(view) for view in views]
        z = [at_least_float32(self.model.projector(each)) for each in h]  # as the bank is
        entries, drawn = self.bank[ids], self._draw(generator)
        noise = self.bank[drawn]
        others: dict[str, Any] = {"queue": noise, "ids": ids, "queue_ids": drawn}
        others |= {"negatives": "queue", "symmetric": False}
        if isinstance(self.loss, Loss) and self.loss.name == "instance_nce" and self.setting("log_z") is None:
            if self.log_z is None and self._visits >= self.warmup * self.num_graphs:
                pairs = compare(z[0].detach(), entries, **others)
                (total,) = pairs.logsumexp(linear(1 / self.setting("temperature")))
                self.log_z = float(log_mean_exp(pairs, total))
            others["log_z"] = self.log_z
        value = torch.stack([self.loss(each, entries, **others) for each in z]).mean()
        self._new = ids, torch.stack([normalize(each.detach()) for each in z]).mean(dim=0)
        return Outcome(value, h[0], z[0], entries)

    def after_step(self) -> None:
        """The batch's entries move towards what they are of."""
        if self._new is not None:
            ids, v = map(ranks.gather, self._new)
            self.bank[ids] = normalize(torch.lerp(v.to(self.bank.dtype), self.bank[ids], self.momentum))
            self._visits += ids.numel()
            self._new = None

    def get_extra_state(self) -> dict[str, Any]:
        """For `state_dict`: the normaliser, and how many graphs were visited before it."""
        return {"log_z": self.log_z, "visits": self._visits}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """From `load_state_dict`."""
        self.log_z, self._visits = state["log_z"], state["visits"]

    def _draw(self, generator: torch.Generator | None) -> Tensor:
        device = self.bank.device
        if self.noise >= self.num_graphs:
            return torch.arange(self.num_graphs, device=device)
        return ranks.broadcast(torch.randint(self.num_graphs, (self.noise,), generator=generator, device=device))
