"""Define a pool of augmentations with learned probabilities, for the methods `joao` and `joao_v2`."""

from __future__ import annotations

from collections import Counter

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
    """Learned probabilities p of the n members of a pool, and the sum of losses of each member.

    Args:
        weights: initial weight of each member; None for equal weights.
        size: number n of members.
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
        """Record the member `drawn [B]` and the `loss [B]` of each of B graphs."""
        # Use a product with a one-hot matrix, which is deterministic on CUDA, unlike index_add.
        mine = (drawn == torch.arange(self.p.numel(), device=drawn.device)[:, None]).to(self.p.dtype)
        self.losses += mine @ loss.to(self.p.dtype)
        self.draws += mine.sum(dim=1)

    def means(self) -> Tensor:
        """Return the mean loss `[n]` of each member over the graphs that drew it; over all graphs if none did."""
        overall = self.losses.sum() / self.draws.sum().clamp(min=1)
        return torch.where(self.draws > 0, self.losses / self.draws.clamp(min=1), overall)

    @torch.no_grad()
    def ascend(self, gamma: float, step: float) -> None:
        """Update p by one projected gradient ascent step with the losses of all ranks, then reset the sums of losses.

        The new p is the distribution nearest to p + step (means - gamma (p - 1/n)).
        """
        if ranks.size() > 1:
            losses, draws = ranks.sum_over_ranks(torch.stack([self.losses, self.draws]))
            self.losses.copy_(losses)
            self.draws.copy_(draws)
        self.p.copy_(nearest_distribution(self.p + step * (self.means() - gamma * (self.p - 1 / self.p.numel()))))
        self.losses.zero_()
        self.draws.zero_()


def nearest_distribution(v: Tensor) -> Tensor:
    r"""Return the point of the probability simplex with the smallest Euclidean distance to `v`.

    $$p = \max(v - \mu, 0), \qquad \mu = \frac1k \Big( \sum_{i \le k} v_{(i)} - 1 \Big)$$

    where $v_{(i)}$ is the i-th largest entry of v, and k is the largest number for which $v_{(k)} > \mu$. The result is
    exact.

    Args:
        v: vector `[n]`, n >= 1, finite.

    Returns:
        The probabilities p, `[n]`, >= 0, with sum 1.

    Example:
        >>> nearest_distribution(torch.tensor([0.9, 0.5, -1.0]))
        tensor([0.7000, 0.3000, 0.0000])

    References:
        Duchi et al., "Efficient Projections onto the l1-Ball for Learning in High Dimensions", ICML 2008, Fig. 1.
    """
    v = v - v.max()  # a shift does not change the result and avoids cancellation
    down = v.sort(descending=True).values
    number = torch.arange(1, v.numel() + 1, device=v.device)
    mu = (cumulative(down) - 1) / number
    k = (down > mu).sum() - 1
    return (v - mu.gather(0, k[None])).clamp(min=0)


class LearnedPool(OneOf):
    """Pool of augmentations with learned probabilities.

    A view made by this pool has an entry `drawn [B]`: the index of the member that each graph drew.

    Args:
        pool: pool that gives the members and the initial weights.
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
        return with_entries(apply_decision(batch, self.decide_drawn(batch, drawn, generator, graphs)), "drawn", drawn)


def names(members: list[Augmentation]) -> list[str]:
    """Return the registered names of `members`; repeated names get a number, as in `node_drop_2`."""
    kinds = {augmentations[name]: name for name in augmentations}
    found = [kinds.get(type(member), type(member).__name__) for member in members]
    seen: Counter[str] = Counter()
    for position, name in enumerate(found):
        seen[name] += 1
        if seen[name] > 1:
            found[position] = f"{name}_{seen[name]}"
    return found
