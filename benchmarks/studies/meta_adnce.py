"""Train ADNCE with mu and sigma from a meta-gradient: python benchmarks/studies/meta_adnce.py --config adnce ...

Takes the arguments of `python -m graphcl.run`; the method is `meta_adnce`, with settings such as `--method.meta_lr`.
Prints the final mu and sigma. A study, not a part of the package.
"""

from __future__ import annotations

import sys
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl import run
from graphcl.arguments import Finite, NonNegative, Positive
from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.losses.engine.unit import normalize
from graphcl.methods.method import LossOfViews, Outcome
from graphcl.methods.two_views import TwoViews
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods
from graphcl.training.diagnostics import alignment, uniformity

Through = Literal["points", "map"]
MADE: list[MetaADNCE] = []


def worst_weights(a: Tensor, b: Tensor, mu: Tensor, log_sigma: Tensor, temperature: float) -> Tensor:
    """Return the weight of each negative in the gradient, Q `[N, N]`, differentiable in mu and sigma."""
    c = a @ b.T
    pull = c / temperature - (c - mu).square() / (2 * (2 * log_sigma).exp())
    return pull.masked_fill(torch.eye(len(c), dtype=torch.bool, device=c.device), -torch.inf).softmax(dim=1)


def meta_objective(
    z1: Tensor,
    z2: Tensor,
    mu: Tensor,
    log_sigma: Tensor,
    *,
    temperature: float,
    symmetric: bool,
    inner_lr: float,
    through: Through,
) -> Tensor:
    r"""Return alignment plus uniformity (Wang and Isola 2020) after a step of ADNCE, a function of mu and log sigma.

    $$u' = \mathrm{norm}(u - \alpha G), \qquad G_a = Q b - b, \quad G_b = Q^T a - a$$

    G is tau N dL / du of the one-way loss with constant weights, in closed form, so the step needs no second
    derivative; a symmetric loss has the mean of both directions' Q.

    `points`: the step moves the batch's unit projections, which are then scored. `map`: half of the batch determines
    the step of a shared linear map, u' = norm(u (1 - alpha U^T G / n)), and the other half is scored.
    """
    a, b = normalize(z1.detach()), normalize(z2.detach())
    held_a, held_b = a, b
    if through == "map":
        half = max(2, len(a) // 2)
        held_a, held_b, a, b = a[-half:], b[-half:], a[:half], b[:half]
    q = worst_weights(a, b, mu, log_sigma, temperature)
    if symmetric:
        q = (q + worst_weights(b, a, mu, log_sigma, temperature).T) / 2
    step_a, step_b = q @ b - b, q.T @ a - a
    if through == "map":
        step = (a.T @ step_a + b.T @ step_b) / len(a)
        step_a, step_b = held_a @ step, held_b @ step
    after_a, after_b = normalize(held_a - inner_lr * step_a), normalize(held_b - inner_lr * step_b)
    return alignment(after_a, after_b) + (uniformity(after_a) + uniformity(after_b)) / 2


@methods.register("meta_adnce")
class MetaADNCE(TwoViews):
    """ADNCE whose mu and sigma take a step of Adam on `meta_objective` at every batch, before the loss.

    Args:
        model: encoder and projector.
        loss: `adnce`, negatives `cross`.
        mu: initial value.
        log_sigma: initial value.
        inner_lr: alpha, the size of the virtual step on unit projections.
        meta_lr: learning rate of mu and log sigma; 0 keeps them fixed.
        through: target of the virtual step, see `meta_objective`.

    Raises:
        InputError: for another loss or other negatives.
    """

    place: Tensor
    first: Tensor
    second: Tensor
    visits: Tensor

    def __init__(
        self,
        model: ContrastiveModel,
        loss: LossOfViews,
        *,
        mu: Finite = 0.7,
        log_sigma: Finite = 0.0,
        inner_lr: Positive = 0.1,
        meta_lr: NonNegative = 0.01,
        through: Through = "points",
    ) -> None:
        super().__init__(model, loss)
        if not isinstance(self.loss, Loss) or self.loss.name != "adnce" or self.setting("negatives") != "cross":
            raise InputError("method `meta_adnce` needs loss `adnce` with `negatives` cross.")
        self.inner_lr, self.meta_lr, self.through = inner_lr, meta_lr, through
        # Not parameters: the encoder's optimiser must not see them.
        self.register_buffer("place", torch.tensor([mu, log_sigma]))
        for name, shape in (("first", 2), ("second", 2), ("visits", 1)):
            self.register_buffer(name, torch.zeros(shape))
        MADE.append(self)

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """See `Method`."""
        h, other = self.model.encode_views(view1, view2)
        z1, z2 = self.model.project(h, other)
        self.follow(z1, z2)
        mu, log_sigma = self.place.tolist()
        value = self.loss(z1, z2, mu=mu, sigma=float(torch.tensor(log_sigma).exp()))
        return Outcome(value, h, z1, z2)

    def follow(self, z1: Tensor, z2: Tensor) -> None:
        """Run one step of Adam on mu and log sigma, clamped to a meaningful range for cosines."""
        with torch.enable_grad(), torch.autocast(z1.device.type, enabled=False):
            place = self.place.clone().requires_grad_()
            settings: Any = {name: self.setting(name) for name in ("temperature", "symmetric")}
            goal = meta_objective(z1, z2, *place, inner_lr=self.inner_lr, through=self.through, **settings)
            (slope,) = torch.autograd.grad(goal, place)
        self.visits += 1
        self.first.lerp_(slope, 0.1)
        self.second.lerp_(slope.square(), 0.001)
        first, second = self.first / (1 - 0.9**self.visits), self.second / (1 - 0.999**self.visits)
        self.place -= self.meta_lr * first / (second.sqrt() + 1e-12)
        self.place.clamp_(self.place.new_tensor([-3.0, -4.0]), self.place.new_tensor([3.0, 3.0]))


def main() -> int:
    """Run `graphcl.run`, then print the final mu and sigma of each seed."""
    words = sys.argv[1:]
    outcome = run.main([*words, *([] if "--method" in words else ["--method", "meta_adnce"])])
    for each in MADE:
        if each.visits > 1:  # not the dry run
            mu, log_sigma = each.place.tolist()
            print(f"mu {mu:.3f}, log sigma {log_sigma:.3f}: the pull peaks at cosine {_peak(each):.3f}")
    return outcome


def _peak(method: MetaADNCE) -> float:
    mu, log_sigma = method.place
    return float(mu + (2 * log_sigma).exp() / method.setting("temperature"))


if __name__ == "__main__":
    sys.exit(main())
