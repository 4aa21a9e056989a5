"""Train a given model or method as `run_seed` does, and compare training results."""

from unittest import mock

import torch
import torch.distributed as dist

from graphcl.distributed import ranks
from graphcl.distributed.launch import Group
from graphcl.experiment import seed as seed_module
from graphcl.experiment.build import make_method
from graphcl.experiment.context import Context
from graphcl.system.signals import Stop


def train_seed(config, dataset, model, method=None, checkpoints=None):
    """Train `model` by `run_seed` on the current ranks, and return the epochs."""
    group = Group()
    group.rank, group.size = ranks.rank(), ranks.size()
    group.process_group = dist.group.WORLD if group.size > 1 else None
    method = make_method(config, dataset, model) if method is None else method
    with (
        mock.patch.object(seed_module, "make_model", return_value=model),
        mock.patch.object(seed_module, "make_method", return_value=method),
    ):
        device = next(model.parameters()).device
        context = Context(group, checkpoints)
        torch.use_deterministic_algorithms(config.deterministic)
        try:
            return seed_module.run_seed(config, dataset, 0, device, rows=(), context=context).history
        finally:
            torch.use_deterministic_algorithms(False)


class StopAfter(Stop):
    """Stop signal that is set at check number `looks`; training checks it after each step and after each epoch."""

    def __init__(self, looks, rank=0):
        self.looks, self.rank = looks, rank

    @property
    def requested(self):
        self.looks -= ranks.rank() == self.rank
        return self.looks == 0


def figures(history):
    """Return the metrics of each epoch, without times."""
    return [{key: value for key, value in each.metrics().items() if "seconds" not in key} for each in history]


def equal(one, other):
    """Return True if two modules have bitwise equal states."""
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(
        torch.equal(each, second[key]) if torch.is_tensor(each) else each == second[key] for key, each in first.items()
    )
