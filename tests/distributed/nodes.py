"""Checks of `grace` on several ranks against one process. `group.py` runs them, `test_ranks.py` reports them."""

import copy
import math
import tempfile
from functools import partial

import torch
import torch.distributed as dist

from graphcl.config import make_config
from graphcl.datasets import load_dataset
from graphcl.distributed import ranks
from graphcl.distributed.data_parallel import data_parallel
from graphcl.errors import Stopped
from graphcl.experiment.build import make_method, make_model
from graphcl.losses import Loss
from graphcl.methods import GRACE
from graphcl.models.node_gcn import node_gcn
from graphcl.models.nodes import NodeModel
from graphcl.training.checkpoint import Checkpoints
from tests.methods.nodes import node_views
from tests.methods.small import seeded
from tests.training.helpers import StopAfter, equal, train_seed

CLOSE = {"rtol": 1e-9, "atol": 1e-10}
SMALL = {
    "dataset": "sbm-400",
    "encoder": {"name": "node_gcn", "hidden_channels": 8, "out_channels": 8, "norm": "batch_norm"},
}
SMALL |= {"method": "grace", "epochs": 4, "optimizer": "sgd", "deterministic": True}


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
    for one, other in zip(shared.buffers(), single.buffers(), strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


def trained(size, folder=None, stops=1):
    """Train on all ranks, or on each alone; with `folder`, resume, and stop at end of epoch number `stops`."""
    config = make_config(SMALL)
    dataset = load_dataset("sbm-400", nodes=True)
    with ranks.across(dist.group.WORLD if size > 1 else None):
        model = make_model(config, dataset)
        method = make_method(config, dataset, model)
        kept = None if folder is None else Checkpoints(folder, stop=StopAfter(stops))
        try:
            return method, train_seed(config, dataset, model, method=method, checkpoints=kept)
        except Stopped:
            return None


def training():
    """A run on all ranks equals the run of one process up to rounding."""
    single, history = trained(1)
    together, found = trained(dist.get_world_size())
    for one, other in zip(found, history, strict=True):
        assert math.isclose(one.loss, other.loss, rel_tol=1e-5), (one, other)
    for one, other in zip(together.parameters(), single.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, copy.deepcopy(together.state_dict()))
    assert all(torch.equal(each, every[0][key]) for other in every for key, each in other.items())


def resumed_by_more_ranks():
    """All ranks continue with the views that one process would draw."""
    _, history = trained(1)
    folders = [None]
    if dist.get_rank() == 0:
        folders = [tempfile.mkdtemp()]
        assert trained(1, folders[0], stops=2) is None
    dist.broadcast_object_list(folders)
    _, found = trained(dist.get_world_size(), folders[0], stops=10**6)
    assert len(found) == len(history)
    for one, other in zip(found, history, strict=True):
        assert math.isclose(one.loss, other.loss, rel_tol=1e-5), (one, other)


def resumes():
    whole, _ = trained(2)
    with ranks.across(dist.group.WORLD):
        folder = ranks.broadcast_object(tempfile.mkdtemp())
    assert trained(2, folder, stops=2) is None
    resumed, _ = trained(2, folder, stops=10**6)
    assert equal(resumed, whole)


CHECKS = {
    "all_nodes": partial(one_process, Loss("nt_xent"), 12),
    "tiled": partial(one_process, Loss("nt_xent", engine="tiled"), 24),
    "adnce": partial(one_process, Loss("adnce", negatives="all"), 24),
    "whole_batch_statistics": partial(one_process, Loss("barlow_twins"), 24),
    "drawn_nodes": partial(one_process, Loss("infonce"), 20, drawn=8),
    "a_remainder_is_omitted": partial(one_process, Loss("infonce"), 21, alone=20),
    "training": training,
    "resumes": resumes,
    "resumed_by_more_ranks": resumed_by_more_ranks,
}
