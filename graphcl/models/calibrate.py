"""Recompute BatchNorm's running statistics over a whole data set, without changing weights."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import update_bn
from torch_geometric.data import Batch

from graphcl.models.contrastive import ContrastiveModel


def has_batchnorm(module: nn.Module) -> bool:
    """Return whether `module` contains a BatchNorm layer with running statistics."""
    return any(isinstance(each, _BatchNorm) and each.track_running_stats for each in module.modules())


def calibrate(model: ContrastiveModel, loader: Iterable[Batch]) -> ContrastiveModel:
    r"""Return a copy of `model` with BatchNorm statistics averaged over all batches of `loader`.

    $$\mu = \frac1T \sum_t \mu_t, \qquad \sigma^2 = \frac1T \sum_t \sigma_t^2$$

    where $\mu_t$ and $\sigma_t^2$ are the mean and variance of batch t out of T. During training, BatchNorm keeps an
    exponential moving average instead, which the last batches dominate. The weights do not change. The batches, on the
    model's device, should be shuffled and equally large: all count the same, and the variance of a batch of graphs of
    one class or size only is too small.

    References:
        Wu and Johnson, "Rethinking 'Batch' in BatchNorm", 2021, section 3 (PreciseBN), arXiv 2105.07576.
    """
    calibrated = copy.deepcopy(model)
    device = next(model.parameters()).device
    # Dropout draws from the global generators; restore them, so that training is not affected.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        update_bn(loader, calibrated, device=device)
    return calibrated
