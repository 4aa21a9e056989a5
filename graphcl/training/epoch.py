"""Compute the metrics of training steps, and record their means for each epoch."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from graphcl.methods import Method, Outcome
from graphcl.training.diagnostics import alignment, diagnose, uniformity

_ROWS = 1024
"""Rows of a batch used for metrics: uniformity costs O(rows^2), and about a thousand rows estimate it well enough."""


@dataclass(frozen=True)
class Epoch:
    """The metrics of one epoch: means over the epoch's steps, and times.

    Args:
        epoch: number of the epoch, from 1.
        loss: training loss.
        alignment: alignment of the two views' projections, see `graphcl.training.diagnostics.alignment`.
        uniformity: uniformity of the first views' projections, see `graphcl.training.diagnostics.uniformity`.
        seconds: wall time of the epoch.
        data_seconds: part of `seconds` spent on loading and augmenting batches (on CUDA, this contains waiting for
            earlier steps).
        diagnostics: the method's own metrics, the number of `skipped` steps and, with `diagnostics=True`, the metrics
            of `graphcl.training.diagnostics.diagnose`.
    """

    epoch: int
    loss: float
    alignment: float
    uniformity: float
    seconds: float
    data_seconds: float
    diagnostics: dict[str, float] = field(default_factory=dict)

    def metrics(self) -> dict[str, float]:
        """Return all metrics by name, including the diagnostics, without the epoch's number."""
        main = {name: value for name, value in vars(self).items() if name not in ("epoch", "diagnostics")}
        return main | self.diagnostics


@torch.no_grad()
def measure(outcome: Outcome, diagnostics: bool, method: Method) -> dict[str, Tensor]:
    """Return the metrics of one step: loss, alignment, uniformity and, with `diagnostics`, the result of `diagnose`."""
    h, z1, z2 = outcome.h[:_ROWS], outcome.z1[:_ROWS], outcome.z2[:_ROWS]
    found = {"loss": outcome.loss.detach(), "alignment": alignment(z1, z2), "uniformity": uniformity(z1)}
    if diagnostics:
        found |= diagnose(h, z1, z2, method.setting("temperature", 0.2))
    return found
