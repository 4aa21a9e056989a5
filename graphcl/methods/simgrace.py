"""SimGRACE: perturb the encoder instead of the graphs (Xia et al. 2022)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call
from torch_geometric.data import Batch

from graphcl.arguments import NonNegative
from graphcl.distributed import ranks
from graphcl.methods.method import LossOfViews, Method, Outcome, weight_of
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("simgrace", views="identity", repels="yes", pairs="weight")
class SimGRACE(Method):
    r"""SimGRACE: contrast a graph with itself, encoded by a perturbed encoder, without data augmentation.

    $$z' = g(f(G; \theta')), \qquad \theta'_l = \theta_l + \eta\, \sigma_l\, \epsilon, \quad \epsilon \sim N(0, 1)$$

    Here theta_l is a parameter tensor of the encoder f, sigma_l the standard deviation of its entries, g the projector,
    and eps is drawn at each step. A tensor of equal entries, such as the initial scale of BatchNorm, is not
    perturbed. As in the released code, the projector is not perturbed, and z' has no gradient. BatchNorm in the
    perturbed encoder uses the batch statistics and leaves the running statistics unchanged. All ranks use the eps drawn
    by rank 0.

    In a configuration both views are `identity`. From Python, views may be augmented too: the encoder receives the
    first view, the perturbed encoder the second.

    Differs: the anchors are the projections z, as in the paper; in the released code they are z'.

    Args:
        model: encoder and projector.
        loss: loss of the two encoders' projections.
        eta: size eta of the perturbation, >= 0; the released code searches 0.1, 1, 10 and 100.

    Raises:
        InputError: the loss has no negatives.

    References:
        Xia et al., "SimGRACE: A Simple Framework for Graph Contrastive Learning without Data Augmentation", WWW 2022,
        Eq. 2 and 3 (arXiv 2202.03104).
    """

    def __init__(self, model: ContrastiveModel, loss: LossOfViews, *, eta: NonNegative = 1.0) -> None:
        super().__init__(model, loss)
        self.eta = eta

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the loss of a batch, see `Method`."""
        h = self.model.encode(view1)
        z = self.model.projector(h)
        with torch.no_grad():
            other: Tensor = functional_call(self.model, self.perturbed(generator), (view2,))
        return Outcome(self.loss(z, other, **weight_of(view1), **self.draws(generator)), h, z, other)

    @torch.no_grad()
    def perturbed(self, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """Return, by name in the model, perturbed parameters of the encoder and copies of its buffers."""
        state = {f"encoder.{name}": buffer.clone() for name, buffer in self.model.encoder.named_buffers()}
        weights = {f"encoder.{name}": weight for name, weight in self.model.encoder.named_parameters()}
        sizes = [weight.numel() for weight in weights.values()]
        some = next(iter(weights.values()))
        noise = torch.randn(sum(sizes), generator=generator, dtype=some.dtype, device=some.device)
        for (name, weight), eps in zip(weights.items(), ranks.broadcast(noise).split(sizes), strict=True):
            # The standard deviation of a single number is NaN, so such a tensor is not perturbed.
            size = self.eta * weight.std() if weight.numel() > 1 else 0.0
            state[name] = weight + size * eps.view_as(weight)
        return state
