"""Checks of training on several ranks, with stop and resume. `group.py` runs them, `test_ranks.py` reports them."""

import tempfile
from functools import partial
from unittest import mock

import pytest
import torch
import torch.distributed as dist

import graphcl.training.checkpoint
from graphcl import GRACE, Loss, TwoViews, load_dataset, make_config
from graphcl.datasets.dataset import with_groups
from graphcl.distributed import ranks
from graphcl.distributed.modules import data_parallel
from graphcl.errors import Stopped
from graphcl.extensions.nodes.models import NodeModel, node_gcn
from graphcl.losses.rows import NonFiniteInputError
from tests.conftest import small_graphs
from tests.extensions.nodes.nodes import node_views
from tests.methods.small import seeded
from tests.training import helpers
from tests.training.helpers import equal, figures
from tests.training.test_micro_batch import joined

CLOSE = {"rtol": 1e-9, "atol": 1e-10}
GRAPHS = with_groups(load_dataset(small_graphs(32)), [number % 16 for number in range(32)])
SMALL = {"encoder": {"name": "gin", "hidden_channels": 8, "num_layers": 2}, "batch_size": 16, "epochs": 2}
NODES = {"dataset": "sbm-400", "method": "grace", "epochs": 3, "optimizer": "sgd", "deterministic": True}
NODES["encoder"] = {"name": "node_gcn", "hidden_channels": 8, "out_channels": 8, "norm": "batch_norm"}


def trained(settings, *arguments, alone=False, **options):
    """Train on all ranks, or on each `alone`; see `tests.training.helpers.trained`."""
    config = make_config(settings if "dataset" in settings else {**SMALL, **settings})
    data = load_dataset("sbm-400", nodes=True) if "dataset" in settings else GRAPHS
    with ranks.across(None if alone else dist.group.WORLD):
        return helpers.trained(config, data, *arguments, **options)


def assert_equal_on_all_ranks(method):
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, {key: each for key, each in method.state_dict().items() if torch.is_tensor(each)})
    assert all(torch.equal(each, other[key]) for other in every for key, each in every[0].items())


def shared_folder():
    return ranks.broadcast_object(tempfile.mkdtemp(), dist.group.WORLD)


def resumes(settings, looks):
    """Training that is stopped and resumed after each epoch of `looks` checks equals uninterrupted training."""
    settings = {**settings, "deterministic": True}
    whole, history = trained(settings)
    resumed, found = trained(settings, shared_folder(), looks)
    assert equal(resumed, whole)
    assert figures(found) == figures(history)
    assert_equal_on_all_ranks(resumed)


def resumes_within_an_epoch():
    """Stop within an epoch. All ranks stop at the same step, complete the epoch after resuming, and stay equal."""
    with mock.patch.multiple(graphcl.training.checkpoint, GRACE=0, AGREE=2):
        resumed, history = trained({"batch_size": 8, "epochs": 1}, shared_folder(), 1)
    assert len(history) == 1
    assert_equal_on_all_ranks(resumed)


def all_reduce_of_ddp():
    """DDP's all-reduce and the sum in rank order agree up to rounding; one process draws other views."""
    (plain, history), (_, ordered) = (trained({"deterministic": each}) for each in (False, True))
    assert [each.loss for each in history] == pytest.approx([each.loss for each in ordered], rel=1e-3)
    assert_equal_on_all_ranks(plain)
    assert not torch.equal(next(plain.parameters()), next(trained({}, alone=True)[0].parameters()))


class NonFiniteOnOne:
    """Loss that on rank 0 returns NaN at the second call and raises an error at the third."""

    calls = 0

    def __call__(self, z1, z2):
        self.calls += ranks.rank() == 0
        if self.calls == 3:
            raise NonFiniteInputError("`z1` is not finite.")
        with ranks.across(None):  # without collectives
            return Loss("infonce")(z1, z2) * (torch.nan if self.calls == 2 else 1.0)


def all_ranks_skip():
    """All ranks skip a step with NaN or an error on one rank."""

    def of_one(task, model, seed):
        return TwoViews(model, NonFiniteOnOne())

    method, history = trained({"non_finite": "skip", "epochs": 1, "batch_size": 8}, make=of_one)
    assert history[0].diagnostics["skipped"] == 2
    assert_equal_on_all_ranks(method)


# -- nodes: the ranks divide the nodes of the same views ---------------------------------------------------------------


def build(loss, nodes_per_step):
    """Return `grace` in float64 with fixed initial weights; its encoder has BatchNorm."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = NodeModel(node_gcn(5, hidden_channels=8, out_channels=6, norm="batch_norm"), projector="elu").double()
    return GRACE(model, loss, nodes_per_step=nodes_per_step).train()


def one_process(loss, nodes, drawn=None, alone=None):
    """Compare loss, gradients and running statistics; one process contrasts `alone` nodes, by default `drawn`."""
    views = node_views(nodes)
    single, shared = build(loss, alone or drawn), build(loss, drawn)
    expected = single(*views, generator=seeded(5)).loss
    expected.backward()
    with ranks.across(dist.group.WORLD):
        together = data_parallel(shared, torch.device("cpu"))  # averages gradients as long as it exists
        found = together(*views, generator=seeded(5))
        found.loss.backward()
        assert found.z1.size(0) == (drawn or nodes) // ranks.size(), "a rank contrasts its part of the nodes"
        value = ranks.sum_over_ranks(found.loss.detach()) / ranks.size()
    torch.testing.assert_close(value, expected.detach(), **CLOSE)
    for one, other in zip(shared.parameters(), single.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, **CLOSE)
    torch.testing.assert_close([*shared.buffers()], [*single.buffers()], **CLOSE)


def nodes_as_one_process():
    """A run on all ranks, also one that a single process began, equals the run of one process up to rounding."""
    single, history = trained(NODES, alone=True)
    folder = shared_folder()
    if dist.get_rank() == 0:
        with pytest.raises(Stopped):
            trained(NODES, folder, 2, alone=True, resume=False)
    dist.barrier()
    for place in (None, folder):
        together, found = trained(NODES, place)
        assert [each.loss for each in found] == pytest.approx([each.loss for each in history], rel=1e-5)
        torch.testing.assert_close([*together.parameters()], [*single.parameters()], rtol=1e-4, atol=1e-6)
        assert_equal_on_all_ranks(together)


def pieces_as_ranks(frozen):
    """One process with as many pieces as ranks, and ranks; without statistics of batches, also ranks with pieces."""
    given = {"positives": "group", "optimizer": "sgd", "deterministic": True, "frozen_bn": frozen}
    single, history = trained({**given, "micro_batch": 16 // dist.get_world_size()}, alone=True)
    together, found = trained({**given, "micro_batch": 3 if frozen else None})
    assert [each.loss for each in found] == pytest.approx([each.loss for each in history], rel=1e-5)
    torch.testing.assert_close(together.state_dict(), single.state_dict(), rtol=1e-4, atol=1e-6)


class Joined(TwoViews):
    """Contrasts lazy views after their pieces are drawn once and joined."""

    def forward(self, view1, view2, **given):
        self.model.micro_batch = None
        return super().forward(joined(view1), joined(view2), **given)


def pieces_of_random_views():
    """On each rank, the gradient of pieces that are drawn again is that of the same views in one piece."""
    settings = {"micro_batch": 3, "frozen_bn": True, "optimizer": "sgd", "deterministic": True}
    pieces, history = trained(settings)
    whole, found = trained(settings, make=lambda *given: Joined(given[1], "infonce"))
    assert [each.loss for each in found] == pytest.approx([each.loss for each in history], rel=1e-5)
    torch.testing.assert_close(pieces.state_dict(), whole.state_dict(), rtol=1e-4, atol=1e-6)
    assert_equal_on_all_ranks(pieces)


CHECKS = {
    "pieces": partial(pieces_as_ranks, True),
    "pieces_with_batchnorm": partial(pieces_as_ranks, False),
    "pieces_of_random_views": pieces_of_random_views,
    "memory_bank": partial(resumes, {"loss": "instance_nce", "method": {"name": "memory_bank", "warmup": 1}}, 1),
    "pairs": partial(resumes, {"positives": "group", "method": "moco", "batch_size": 8}, 2),
    "sync_batchnorm": partial(resumes, {"sync_batchnorm": True}, 1),
    "within_epoch": resumes_within_an_epoch,
    "all_reduce": all_reduce_of_ddp,
    "skip": all_ranks_skip,
    "nodes_tiled": partial(one_process, Loss("nt_xent", engine="tiled"), 24),
    "nodes_whole_batch_statistics": partial(one_process, Loss("barlow_twins"), 24),
    "drawn_nodes": partial(one_process, Loss("infonce"), 20, drawn=8),
    "a_remainder_of_nodes_is_omitted": partial(one_process, Loss("infonce"), 21, alone=20),
    "nodes_as_one_process": nodes_as_one_process,
    "nodes_resume": partial(resumes, NODES, 2),
}
ON_FOUR = [
    "pieces_of_random_views", "sync_batchnorm", "within_epoch", "all_reduce", "skip", "nodes_tiled",
    "a_remainder_of_nodes_is_omitted",
]  # fmt: skip
