"""Train a method as a run does, with stops and resumes, and compare results."""

from unittest import mock

import torch
import torch.distributed as dist

from graphcl.distributed import ranks
from graphcl.distributed.launch import Ranks
from graphcl.errors import Stopped
from graphcl.experiment import seed as seed_module
from graphcl.experiment.build import make_method
from graphcl.experiment.context import Context
from graphcl.system.signals import Stop
from graphcl.training.checkpoint import Checkpoints


def trained(config, data, folder=None, stop=1000, resume=True, make=make_method, **rules):
    """Train seed 0 by `run_seed` on the current ranks, and return its method and history.

    With `folder`, checkpoints are saved by the `rules`. `stop` is a stop signal, or the number of the check at which
    the last rank receives one; training then raises `Stopped`, or is resumed until it is complete. `make` takes the
    place of `make_method`.
    """
    group = Ranks()
    group.rank, group.size = ranks.rank(), ranks.size()
    group.process_group = dist.group.WORLD if group.size > 1 else None
    made = []
    while True:
        signal = stop if isinstance(stop, Stop) else StopAfter(stop)
        context = Context(group, folder and Checkpoints(folder, stop=signal, **rules))
        torch.use_deterministic_algorithms(config.deterministic)
        try:
            with mock.patch.object(seed_module, "make_method", lambda *given: made.append(make(*given)) or made[-1]):
                result = seed_module.run_seed(config, data, 0, torch.device("cpu"), rows=(), context=context)
            return made[-1], result.history
        except Stopped:
            if not resume:
                raise
        finally:
            torch.use_deterministic_algorithms(False)


class StopAfter(Stop):
    """Stop signal that the last rank receives at check number `looks`; training checks after each step and epoch."""

    def __init__(self, looks):
        self.looks = looks

    @property
    def requested(self):
        self.looks -= ranks.rank() == ranks.size() - 1
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
