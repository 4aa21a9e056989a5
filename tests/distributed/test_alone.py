"""A world of one process is a plain run: the same bits, and nothing is sent."""

import gc
import weakref
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from graphcl.distributed import ranks
from graphcl.distributed.batchnorm import average_statistics, synchronise
from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.methods import InfoGraph, MemoryBank, MoCo, SimGRACE, TwoViews
from graphcl.registry import losses
from tests.methods.small import graphs, make_model, pick, seeded, step

COLLECTIVES = [
    "all_gather", "all_gather_object", "all_gather_into_tensor", "all_reduce", "all_to_all_single", "broadcast",
    "reduce_scatter_tensor", "isend", "irecv", "batch_isend_irecv",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def world():
    """A group of one process, in which sending anything is an error."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    broken = mock.Mock(side_effect=AssertionError("something is sent"))
    ours = mock.patch.multiple(ranks, _all_gather=broken, _reduce_scatter=broken)
    with mock.patch.multiple(dist, **dict.fromkeys(COLLECTIVES, broken)), ours:
        yield
    dist.destroy_process_group()


def outcome(name, engine):
    """Value and gradients of a loss, and all operations of its graph."""
    z1, z2 = torch.randn(2, 6, 4, generator=seeded(0)).unbind()
    z1.requires_grad_()
    given = {"labels": torch.arange(6) % 3} if "labels" in losses.arguments(name).tensors else {}
    given |= {"engine": engine} if Loss(name).accepts("engine") else {}
    given |= {"weight": torch.arange(6.0)} if Loss(name).accepts("weight") else {}
    value = losses[name](z1, z2, **given)
    operations, waiting = [], [value.grad_fn]
    while waiting:
        if (node := waiting.pop()) is not None:
            operations.append(type(node).__name__)
            waiting += [each for each, _ in node.next_functions]
    value.backward()
    return value.detach(), z1.grad, operations


@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize("name", losses)
def test_losses(name, engine):
    plain = outcome(name, engine)
    with ranks.across(dist.group.WORLD):
        assert (ranks.size(), ranks.rank(), ranks.current()) == (1, 0, None)
        shared = outcome(name, engine)
    assert torch.equal(shared[0], plain[0])
    assert torch.equal(shared[1], plain[1])
    assert shared[2] == plain[2], "operations were added"


def trained(kind, loss, **arguments):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        method = synchronise(kind(make_model(), Loss(loss), **arguments))
    optimiser = torch.optim.SGD([each for each in method.parameters() if each.requires_grad], lr=0.01)
    for start in (0, 6):
        numbers = list(range(start, start + 6))
        step(method, optimiser, [pick(graphs(12), numbers)] * 2, numbers, seeded(3))
    method.after_epoch()
    average_statistics(method)
    return method.state_dict()


@pytest.mark.parametrize(
    ("kind", "loss", "arguments"),
    [
        (TwoViews, "infonce", {}),
        (MoCo, "moco", {"queue_size": 8}),
        (MemoryBank, "instance_nce", {"num_graphs": 12, "noise": 5, "warmup": 0}),
        (SimGRACE, "dcl", {}),
        (InfoGraph, "jsd", {}),
    ],
)
def test_methods(kind, loss, arguments):
    plain = trained(kind, loss, **arguments)
    with ranks.across(dist.group.WORLD):
        shared = trained(kind, loss, **arguments)
    for key, value in plain.items():
        assert torch.equal(shared[key], value) if isinstance(value, torch.Tensor) else shared[key] == value, key


def test_functions():
    x = torch.arange(6.0).view(3, 2)
    with ranks.across(dist.group.WORLD):
        assert ranks.gather(x) is x
        assert ranks.sum_over_ranks(x) is x
        assert ranks.broadcast(x) is x
        assert ranks.part_of_mean(x, 3) is x
        assert ranks.others(x).shape == (0, 2)
        assert torch.equal(ranks.largest_over_ranks(x), x)
        assert torch.equal(ranks.mean_over_ranks(x), x.mean(dim=0))


def test_a_group_that_nobody_holds_any_more_is_gone(monkeypatch):
    class Group:
        """A stand-in: across a real group of one, nothing is kept."""

    monkeypatch.setattr(dist, "get_world_size", lambda group: 2)
    monkeypatch.setattr(dist, "get_rank", lambda group: 0)
    group = Group()
    for agreed in ({}, {"form": 3}):
        with ranks.across(group):
            assert ranks.current()._rows == agreed
            ranks.current()._rows["form"] = 3
    known = weakref.ref(group)
    del group
    gc.collect()
    assert known() is None


def test_a_process_outside_of_the_group():
    outside = ranks.across(dist.GroupMember.NON_GROUP_MEMBER)
    with pytest.raises(InputError, match=r"^this process is not in the `group`"), outside:
        pass
