"""BGRL: predict a momentum encoder's rows of nodes, without negatives (Thakoor et al. 2022)."""

from __future__ import annotations

import math

from torch import nn

from graphcl.arguments import Channels, Count, Fraction
from graphcl.methods.method import LossOfViews, ema_update
from graphcl.methods.siamese import BYOL
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("bgrl", rows="nodes", usual_views="drop_and_mask", loss="byol", projector="none")
class BGRL(BYOL):
    r"""BGRL: predict the momentum encoder's row of the same node in the other view, without negatives.

    $$-\frac{2}{N} \sum_i \cos(p(h_{1,i}), h'_{2,i}), \qquad m_k = 1 - (1 - m) \frac{\cos(\pi k / K) + 1}{2}$$

    Here h are the encoder's and h' the momentum encoder's rows of node i, p is the predictor (Linear, PReLU, Linear),
    and m_k is the momentum after step k. The formula is averaged over both directions; the loss `byol` adds the
    constant 2, so that it is in [0, 4]. The paper has no projector: `--projector none`, the default in a configuration.

    Differs: the momentum is constant unless `rise` is given; the paper raises it over all steps of training.

    Args:
        model: encoder and projector.
        loss: loss of predictions and targets, such as `byol`.
        momentum: momentum m at the first step, in [0, 1].
        hidden_channels: width of the predictor's hidden layer.
        rise: K, number of steps in which the momentum rises from m to 1 along a cosine; constant by default.

    References:
        Thakoor et al., "Large-Scale Representation Learning on Graphs via Bootstrapping", ICLR 2022 (arXiv
        2102.06514).
    """

    def __init__(
        self,
        model: ContrastiveModel,
        loss: LossOfViews,
        *,
        momentum: Fraction = 0.99,
        hidden_channels: Channels = 512,
        rise: Count | None = None,
    ) -> None:
        super().__init__(model, loss, momentum=momentum, hidden_channels=hidden_channels)
        width = model.projection
        self.predictor = nn.Sequential(nn.Linear(width, hidden_channels), nn.PReLU(), nn.Linear(hidden_channels, width))
        self.rise = rise
        self.step = 0

    def after_step(self) -> None:
        """Update the momentum encoder."""
        momentum = self.momentum
        if self.rise is not None:
            part = min(self.step / self.rise, 1.0)
            momentum = 1 - (1 - momentum) * (math.cos(math.pi * part) + 1) / 2
        ema_update(self.momentum_model, self.model, momentum)
        self.step += 1

    def get_extra_state(self) -> int:
        """Return the number of finished steps, which `state_dict` saves."""
        return self.step

    def set_extra_state(self, state: int) -> None:
        """Set the number of finished steps."""
        self.step = state
