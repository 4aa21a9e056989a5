"""JOAOv2: JOAO with one projector per augmentation (You et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcl.methods.joao import JOAO
from graphcl.methods.pool import LearnedPool
from graphcl.registry import methods


@methods.register("joao_v2")
class JOAOv2(JOAO):
    r"""JOAOv2: `joao` with one projector per augmentation.

    $$z = g_a(h), \qquad a = \text{the augmentation drawn for the graph}$$

    with the embedding h of a graph and the projector g_a of augmentation a. Differences between augmentations can thus
    be removed by the projectors instead of the encoder. There is one projector for each different augmentation in the
    two views. A view that is not a pool has a projector too; if it is `identity`, it shares the projector of `identity`
    in the pool. The first projector is that of the model. No projector is kept after training.

    Every graph passes through all projectors of its view, and the result of one is selected, so that shapes are static.

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
        if drawn is None:
            (number,) = self._numbers[view]
            z: Tensor = self.projector(number)(h)
            return z
        every = torch.stack([self.projector(number)(h) for number in self._numbers[view]])
        return every.gather(0, drawn[None, :, None].expand(1, *every.shape[1:]))[0]
