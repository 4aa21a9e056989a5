"""JOAO and JOAOv2: two views with learned probabilities of the augmentations in a pool (You et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import NonNegative, Positive
from graphcl.augment.compose import OneOf
from graphcl.augment.transform import Augmentation, as_augmentation
from graphcl.errors import InputError
from graphcl.losses.loss import reduce
from graphcl.methods.method import LossOfViews, Method, Outcome, require_arguments, require_repulsion, weight_of
from graphcl.methods.pool import LearnedPool, names
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("joao", usual_views="random4", pairs="weight towers")
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

    name = "joao"

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
        require_repulsion(self.loss, self.name)
        require_arguments(self.loss, ("reduction",), self.name)
        self._terms = self.loss_with(reduction="none")
        self.gamma, self.step_size = gamma, step_size
        self._given = as_augmentation(first, "first"), as_augmentation(second, "second")
        self._views = tuple(LearnedPool(each) if isinstance(each, OneOf) else each for each in self._given)
        self._pools = {number: each for number, each in enumerate(self._views) if isinstance(each, LearnedPool)}
        if not self._pools:
            raise InputError(
                f"method `{self.name}` needs a pool of augmentations as a view, got {first!r} and {second!r}; make one "
                f"with random2, random3, random4 or one_of."
            )
        self.distributions = nn.ModuleList(each.distribution for each in self._pools.values())
        self._new: tuple[Tensor, Tensor | None, list[Tensor]] | None = None
        self.add_projectors()

    def augmentations(self, first: Augmentation, second: Augmentation) -> tuple[Augmentation, Augmentation]:
        """Return the views given to the constructor, with pools that draw by the learned probabilities.

        Raises:
            InputError: `first` or `second` differs from the view given to the constructor.
        """
        for given, mine, own in zip((first, second), self._given, self._views, strict=True):
            if given is not own and repr(given) != repr(mine):
                raise InputError(f"method `{self.name}` was constructed with the view {mine!r}, got {given!r}.")
        return self._views[0], self._views[1]

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the loss of a batch, see `Method`."""
        drawn = {number: (view1, view2)[number].get("drawn") for number in self._pools}
        if any(each is None for each in drawn.values()):
            raise InputError(
                f"method `{self.name}` needs views that record the drawn augmentations; make them with its "
                f"`augmentations(first, second)`."
            )
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
            for pool, mine in zip(self._pools.values(), drawn, strict=True):
                pool.distribution.add(mine, loss, weight)
            self._new = None

    def after_epoch(self) -> dict[str, float]:
        """Update the probabilities of the augmentations and return them by name."""
        for pool in self._pools.values():
            pool.distribution.ascend(self.gamma, self.step_size)
        return self.probabilities()

    def probabilities(self) -> dict[str, float]:
        """Return the probability of each augmentation in the pools, by name."""
        found: dict[str, float] = {}
        for number, pool in self._pools.items():
            prefix = f"p{number + 1}_" if len(self._pools) > 1 else "p_"
            values = pool.distribution.p.tolist()
            found |= {f"{prefix}{name}": p for name, p in zip(names(pool.members), values, strict=True)}
        return found


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

    name = "joao_v2"

    def add_projectors(self) -> None:
        """Add one projector for each different augmentation except the first, which uses the model's projector."""
        numbers: dict[str, int] = {}  # augmentation -> number of its projector
        self._numbers: list[list[int]] = []
        for view in self._views:
            members = view.members if isinstance(view, LearnedPool) else [view]
            self._numbers.append([numbers.setdefault(repr(each), len(numbers)) for each in members])
        self.others = nn.ModuleList(self.model.new_projector() for _ in range(len(numbers) - 1))

    def projector(self, number: int) -> nn.Module:
        """Return the projector with index `number`; index 0 is the projector of the model."""
        return self.others[number - 1] if number else self.model.projector

    def project(self, h: Tensor, view: int, drawn: Tensor | None) -> Tensor:
        """Return projections `[B, D]`. Each graph uses the projector of its augmentation `drawn [B]`, see `JOAO`."""
        every = torch.stack([self.projector(number)(h) for number in self._numbers[view]])
        return every[0] if drawn is None else every.gather(0, drawn[None, :, None].expand(1, *every.shape[1:]))[0]
