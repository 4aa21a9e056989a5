"""Training across ranks, stopped and resumed: run by `group.py`, reported by `test_training.py`."""

import tempfile

import torch
import torch.distributed as dist

from graphcl.config.settings import make_config
from graphcl.datasets import load_dataset
from graphcl.distributed import ranks
from graphcl.errors import Stopped
from graphcl.experiment.seed import make_method, make_model, train_seed
from graphcl.losses import Loss
from graphcl.losses.engine.checks import NonFiniteInputError
from graphcl.methods import TwoViews
from graphcl.system.signals import Stop
from graphcl.training.checkpoint import Checkpoints
from tests.conftest import small_graphs

DATA = load_dataset(small_graphs(70))
SMALL = {"encoder": {"name": "gin", "hidden": 8, "layers": 2}, "batch_size": 16, "epochs": 3}


class StopOnLast(Stop):
    """The last rank wants to stop at the so manieth look."""

    def __init__(self, looks):
        self.looks = looks

    @property
    def wanted(self):
        self.looks -= ranks.rank() == ranks.size() - 1
        return self.looks == 0


def trained(settings, folder=None, looks=1000, loss=None):
    """Method and history of a seed on all ranks; stopped at the so manieth look, and resumed, until it is over."""
    config = make_config({**SMALL, **settings})
    with ranks.across(dist.group.WORLD):
        while True:
            model = make_model(config, DATA)
            method = make_method(config, DATA, model) if loss is None else TwoViews(model, loss)
            kept = None if folder is None else Checkpoints(folder, stop=StopOnLast(looks))
            try:
                return method, train_seed(config, DATA, model, method=method, checkpoints=kept)
            except Stopped:
                assert folder is not None


def assert_same(one, other):
    first, second = one.state_dict(), other.state_dict()
    assert first.keys() == second.keys()
    for key, each in first.items():
        assert torch.equal(each, second[key]) if torch.is_tensor(each) else each == second[key], key


def assert_equal_on_all_ranks(method):
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, {key: each for key, each in method.state_dict().items() if torch.is_tensor(each)})
    assert all(torch.equal(each, other[key]) for other in every for key, each in every[0].items())


def figures(history):
    return [{key: each for key, each in epoch.figures().items() if "seconds" not in key} for epoch in history]


def goes_on(settings):
    """Unbroken, and stopped again and again, in the middle of epochs and at their ends."""

    def check():
        whole, history = trained(settings)
        with ranks.across(dist.group.WORLD):
            folder = ranks.share(tempfile.mkdtemp())
        resumed, found = trained(settings, folder, 4)
        assert_same(resumed, whole)
        assert figures(found) == figures(history)
        assert_equal_on_all_ranks(resumed)

    return check


def plain_differs():
    """Ranks draw views of their own: not all as one process would, and not the same as each other."""
    method, history = trained({"steps": 3})
    config = make_config({**SMALL, "steps": 3})
    model = make_model(config, DATA)
    train_seed(config, DATA, model)
    assert not torch.equal(next(method.parameters()), next(model.parameters()))
    assert len(history) == 1
    assert_equal_on_all_ranks(method)


class SickOnOne:
    """NaN on the first rank alone, at its second call; or a refusal of what it got at its third."""

    def __init__(self):
        self.calls, self.loss = 0, Loss("infonce")

    def __call__(self, z1, z2):
        self.calls += ranks.rank() == 0
        if self.calls == 3:
            raise NonFiniteInputError("`z1` is not finite.")
        with ranks.across(None):  # nothing tells the others
            return self.loss(z1, z2) * (torch.nan if self.calls == 2 else 1.0)


def a_sick_rank_is_skipped_by_all():
    method, history = trained({"non_finite": "skip", "epochs": 1}, loss=SickOnOne())
    assert history[0].diagnostics["skipped"] == 2
    assert_equal_on_all_ranks(method)


def a_view_that_only_its_rank_sees():
    """NaN in rows that are not sent, ahead of more that is."""
    config = make_config({**SMALL, "non_finite": "skip", "epochs": 1, "method": "moco"})
    calls = []

    def sicken(module, views):
        calls.append(1)
        if len(calls) == 2 and ranks.rank() == 0:
            views[0].x = views[0].x * torch.nan

    with ranks.across(dist.group.WORLD):
        model = make_model(config, DATA)
        method = make_method(config, DATA, model)
        method.register_forward_pre_hook(sicken)
        history = train_seed(config, DATA, model, method=method)
    assert history[0].diagnostics["skipped"] == 1
    assert_equal_on_all_ranks(method)


CHECKS = {
    "two_views": goes_on({}),
    "moco": goes_on({"loss": "moco", "method": {"name": "moco", "queue_size": 24}}),
    "memory_bank": goes_on({"loss": "instance_nce", "method": {"name": "memory_bank", "warmup": 1}}),
    "sync_batchnorm": goes_on({"sync_batchnorm": True}),
    "plain_differs": plain_differs,
    "skip": a_sick_rank_is_skipped_by_all,
    "skip_unseen": a_view_that_only_its_rank_sees,
}
