"""Checks of training on several ranks, with stop and resume. `group.py` runs them, `test_ranks.py` reports them."""

import math
import tempfile
from unittest import mock

import torch
import torch.distributed as dist

import graphcl.training.checkpoint
from graphcl.config import make_config
from graphcl.datasets import load_dataset
from graphcl.distributed import ranks
from graphcl.errors import Stopped
from graphcl.experiment.build import make_method, make_model
from graphcl.losses import Loss
from graphcl.losses.engine.checks import NonFiniteInputError
from graphcl.methods import TwoViews
from graphcl.training.checkpoint import Checkpoints
from tests.conftest import small_graphs
from tests.training.helpers import StopAfter, equal, figures, train_seed

DATA = load_dataset(small_graphs(48))
SMALL = {"encoder": {"name": "gin", "hidden_channels": 8, "num_layers": 2}, "batch_size": 16, "epochs": 2}


def trained(settings, folder=None, looks=1000, loss=None):
    """Train on all ranks and return method and history.

    With `folder`, the last rank stops the run at every `looks`-th opportunity, and the run is resumed until it ends.
    """
    config = make_config({**SMALL, **settings})
    with ranks.across(dist.group.WORLD):
        while True:
            model = make_model(config, DATA)
            method = make_method(config, DATA, model) if loss is None else TwoViews(model, loss)
            kept = None if folder is None else Checkpoints(folder, stop=StopAfter(looks, rank=ranks.size() - 1))
            try:
                return method, train_seed(config, DATA, model, method=method, checkpoints=kept)
            except Stopped:
                assert folder is not None


def assert_equal_on_all_ranks(method):
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, {key: each for key, each in method.state_dict().items() if torch.is_tensor(each)})
    assert all(torch.equal(each, other[key]) for other in every for key, each in every[0].items())


def shared_folder():
    with ranks.across(dist.group.WORLD):
        return ranks.broadcast_object(tempfile.mkdtemp())


def resumes(settings):
    """Return a check that training stopped and resumed after every epoch equals uninterrupted training."""

    def check():
        settings["deterministic"] = True
        whole, history = trained(settings)
        resumed, found = trained(settings, shared_folder(), 1)
        assert equal(resumed, whole)
        assert figures(found) == figures(history)
        assert_equal_on_all_ranks(resumed)

    return check


def resumes_within_an_epoch():
    """Stop within an epoch. All ranks stop at the same step, complete the epoch after resuming, and stay equal."""
    with mock.patch.object(graphcl.training.checkpoint, "GRACE", 0), mock.patch("graphcl.training.checkpoint.AGREE", 2):
        resumed, history = trained({}, shared_folder(), 2)
    assert len(history) == SMALL["epochs"]
    assert_equal_on_all_ranks(resumed)


def all_reduce_of_ddp():
    """DDP's all-reduce and the sum in rank order agree up to rounding."""
    (plain, history), (_, ordered) = (trained({"deterministic": each}) for each in (False, True))
    for one, other in zip(history, ordered, strict=True):
        assert math.isclose(one.loss, other.loss, rel_tol=1e-3)
    assert_equal_on_all_ranks(plain)


def plain_differs():
    """Each rank draws its own views, so the result differs from training on one process."""
    method, history = trained({"steps": 3})
    config = make_config({**SMALL, "steps": 3})
    model = make_model(config, DATA)
    train_seed(config, DATA, model)
    assert not torch.equal(next(method.parameters()), next(model.parameters()))
    assert len(history) == 1
    assert_equal_on_all_ranks(method)


class NonFiniteOnOne:
    """Loss that on rank 0 returns NaN at the second call and raises an error at the third."""

    def __init__(self):
        self.calls, self.loss = 0, Loss("infonce")

    def __call__(self, z1, z2):
        self.calls += ranks.rank() == 0
        if self.calls == 3:
            raise NonFiniteInputError("`z1` is not finite.")
        with ranks.across(None):  # without collectives
            return self.loss(z1, z2) * (torch.nan if self.calls == 2 else 1.0)


def all_ranks_skip():
    method, history = trained({"non_finite": "skip", "epochs": 1}, loss=NonFiniteOnOne())
    assert history[0].diagnostics["skipped"] == 2
    assert_equal_on_all_ranks(method)


def all_ranks_skip_what_one_has_not_sent():
    """One rank has NaN in rows that it does not send before the next collective."""
    config = make_config({**SMALL, "non_finite": "skip", "epochs": 1, "method": "moco"})
    calls = []

    def corrupt(module, views):
        calls.append(1)
        if len(calls) == 2 and ranks.rank() == 0:
            views[0].x = views[0].x * torch.nan

    with ranks.across(dist.group.WORLD):
        model = make_model(config, DATA)
        method = make_method(config, DATA, model)
        method.register_forward_pre_hook(corrupt)
        history = train_seed(config, DATA, model, method=method)
    assert history[0].diagnostics["skipped"] == 1
    assert_equal_on_all_ranks(method)


CHECKS = {
    "two_views": resumes({}),
    "moco": resumes({"loss": "moco", "method": {"name": "moco", "queue_size": 24}}),
    "memory_bank": resumes({"loss": "instance_nce", "method": {"name": "memory_bank", "warmup": 1}}),
    "sync_batchnorm": resumes({"sync_batchnorm": True}),
    "within_epoch": resumes_within_an_epoch,
    "all_reduce": all_reduce_of_ddp,
    "plain_differs": plain_differs,
    "skip": all_ranks_skip,
    "skip_unseen": all_ranks_skip_what_one_has_not_sent,
}
