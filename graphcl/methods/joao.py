"""JOAO and JOAOv2: two views with learned probabilities of the augmentations in a pool (You et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import NonNegative, Positive
from graphcl.augment.compose import OneOf, weighted_draw
from graphcl.augment.transform import Augmentation, apply_decision, as_augmentation
from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.graphs.batching import Layout, with_entries
from graphcl.graphs.segment import cumulative
from graphcl.losses.loss import reduce
from graphcl.methods.method import LossOfViews, Method, Outcome, require_arguments, weight_of
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import augmentations, methods


@methods.register("joao", repels="yes", usual_views="random4", pairs="weight towers")
class JOAO(Method):
    r"""JOAO: draw augmentations from a pool with learned probabilities. A higher loss raises the probability.

    $$p \leftarrow \mathrm{Proj}\Big( p + \alpha \big( \ell - \gamma (p - \tfrac1n) \big) \Big)$$

    This update, a gradient ascent step on p for min_theta max_p E_p[loss] - gamma/2 |p - 1/n|^2, is made at the end of
    each epoch. Here p are the probabilities of the n augmentations in the pool, Proj is the Euclidean projection onto
    the probability simplex, and l_i is the mean loss of the graphs that drew augmentation i during the epoch, on any
    rank. The loss of a graph is the mean over its one or two anchors. For an augmentation that no graph drew, l_i is
    the mean loss of all graphs, so that its probability can rise from 0 to about gamma alpha / n in one epoch.

    A pool is a view made by `one_of`, `random2`, `random3` or `random4`; its weights, equal by default, are the initial
    p. If both views are pools, each has its own p and its own draws. `Epoch.diagnostics` and `metrics.jsonl` contain
    the probabilities after each epoch as `p_node_drop` and so on, or `p1_...` and `p2_...` for two pools.

    Differs: in the paper, p is over pairs of augmentations, n^2 numbers instead of 2n. The released code for TU data
    sets keeps the first view original, as our configurations do. It measures l at the end of the epoch, in additional
    passes over a fifth of the data with one augmentation for all graphs. Its alpha is 1.

    Args:
        model: encoder and projector.
        loss: loss of the two views' projections, with one term per anchor.
        first: augmentation that makes the first view.
        second: augmentation that makes the second view; at least one of the two is a pool.
        gamma: weight of the penalty on unequal probabilities, >= 0; the paper searches 0.01, 0.1 and 1.
        step_size: step size alpha of the probabilities, > 0.

    Raises:
        InputError: no view is a pool; the loss takes no `reduction`, or has no negatives; when called: the views do not
            record the drawn augmentations.

    Example:
        >>> from graphcl.augment import Identity, random2
        >>> from graphcl.models.gin import GIN
        >>> method = JOAO(ContrastiveModel(GIN(7)), "adnce", Identity(), random2())
        >>> method.probabilities()
        {'p_node_drop': 0.5, 'p_subgraph': 0.5}

    References:
        You et al., "Graph Contrastive Learning Automated", ICML 2021, Algorithm 1 (arXiv 2106.07594).
    """

    in_pieces = True

    def __init__(
        self,
        model: ContrastiveModel,
        loss: LossOfViews,
        first: Augmentation | str,
        second: Augmentation | str,
        *,
        gamma: NonNegative = 0.1,
        step_size: Positive = 1.0,
    ) -> None:
        super().__init__(model, loss)
        require_arguments(self.loss, ("reduction",), self._name)
        self._terms = self.loss_with(reduction="none")
        self.gamma, self.step_size = gamma, step_size
        self._views = as_augmentation(first, "first"), as_augmentation(second, "second")
        self._pools = {number: LearnedPool(view) for number, view in enumerate(self._views) if isinstance(view, OneOf)}
        if not self._pools:
            rule = f"method `{self._name}` needs a pool of augmentations as a view, got {first!r} and {second!r}"
            raise InputError(f"{rule}; make one with random2, random3, random4 or one_of.")
        self.distributions = nn.ModuleList(pool.distribution for pool in self._pools.values())
        self._new: tuple[Tensor, Tensor | None, list[Tensor]] | None = None
        self.add_projectors()

    def augmentations(self, first: Augmentation, second: Augmentation) -> tuple[Augmentation, Augmentation]:
        """Return the views given to the constructor, with pools that draw by the learned probabilities.

        Raises:
            InputError: `first` or `second` differs from the view given to the constructor.
        """
        learned = [self._pools.get(number, view) for number, view in enumerate(self._views)]
        for argument, view, pool in zip((first, second), self._views, learned, strict=True):
            if argument is not pool and repr(argument) != repr(view):
                raise InputError(f"method `{self._name}` was constructed with the view {view!r}, got {argument!r}.")
        return learned[0], learned[1]

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the loss of a batch, see `Method`."""
        drawn = {number: (view1, view2)[number].get("drawn") for number in self._pools}
        if None in drawn.values():
            rule = f"method `{self._name}` needs views that record the drawn augmentations"
            raise InputError(f"{rule}; make them with its `augmentations(first, second)`.")
        h, other = self.model.encode_views(view1, view2)
        z1, z2 = self.project(h, 0, drawn.get(0)), self.project(other, 1, drawn.get(1))
        terms: Tensor = self._terms(z1, z2)
        weight = weight_of(view1).get("weight")
        # Terms of the first view's anchors precede those of the second view's, so average over dimension 0.
        self._new = terms.detach().view(-1, h.size(0)).mean(dim=0), weight, list(drawn.values())
        return Outcome(reduce(terms, weight), h, z1, z2)

    def add_projectors(self) -> None:
        """Do nothing. Subclasses override this method to add projectors."""

    def project(self, h: Tensor, view: int, drawn: Tensor | None) -> Tensor:
        """Return the projections `[B, D]` of view 0 or 1 with embeddings `h`; `drawn` is None if it is not a pool."""
        return self.model.projector(h)

    def after_step(self) -> None:
        """Add the loss of each graph of the last batch to the sum of the augmentation that it drew."""
        if self._new is not None:
            loss, weight, drawn = self._new
            for pool, members in zip(self._pools.values(), drawn, strict=True):
                pool.distribution.add(members, loss, weight)
            self._new = None

    def after_epoch(self) -> dict[str, float]:
        """Update the probabilities of the augmentations and return them by name."""
        for pool in self._pools.values():
            pool.distribution.ascend(self.gamma, self.step_size)
        return self.probabilities()

    def probabilities(self) -> dict[str, float]:
        """Return the probability of each augmentation in the pools, by name."""
        probabilities: dict[str, float] = {}
        for number, pool in self._pools.items():
            prefix = f"p{number + 1}_" if len(self._pools) > 1 else "p_"
            p = pool.distribution.p.tolist()
            probabilities |= {f"{prefix}{name}": value for name, value in zip(names(pool.members), p, strict=True)}
        return probabilities


@methods.register("joao_v2", usual_views="random4", pairs="weight")
class JOAOv2(JOAO):
    r"""JOAOv2: `joao` with one projector per augmentation.

    $$z = g_a(h), \qquad a = \text{the augmentation drawn for the graph}$$

    with the embedding h of a graph and the projector g_a of augmentation a. Differences between augmentations can thus
    be removed by the projectors instead of the encoder. There is one projector for each different augmentation in the
    two views. A view that is not a pool has a projector too; if it is `identity`, it shares the projector of `identity`
    in the pool. The first projector is that of the model. No projector is kept after training.

    Differs: the released code draws one projector per epoch for all graphs, with probabilities p but independently of
    the graphs' augmentations. Original graphs use the projector of node dropping.

    Args:
        model: encoder and projector.
        loss: loss of the two views' projections, with one term per anchor.
        first: augmentation that makes the first view.
        second: augmentation that makes the second view; at least one of the two is a pool.
        gamma: weight of the penalty on unequal probabilities, >= 0.
        step_size: step size alpha of the probabilities, > 0.

    Raises:
        InputError: as for `joao`.

    References:
        You et al., "Graph Contrastive Learning Automated", ICML 2021, Section 3.4 (arXiv 2106.07594).
    """

    def add_projectors(self) -> None:
        """Add one projector for each different augmentation except the first, which uses the model's projector."""
        numbers: dict[str, int] = {}  # augmentation -> number of its projector
        self._numbers: list[list[int]] = []
        for view in self._views:
            members = view.members if isinstance(view, OneOf) else [view]
            self._numbers.append([numbers.setdefault(repr(member), len(numbers)) for member in members])
        self.others = nn.ModuleList(self.model.new_projector() for _ in range(len(numbers) - 1))

    def projector(self, number: int) -> nn.Module:
        """Return the projector with index `number`; index 0 is the projector of the model."""
        return self.others[number - 1] if number else self.model.projector

    def project(self, h: Tensor, view: int, drawn: Tensor | None) -> Tensor:
        """Return projections `[B, D]`. Each graph uses the projector of its augmentation `drawn [B]`, see `JOAO`."""
        every = torch.stack([self.projector(number)(h) for number in self._numbers[view]])
        return every[0] if drawn is None else every.gather(0, drawn[None, :, None].expand(1, *every.shape[1:]))[0]


# -- the pools ---------------------------------------------------------------------------------------------------------


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
        drawn_by = (drawn == torch.arange(self.p.numel(), device=drawn.device)[:, None]).to(self.p.dtype)
        drawn_by = drawn_by if weight is None else drawn_by * weight.to(drawn_by)
        self.losses += drawn_by @ loss.to(self.p.dtype)
        self.draws += drawn_by.sum(dim=1)

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
        sums = ranks.sum_over_ranks(torch.stack([self.losses, self.draws]))
        self.losses.copy_(sums[0])
        self.draws.copy_(sums[1])
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
    registered = {augmentations[name]: name for name in augmentations}
    plain = [registered.get(type(member), type(member).__name__) for member in members]
    numbers = [plain[: position + 1].count(name) for position, name in enumerate(plain)]
    return [name if number == 1 else f"{name}_{number}" for name, number in zip(plain, numbers, strict=True)]
