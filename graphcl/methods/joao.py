"""JOAO: two views with learned probabilities of the augmentations in a pool (You et al. 2021)."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import NonNegative, Positive
from graphcl.augment.compose import OneOf
from graphcl.augment.transform import Augmentation, as_augmentation
from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.methods.method import LossOfViews, Method, Outcome, require_arguments, require_repulsion
from graphcl.methods.pool import LearnedPool, names
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("joao")
class JOAO(Method):
    r"""JOAO: draw augmentations from a pool with learned probabilities. A higher loss raises the probability.

    $$p \leftarrow \mathrm{Proj}\Big( p + \alpha \big( \ell - \gamma (p - \tfrac1n) \big) \Big)$$

    This update is made at the end of each epoch. Here p are the probabilities of the n augmentations in the pool, Proj
    is the Euclidean projection onto the probability simplex, and l_i is the mean loss of the graphs that drew
    augmentation i during the epoch. The loss of a graph is the mean over its one or two anchors. No additional forward
    pass is needed.

    The update is one gradient ascent step on p for min_theta max_p E_p[loss] - gamma/2 |p - 1/n|^2. The gradient
    neglects the effect of an augmentation on the negatives of other graphs.

    For an augmentation that no graph drew, l_i is the mean loss of all graphs. Its probability can then rise from 0 to
    about gamma alpha / n in one epoch. Across ranks, l_i is the mean over all ranks' graphs.

    A pool is a view made by `one_of`, `random2`, `random3` or `random4`. The weights of the pool, equal by default, are
    the initial p. If both views are pools, each has its own p, and the two draws are independent. `Epoch.diagnostics`
    and `metrics.jsonl` contain the probabilities after each epoch as `p_node_drop` and so on, or `p1_...` and `p2_...`
    for two pools.

    Differs: in the paper, p is over pairs of augmentations, n^2 numbers instead of 2n. The released code for TU data
    sets keeps the first view original, as our configurations do. It measures l at the end of the epoch, in additional
    passes over a fifth of the data with one augmentation for all graphs. These passes also change the statistics of
    BatchNorm. It projects by bisection to 1 % and rescales. Its alpha is 1.

    Args:
        model: encoder and projector.
        loss: loss of the two views' projections, with one term per anchor.
        first: augmentation that makes the first view.
        second: augmentation that makes the second view; at least one of the two is a pool.
        gamma: weight of the penalty on unequal probabilities, >= 0; the paper searches 0.01, 0.1 and 1.
        step_size: step size alpha of the probabilities, > 0.

    Raises:
        InputError: no view is a pool; the loss returns no term per anchor, or has no negatives; when called: the views
            do not record the drawn augmentations.

    Example:
        >>> from graphcl.augment import Identity, random2
        >>> from graphcl.models.gin import GIN
        >>> method = JOAO(ContrastiveModel(GIN(7)), Loss("adnce"), Identity(), random2())
        >>> method.probabilities()
        {'p_node_drop': 0.5, 'p_subgraph': 0.5}

    References:
        You et al., "Graph Contrastive Learning Automated", ICML 2021, Algorithm 1 (arXiv 2106.07594).
    """

    name = "joao"

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
        _require_terms(self.loss, self.name)
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
        self._new: tuple[Tensor, list[Tensor]] | None = None
        self.add_projectors()

    def augmentations(self, first: Augmentation, second: Augmentation) -> tuple[Augmentation, Augmentation]:
        """Return the views given to the constructor, with pools that draw by the learned probabilities.

        Raises:
            InputError: `first` or `second` differs from the view given to the constructor.
        """
        for given, mine, own in zip((first, second), self._given, self._views, strict=True):
            if given is not own and repr(given) != repr(mine):
                raise InputError(f"method `{self.name}` was constructed with the view {mine!r}, got {given!r}.")
        one, other = self._views
        return one, other

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the loss of a batch, see `Method`."""
        views = view1, view2
        drawn = {number: self._drawn(views[number]) for number in self._pools}
        h, other = self.model.encode_views(view1, view2)
        z1, z2 = self.project(h, 0, drawn.get(0)), self.project(other, 1, drawn.get(1))
        terms: Tensor = self._terms(z1, z2)
        if terms.dim() != 1 or terms.numel() % h.size(0):
            raise InputError(
                f"the loss must return one term per anchor for {h.size(0)} graphs, got {list(terms.shape)}."
            )
        # Terms of the first view's anchors precede those of the second view's, so average over dimension 0.
        self._new = terms.detach().view(-1, h.size(0)).mean(dim=0), list(drawn.values())
        return Outcome(terms.mean(), h, z1, z2)

    def add_projectors(self) -> None:
        """Do nothing. Subclasses override this method to add projectors."""

    def project(self, h: Tensor, view: int, drawn: Tensor | None) -> Tensor:
        """Return the projections `[B, D]` of one view.

        Args:
            h: embeddings of the view, `[B, H]`.
            view: number of the view, 0 or 1.
            drawn: index of the augmentation that each graph drew, `[B]`; None if the view is not a pool.
        """
        z: Tensor = self.model.projector(h)
        return z

    def after_step(self) -> None:
        """Add the loss of each graph of the last batch to the sum of the augmentation that it drew."""
        if self._new is not None:
            loss, drawn = self._new
            for pool, mine in zip(self._pools.values(), drawn, strict=True):
                pool.distribution.add(mine, loss)
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

    def _drawn(self, view: Batch) -> Tensor:
        drawn: Tensor | None = view.get("drawn")
        if drawn is None:
            raise InputError(
                f"method `{self.name}` needs views that record the drawn augmentations; make them with its "
                f"`augmentations(first, second)`."
            )
        return drawn


def _require_terms(loss: Callable[..., Tensor], method: str) -> None:
    """Raise InputError unless `loss` takes `reduction`, which is needed to return one term per anchor."""
    require_arguments(loss, ("reduction",), method)
    if not isinstance(loss, Loss) and "reduction" not in inspect.signature(loss).parameters:
        raise InputError(f"method `{method}` passes `reduction` to the loss, which this function does not take.")
