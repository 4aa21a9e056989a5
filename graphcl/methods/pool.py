"""Define a pool of augmentations with learned probabilities, for the methods `joao` and `joao_v2`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.augment.compose import OneOf, weighted_draw
from graphcl.augment.decision import apply_decision
from graphcl.augment.transform import Augmentation
from graphcl.distributed import ranks
from graphcl.graphs.batching import Layout, with_entries
from graphcl.graphs.segment import cumulative
from graphcl.registry import augmentations


class Distribution(nn.Module):
    """Learned probabilities p of the n = `size` members of a pool, initially by `weights`, and each member's losses."""

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
    def add(self, drawn: Tensor, loss: Tensor, weight: Tensor | None = None) -> None:
        """Record the member `drawn [B]`, the `loss [B]` and the `weight [B]`, by default 1, of each of B graphs."""
        # Use a product with a one-hot matrix, which is deterministic on CUDA, unlike index_add.
        mine = (drawn == torch.arange(self.p.numel(), device=drawn.device)[:, None]).to(self.p.dtype)
        mine = mine if weight is None else mine * weight.to(mine)
        self.losses += mine @ loss.to(self.p.dtype)
        self.draws += mine.sum(dim=1)

    def means(self) -> Tensor:
        """Return the mean loss `[n]` of each member over the graphs that drew it; over all graphs if none did."""
        least = torch.finfo(self.draws.dtype).tiny
        overall = self.losses.sum() / self.draws.sum().clamp(min=least)
        return torch.where(self.draws > 0, self.losses / self.draws.clamp(min=least), overall)

    @torch.no_grad()
    def ascend(self, gamma: float, step: float) -> None:
        """Update p by one projected gradient ascent step with the losses of all ranks, then reset the sums of losses.

        The new p is the distribution nearest to p + step (means - gamma (p - 1/n)).
        """
        losses, draws = ranks.sum_over_ranks(torch.stack([self.losses, self.draws]))
        self.losses.copy_(losses)
        self.draws.copy_(draws)
        self.p.copy_(nearest_distribution(self.p + step * (self.means() - gamma * (self.p - 1 / self.p.numel()))))
        self.losses.zero_()
        self.draws.zero_()


def nearest_distribution(v: Tensor) -> Tensor:
    r"""Return the point of the probability simplex with the smallest Euclidean distance to `v [n]`.

    $$p = \max(v - \mu, 0), \qquad \mu = \frac1k \Big( \sum_{i \le k} v_{(i)} - 1 \Big)$$

    where $v_{(i)}$ is the i-th largest entry of v, and k is the largest number for which $v_{(k)} > \mu$. Reference:
    Duchi et al., "Efficient Projections onto the l1-Ball for Learning in High Dimensions", ICML 2008, Fig. 1.
    """
    v = v - v.max()  # a shift does not change the result and avoids cancellation
    down = v.sort(descending=True).values
    number = torch.arange(1, v.numel() + 1, device=v.device)
    mu = (cumulative(down) - 1) / number
    k = (down > mu).sum() - 1
    return (v - mu.gather(0, k[None])).clamp(min=0)


class LearnedPool(OneOf):
    """Pool with the members and initial weights of `pool`, and with learned probabilities.

    A view made by this pool has an entry `drawn [B]`: the index of the member that each graph drew.
    """

    def __init__(self, pool: OneOf) -> None:
        super().__init__(pool.members, pool.weights)
        self.distribution = Distribution(pool.weights, len(pool.members))

    def draw(self, num_graphs: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
        """Return the index of the member drawn for each graph, `[B]`."""
        return weighted_draw(self.distribution.p.to(device), num_graphs, generator)

    def augment(self, batch: Batch, generator: torch.Generator | None, graphs: Tensor | None) -> Batch:
        """Return the augmented `batch`, with the index of each graph's member as its entry `drawn [B]`."""
        ptr = Layout.of(batch).ptr
        drawn = self.draw(ptr.numel() - 1, generator, ptr.device)
        return with_entries(apply_decision(batch, self.decide(batch, generator, graphs, drawn)), "drawn", drawn)


def names(members: list[Augmentation]) -> list[str]:
    """Return the registered names of `members`; repeated names get a number, as in `node_drop_2`."""
    kinds = {augmentations[name]: name for name in augmentations}
    found = [kinds.get(type(member), type(member).__name__) for member in members]
    numbers = [found[: position + 1].count(name) for position, name in enumerate(found)]
    return [name if number == 1 else f"{name}_{number}" for name, number in zip(found, numbers, strict=True)]
