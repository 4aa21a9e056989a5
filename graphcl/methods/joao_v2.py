"""JOAOv2: JOAO, and a projection head for each augmentation (You et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcl.arguments import NonNegative, Positive
from graphcl.augment.transform import Augmentation
from graphcl.methods.joao import JOAO
from graphcl.methods.method import LossOfViews
from graphcl.methods.pool import LearnedPool
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("joao_v2")
class JOAOv2(JOAO):
    r"""JOAOv2: `joao`, and a projection head for each augmentation.

    $$z = g_a(h), \qquad a = \text{the augmentation that the graph was drawn for}$$

    so that the encoder need not make views alike that a head can. There are as many heads as different augmentations in
    both views together, a view that is no pool counted too: original graphs have a head of their own, which a pool's
    `identity` shares. The model's projector is the head of the first; none is kept after training.

    Every graph goes through all heads of its view and one result is picked: no shape depends on what was drawn.

    Differs: the released code draws one head an epoch for all graphs, by p but whatever they were augmented by, and
    original graphs go through that of node dropping.

    Args:
        model: encoder and projector.
        loss: of the two views' projections, with terms for each anchor.
        first: augmentation that makes the first view.
        second: augmentation that makes the second view; one of the two is a pool.
        gamma: pull towards equal probabilities, >= 0.
        step_size: of the probabilities' step, > 0.

    Raises:
        InputError: as for `joao`.

    References:
        You et al., "Graph Contrastive Learning Automated", ICML 2021, Section 3.4 (arXiv 2106.07594).
    """

    name = "joao_v2"

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
        super().__init__(model, loss, first, second, gamma=gamma, step_size=step_size)
        numbers: dict[str, int] = {}  # of heads, by what they are for
        self._heads: list[list[int]] = []
        for view in self._views:
            members = view.members if isinstance(view, LearnedPool) else [view]
            self._heads.append([numbers.setdefault(repr(each), len(numbers)) for each in members])
        self.others = nn.ModuleList(model.new_head() for _ in range(len(numbers) - 1))

    def head(self, number: int) -> nn.Module:
        """A head by its number: the model's own projector, then the others."""
        return self.others[number - 1] if number else self.model.projector

    def project(self, h: Tensor, view: int, drawn: Tensor | None) -> Tensor:
        """Projections `[B, D]`, each by the head of what its graph drew `[B]`."""
        if drawn is None:
            (number,) = self._heads[view]
            z: Tensor = self.head(number)(h)
            return z
        every = torch.stack([self.head(number)(h) for number in self._heads[view]])
        return every.gather(0, drawn[None, :, None].expand(1, *every.shape[1:]))[0]
