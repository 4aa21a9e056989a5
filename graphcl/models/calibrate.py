"""BatchNorm statistics over a whole data set, by forward passes without learning."""

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
    """Return whether a module normalises by running statistics."""
    return any(isinstance(each, _BatchNorm) and each.track_running_stats for each in module.modules())


def calibrate(model: ContrastiveModel, loader: Iterable[Batch]) -> ContrastiveModel:
    r"""Return a copy of a model whose BatchNorm statistics are means over all batches of a loader.

    $$\mu = \frac1T \sum_t \mu_t, \qquad \sigma^2 = \frac1T \sum_t \sigma_t^2$$

    over T batches. Training keeps an exponential moving average instead, which the last batches dominate. No weight
    changes. The batches should be shuffled: batches of one class or size each have too small a variance.

    Args:
        model: encoder and projector; not changed.
        loader: batches of graphs on the model's device.

    References:
        Wu and Johnson, "Rethinking 'Batch' in BatchNorm", 2021, section 3 (PreciseBN), arXiv 2105.07576.
    """
    calibrated = copy.deepcopy(model)
    device = next(model.parameters()).device
    # Dropout draws from the global generators.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        update_bn(loader, calibrated)
    return calibrated
