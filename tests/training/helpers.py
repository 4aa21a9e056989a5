"""Train a given model or method as `run_seed` does, and compare trainings."""

import torch

from graphcl.datasets.loader import make_loader
from graphcl.distributed import ranks
from graphcl.distributed.batchnorm import synchronise
from graphcl.distributed.launch import Group
from graphcl.experiment.build import make_augmentations, make_method
from graphcl.experiment.seed import reproducible
from graphcl.system.signals import Stop
from graphcl.training.loop import train

NAMES = ("epochs", "steps", "lr", "weight_decay", "clip_norm", "amp", "non_finite", "diagnostics", "deterministic")


def train_seed(config, dataset, model, seed=0, method=None, checkpoints=None, callbacks=()):
    """Return the epochs of a training of `model` under the settings of `config`, on the current ranks."""
    group, device = Group(), next(model.parameters()).device
    group.rank, group.size = ranks.rank(), ranks.size()
    order = torch.Generator().manual_seed(2 * seed)
    views = torch.Generator(device).manual_seed(2 * seed + 1 + group.rank * 2**41)
    shard = (group.rank, group.size)
    loader = make_loader(dataset, config.batch_size, True, order, device, config.shuffle_window, shard)
    method = make_method(config, dataset, model, seed) if method is None else method
    with reproducible(seed, group, device):
        return train(
            synchronise(method) if config.sync_batchnorm else method,
            loader,
            *make_augmentations(config),
            **{name: getattr(config, name) for name in NAMES},
            generator=views,
            callbacks=callbacks,
            checkpoints=checkpoints,
        )


class StopAfter(Stop):
    """Wants to stop at the given look; there is one look after each step and one after each epoch."""

    def __init__(self, looks, rank=0):
        self.looks, self.rank = looks, rank

    @property
    def wanted(self):
        self.looks -= ranks.rank() == self.rank
        return self.looks == 0


def figures(history):
    """Return the figures of each epoch, without times."""
    return [{key: value for key, value in each.figures().items() if "seconds" not in key} for each in history]


def equal(one, other):
    """Return True if two modules have bitwise equal states."""
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(
        torch.equal(each, second[key]) if torch.is_tensor(each) else each == second[key] for key, each in first.items()
    )
