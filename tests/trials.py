"""Tasks and trials of tests, from settings and data, on the CPU."""

import torch

from graphcl.distributed.launch import Ranks
from graphcl.experiment import trial as module
from graphcl.tasks.task import make_task

CPU = torch.device("cpu")


def run_seed(config, dataset, seed=0, rows=None, output=None, device=CPU):
    """Run a trial, and return its result."""
    return module.Trial(make_task(config, dataset), seed, device).run(rows, output)


def try_settings(config, dataset, ranks=1):
    """Take the one step that finds settings which do not fit."""
    group = Ranks()
    group.size = ranks
    module.Trial(make_task(config, dataset), 0, CPU, ranks=group).try_step()


def make_model(config, dataset, seed=0, encoder=None):
    """Return the model of a task before training."""
    return make_task(config, dataset).make_model(seed, encoder)


def make_method(config, dataset, model):
    """Return the method of a task that trains `model`."""
    return module.make_method(make_task(config, dataset), model)


def describe(config, dataset, model, encoder=None):
    """Return the description of an encoder that is saved with its weights."""
    return make_task(config, dataset).description(model, encoder)
