"""JOAO: how often each augmentation of a pool is drawn is learned along (You et al. 2021)."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import NonNegative, Positive
from graphcl.augment.compose import OneOf
from graphcl.augment.transform import Augmentation
from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.methods.method import LossOfViews, Method, Outcome, need, need_repulsion
from graphcl.methods.pool import LearnedPool, names
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("joao")
class JOAO(Method):
    r"""JOAO: two views, and the augmentations of a pool drawn the more often, the higher their loss.

    $$p \leftarrow \mathrm{Proj}\Big( p + \alpha \big( \ell - \gamma (p - \tfrac1n) \big) \Big)$$

    at the end of each epoch, with Proj the Euclidean projection to the probability simplex and l_i the mean loss of the
    graphs that drew augmentation i in the epoch: one step up the game min_theta max_p E_p[loss] - gamma/2 |p - 1/n|^2.
    A graph's loss is that of its anchors, of one view or of both. What is drawn in training tells l, at no further
    pass; it is the derivative of the expected loss by p_i but for i's part as a negative of other graphs.

    An augmentation that no graph drew counts as the mean of all graphs. Then only gamma acts on it, and brings back
    what had fallen to probability 0: gamma alpha / n in the next epoch.

    Across ranks l is that of the graphs of all, so that p is the same on each.

    The pool is a view made by `one_of` or `random2/3/4`; its weights, equal by default, are where p starts. Where both
    views are, each has a distribution of its own, and its augmentations are drawn independently of the other's.
    `Epoch.diagnostics` and `metrics.jsonl` hold the probabilities after each epoch, as `p_node_drop` and so on; with
    two pools as `p1_...` and `p2_...`.

    Differs: the paper's p is over pairs of augmentations of both views; one for each view has 2n numbers for n^2, each
    told by n times as many graphs. The released TU code keeps the first view original, as our configurations do. It
    measures l at the end of the epoch, in further passes over a fifth of the data with one augmentation for all graphs,
    which move BatchNorm's statistics too; it projects by bisection to 1 % and rescales; and its alpha is 1.

    Args:
        model: encoder and projector.
        loss: of the two views' projections, with terms for each anchor.
        first: augmentation that makes the first view.
        second: augmentation that makes the second view; one of the two is a pool.
        gamma: pull towards equal probabilities, >= 0; the paper searched 0.01, 0.1 and 1.
        step_size: alpha, > 0.

    Raises:
        InputError: no view is a pool; a loss without terms for each anchor, or one that only pulls together; when
            called: views that do not tell what was drawn.

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
        first: Augmentation,
        second: Augmentation,
        *,
        gamma: NonNegative = 0.1,
        step_size: Positive = 1.0,
    ) -> None:
        super().__init__(model, loss)
        need_repulsion(self.loss, self.name)
        _need_terms(self.loss, self.name)
        self.gamma, self.step_size = gamma, step_size
        self._given = first, second
        self._views = tuple(LearnedPool(each) if isinstance(each, OneOf) else each for each in self._given)
        self._pools = {number: each for number, each in enumerate(self._views) if isinstance(each, LearnedPool)}
        if not self._pools:
            raise InputError(
                f"method `{self.name}` learns how often each augmentation of a pool is drawn, and no view is one: make "
                f"one by random2, random3, random4 or one_of; got {first!r} and {second!r}."
            )
        self.distributions = nn.ModuleList(each.distribution for each in self._pools.values())
        self._new: tuple[Tensor, list[Tensor]] | None = None

    def augmentations(self, first: Augmentation, second: Augmentation) -> tuple[Augmentation, Augmentation]:
        """The views that the method was made for, their pools drawn from as it has learned to.

        Raises:
            InputError: these are others.
        """
        for given, mine, own in zip((first, second), self._given, self._views, strict=True):
            if given is not own and repr(given) != repr(mine):
                raise InputError(f"method `{self.name}` was made for the view {mine!r}, got {given!r}.")
        one, other = self._views
        return one, other

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """See `Method`."""
        views = view1, view2
        drawn = {number: self._drawn(views[number]) for number in self._pools}
        h, other = self.model.encode_views(view1, view2)
        z1, z2 = self.project(h, 0, drawn.get(0)), self.project(other, 1, drawn.get(1))
        terms: Tensor = self.loss(z1, z2, reduction="none")
        if terms.dim() != 1 or terms.numel() % h.size(0):
            raise InputError(
                f"the loss must give a term for each anchor of {h.size(0)} graphs, got {list(terms.shape)}."
            )
        # The second view's anchors, where there are any, come after the first's.
        self._new = terms.detach().view(-1, h.size(0)).mean(dim=0), list(drawn.values())
        return Outcome(terms.mean(), h, z1, z2)

    def project(self, h: Tensor, view: int, drawn: Tensor | None) -> Tensor:
        """Projections `[B, D]` of embeddings `[B, H]` of a view, 0 or 1, whose graphs drew some members `[B]`."""
        z: Tensor = self.model.projector(h)
        return z

    def after_step(self) -> None:
        """The losses of the batch's graphs count for what they drew."""
        if self._new is not None:
            loss, drawn = self._new
            for pool, mine in zip(self._pools.values(), drawn, strict=True):
                pool.distribution.add(mine, loss)
            self._new = None

    def after_epoch(self) -> dict[str, float]:
        """Probabilities move towards what lost most; gives them."""
        for pool in self._pools.values():
            pool.distribution.ascend(self.gamma, self.step_size)
        return self.probabilities()

    def probabilities(self) -> dict[str, float]:
        """Of each augmentation of the pool, by name."""
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
                f"method `{self.name}` must know what each graph drew; make views by its own "
                f"`augmentations(first, second)`."
            )
        return drawn


def _need_terms(loss: LossOfViews, method: str) -> None:
    """Refuse a loss that has no terms for each anchor."""
    need(loss, ("reduction",), method)
    if not isinstance(loss, Loss) and "reduction" not in inspect.signature(loss).parameters:
        raise InputError(f"method `{method}` passes `reduction` to the loss, which this function does not take.")
