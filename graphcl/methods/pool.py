"""A pool of augmentations whose probabilities are learned."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.augment.compose import OneOf, weighted_draw
from graphcl.augment.decision import apply
from graphcl.augment.transform import Augmentation
from graphcl.distributed import ranks
from graphcl.graphs.batching import Layout, with_entries
from graphcl.methods.simplex import nearest_distribution
from graphcl.registry import augmentations


class Distribution(nn.Module):
    """Probabilities p of n members, and the loss of the graphs that drew each.

    Args:
        weights: of each member, where p starts; all equal by default.
        size: n.
    """

    p: Tensor
    losses: Tensor
    draws: Tensor

    def __init__(self, weights: list[float] | None, size: int) -> None:
        super().__init__()
        start = torch.ones(size) if weights is None else torch.tensor(weights, dtype=torch.float64)
        self.register_buffer("p", (start / start.sum()).float())
        self.register_buffer("losses", torch.zeros(size))
        self.register_buffer("draws", torch.zeros(size))

    @torch.no_grad()
    def add(self, drawn: Tensor, loss: Tensor) -> None:
        """Count what some graphs drew `[B]`, and their losses `[B]`."""
        # A sum over graphs by a product with zeros and ones: on CUDA too the same bits each time.
        mine = (drawn == torch.arange(self.p.numel(), device=drawn.device)[:, None]).to(self.p.dtype)
        self.losses += mine @ loss.to(self.p.dtype)
        self.draws += mine.sum(dim=1)

    def means(self) -> Tensor:
        """The mean loss of the graphs that drew each member `[n]`; of all graphs, for a member that none drew."""
        overall = self.losses.sum() / self.draws.sum().clamp(min=1)
        return torch.where(self.draws > 0, self.losses / self.draws.clamp(min=1), overall)

    @torch.no_grad()
    def ascend(self, gamma: float, step: float) -> None:
        """p <- the distribution nearest to p + step (means - gamma (p - 1/n)), by all ranks' means; then count anew."""
        if ranks.size() > 1:
            losses, draws = ranks.sum_over_ranks(torch.stack([self.losses, self.draws]))
            self.losses.copy_(losses)
            self.draws.copy_(draws)
        self.p.copy_(nearest_distribution(self.p + step * (self.means() - gamma * (self.p - 1 / self.p.numel()))))
        self.losses.zero_()
        self.draws.zero_()


class LearnedPool(OneOf):
    """A pool drawn from by a `Distribution`; its views hold which member each graph drew, as `drawn` `[B]`.

    Args:
        pool: whose members are drawn, and whose weights are where the distribution starts.
    """

    def __init__(self, pool: OneOf) -> None:
        super().__init__(pool.members, pool.weights)
        self.distribution = Distribution(pool.weights, len(pool.members))

    def draw(self, num_graphs: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
        """Which member each graph gets, `[B]`."""
        return weighted_draw(self.distribution.p.to(device), num_graphs, generator)

    def augment(self, batch: Batch, generator: torch.Generator | None, graphs: Tensor | None) -> Batch:
        """Draw, decide, apply, and record what was drawn."""
        ptr = Layout.of(batch).ptr
        drawn = self.draw(ptr.numel() - 1, generator, ptr.device)
        return with_entries(apply(batch, self.decide_drawn(batch, drawn, generator, graphs)), "drawn", drawn)


def names(members: list[Augmentation]) -> list[str]:
    """What to call the members of a pool: their registered names, numbered where there are several of one name."""
    kinds = {augmentations[name]: name for name in augmentations}
    found = [kinds.get(type(member), type(member).__name__) for member in members]
    seen: Counter[str] = Counter()
    for position, name in enumerate(found):
        seen[name] += 1
        if seen[name] > 1:
            found[position] = f"{name}_{seen[name]}"
    return found
