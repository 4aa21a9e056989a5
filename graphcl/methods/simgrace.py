"""SimGRACE: the encoder is perturbed in place of the graphs (Xia et al. 2022)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call
from torch_geometric.data import Batch

from graphcl.arguments import NonNegative
from graphcl.distributed import ranks
from graphcl.methods.method import LossOfViews, Method, Outcome, need_repulsion
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("simgrace", views="identity")
class SimGRACE(Method):
    r"""SimGRACE: the second view is the same graph through a perturbed encoder; no data augmentation.

    $$z' = g(f(G; \theta')), \qquad \theta'_l = \theta_l + \eta\, \sigma_l\, \epsilon, \quad \epsilon \sim N(0, 1)$$

    for each parameter tensor l of the encoder, with sigma_l the standard deviation of its entries; eps is drawn anew at
    each step. A tensor whose entries are all alike, such as BatchNorm's scale at first, stays as it is. The projector
    is not perturbed, and z' is a constant to the gradient, as in the released code. BatchNorm in the perturbed encoder
    takes the batch's statistics and leaves the encoder's running ones alone. Across ranks eps is rank 0's draw: one for
    the global batch.

    In a configuration both views are `identity`. From Python, augmented views are taken too: the first by the encoder,
    the second by the perturbed one.

    Differs: the paper's anchors are the z, as here; the released code's, one-way too, the z'.

    Args:
        model: encoder and projector.
        loss: of the projections and the perturbed encoder's.
        eta: size of the perturbation, >= 0; the released code's users choose among 0.1, 1, 10, 100.

    Raises:
        InputError: a loss that only pulls together.

    References:
        Xia et al., "SimGRACE: A Simple Framework for Graph Contrastive Learning without Data Augmentation", WWW 2022,
        Eq. 2 and 3 (arXiv 2202.03104).
    """

    def __init__(self, model: ContrastiveModel, loss: LossOfViews, *, eta: NonNegative = 1.0) -> None:
        super().__init__(model, loss)
        need_repulsion(self.loss, "simgrace")
        self.eta = eta

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """See `Method`."""
        h = self.model.encode(view1)
        z = self.model.projector(h)
        with torch.no_grad():
            other: Tensor = functional_call(self.model, self.perturbed(generator), (view2,))
        return Outcome(self.loss(z, other), h, z, other)

    @torch.no_grad()
    def perturbed(self, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """The encoder's parameters theta', and copies of its buffers, by their names in the model."""
        found = {f"encoder.{name}": each.clone() for name, each in self.model.encoder.named_buffers()}
        weights = {f"encoder.{name}": each for name, each in self.model.encoder.named_parameters()}
        sizes = [each.numel() for each in weights.values()]
        some = next(iter(weights.values()))
        noise = torch.randn(sum(sizes), generator=generator, dtype=some.dtype, device=some.device)
        for (name, each), eps in zip(weights.items(), ranks.broadcast(noise).split(sizes), strict=True):
            # A single number does not spread; torch calls its deviation NaN.
            size = self.eta * each.std() if each.numel() > 1 else 0.0
            found[name] = each + size * eps.view_as(each)
        return found
