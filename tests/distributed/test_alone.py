"""Test that a group of one process behaves like no group: nothing is sent and no operation is added."""

import gc
import weakref
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from graphcl.distributed import ranks
from graphcl.errors import InputError

COLLECTIVES = [
    "all_gather", "all_gather_object", "all_gather_into_tensor", "all_reduce", "all_to_all_single", "broadcast",
    "reduce_scatter_tensor", "isend", "irecv", "batch_isend_irecv",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def world():
    """Return a group of one process in which every collective raises an error."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    broken = mock.Mock(side_effect=AssertionError("a collective was called"))
    ours = mock.patch.multiple(ranks, _all_gather=broken, _reduce_scatter=broken)
    with mock.patch.multiple(dist, **dict.fromkeys(COLLECTIVES, broken)), ours:
        yield
    dist.destroy_process_group()


def test_every_function_returns_its_argument():
    x = torch.arange(6.0).view(3, 2)
    with ranks.across(dist.group.WORLD):
        assert (ranks.size(), ranks.rank(), ranks.current()) == (1, 0, None)
        assert ranks.gather(x) is x
        assert ranks.sum_over_ranks(x) is x
        assert ranks.broadcast(x) is x
        assert ranks.part_of_mean(x, 3) is x
        assert ranks.others(x).shape == (0, 2)
        assert torch.equal(ranks.largest_over_ranks(x), x)
        assert torch.equal(ranks.mean_over_ranks(x), x.mean(dim=0))
        assert ranks.broadcast_object("a") == "a"
        assert ranks.all_gather_object("a") == ["a"]
        assert ranks.any_rank(True, False) == [True, False]


def test_a_group_is_garbage_collected(monkeypatch):
    class Group:
        """Stands for a process group of two."""

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


def test_a_process_outside_the_group():
    outside = ranks.across(dist.GroupMember.NON_GROUP_MEMBER)
    with pytest.raises(InputError, match=r"^this process is not a member of `group`"), outside:
        pass
