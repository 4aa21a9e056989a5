"""Create optimisers by name, and compute the learning rate of each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

OptimizerName = Literal["adam", "adamw", "sgd"]
Schedule = Literal["constant", "cosine"]


def make_optimizer(
    name: OptimizerName, parameters: Sequence[Tensor], lr: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Return Adam, AdamW or SGD with momentum 0.9. `weight_decay` is an L2 penalty, but decoupled in AdamW."""
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=lr, weight_decay=weight_decay, momentum=0.9, fused=True)
    kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    return kind(parameters, lr=lr, weight_decay=weight_decay, fused=True)


def rate_factor(step: int, total: int, schedule: Schedule, warmup: float) -> float:
    """Return the factor of the learning rate in step `step`, counted from 0, of `total` steps.

    The factor rises linearly to 1 over the first `warmup * total` steps. Then it stays 1 (`constant`), or falls to 0
    along half a cosine (`cosine`).

    Example:
        >>> [round(rate_factor(step, 8, "cosine", 0.25), 2) for step in range(8)]
        [0.5, 1.0, 1.0, 0.93, 0.75, 0.5, 0.25, 0.07]
    """
    rising = warmup * total
    if step < rising:
        return min(1.0, (step + 1) / rising)
    if schedule == "constant":
        return 1.0
    return (1 + math.cos(math.pi * min(1.0, (step - rising) / (total - rising)))) / 2
