"""Train a method as a run does, with stops and resumes, and compare results."""

from unittest import mock

import torch
import torch.distributed as dist

from graphcl.distributed import ranks
from graphcl.distributed.launch import Ranks
from graphcl.errors import Stopped
from graphcl.experiment import trial as trial_module
from graphcl.experiment.output import Output
from graphcl.system.signals import Stop
from graphcl.tasks.task import make_task
from graphcl.training.checkpoint import Checkpoints


def trained(config, data, folder=None, stop=1000, resume=True, make=trial_module.make_method, **rules):
    """Train seed 0 by a trial on the current ranks, and return its method and history.

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
        output = Output()
        output.checkpoints = folder and Checkpoints(folder, stop=signal, **rules)
        torch.use_deterministic_algorithms(config.deterministic)
        try:
            with mock.patch.object(trial_module, "make_method", lambda *given: made.append(make(*given)) or made[-1]):
                trial = trial_module.Trial(make_task(config, data), 0, torch.device("cpu"), ranks=group)
            result = trial.run((), output)
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
