"""Create the optimiser of a training run, and compute the learning rate of each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphcl.training.settings import TrainingSettings


def make_optimizer(settings: TrainingSettings, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    """Return Adam, AdamW or SGD with momentum 0.9. `weight_decay` is an L2 penalty, but decoupled in AdamW."""
    groups = parameter_groups(parameters)
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    more: dict[str, Any] = {"momentum": 0.9} if settings.optimizer == "sgd" else {"capturable": settings.capture}
    # A CUDA graph reads the rate of each replay from the device.
    lr: Any = torch.tensor(settings.lr, device=parameters[0].device) if settings.capture else settings.lr
    return kinds[settings.optimizer](groups, lr=lr, weight_decay=settings.weight_decay, fused=True, **more)


def parameter_groups(parameters: Sequence[Tensor]) -> list[dict[str, Any]]:
    """Return the parameters as groups of an optimiser; scalars, a learned temperature, have no weight decay."""
    scalars = [parameter for parameter in parameters if parameter.dim() == 0]
    rest: list[dict[str, Any]] = [{"params": [parameter for parameter in parameters if parameter.dim()]}]
    return [*rest, {"params": scalars, "weight_decay": 0.0}] if scalars else rest


def rate_factor(step: int, total: int, schedule: str, warmup: float) -> float:
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
