"""Test jobs of two ranks from the command line: output, files, a rank that is killed; and groups of one process."""

import gc
import json
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch_geometric.data import InMemoryDataset

from graphcl.distributed import ranks
from graphcl.distributed.launch import Group, launch
from graphcl.errors import InputError
from graphcl.experiment.context import Context
from graphcl.run import main
from tests.conftest import small_graphs


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def jobs(place):
    """Return the output and exit codes of the jobs in `jobs.py`, by name."""
    InMemoryDataset.save(small_graphs(), str(place / "own.pt"))
    command = [sys.executable, str(Path(__file__).parent / "jobs.py"), str(place / "own.pt"), str(place)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


def messages(job):
    return [line for text in job["output"] for line in text.splitlines() if line.startswith("graphcl:")]


@pytest.mark.several
def test_a_complete_job(jobs, place):
    assert jobs["whole"]["codes"] == [0, 0]
    first, second = jobs["whole"]["output"]
    assert "; ranks: 2; " in first
    assert "trained encoder" in first
    assert second == ""  # only rank 0 prints
    assert json.loads((place / "whole" / "result.json").read_text())["ranks"] == 2


MISTAKES = {
    "mistake": "`batch_size` must be at least 2 x 2 ranks = 4, two graphs each, got 3.",
    "nodes": "method `dgi` takes O(N) time for N nodes, which 2 ranks would not shorten; start one process.",
}


@pytest.mark.several
@pytest.mark.parametrize("job", MISTAKES)
def test_a_mistake_is_printed_once_and_leaves_no_files(job, jobs, place):
    assert jobs[job]["codes"] == [2, 75]
    assert not (place / job).exists()
    assert messages(jobs[job]) == [f"graphcl: {MISTAKES[job]}"]


@pytest.mark.several
def test_a_killed_rank_ends_the_job_which_can_be_resumed(jobs, place, capfd):
    assert jobs["killed"]["codes"] == [75, -9]
    (message,) = messages(jobs["killed"])
    assert message.startswith("graphcl: another rank failed or timed out (")
    assert message.endswith("); the job ends, saved results are kept.")

    # One process resumes it and ends two epochs later.
    out = place / "run"
    kept = out / "config.yaml"
    done = max(json.loads(line)["epoch"] for line in (out / "metrics.jsonl").read_text().splitlines()) + 2
    kept.write_text(kept.read_text().replace("epochs: 100000", f"epochs: {done}"))
    assert main(["--resume", str(out)]) == 0
    assert "graphcl: saved by 2 ranks, resumed by 1: the batches are equal," in capfd.readouterr().err
    epochs = [json.loads(line)["epoch"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert epochs == [*range(1, done + 1)]
    assert json.loads((out / "result.json").read_text())["ranks"] == 1


# -- without torchrun, or with one process -----------------------------------------------------------------------------


def environment(monkeypatch, **settings):
    for key, value in {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", **settings}.items():
        monkeypatch.setenv(key, value)


@pytest.mark.parametrize("settings", [{}, {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}])
def test_a_group_of_one_adds_nothing(settings, monkeypatch):
    """Collectives return their argument and send nothing."""
    environment(monkeypatch, **settings)
    broken, x = mock.Mock(side_effect=AssertionError("a collective was called")), torch.arange(6.0).view(3, 2)
    names = ["all_gather", "all_gather_object", "all_gather_into_tensor", "all_reduce", "broadcast", "isend", "irecv"]
    with (
        launch() as group,
        mock.patch.multiple(dist, **dict.fromkeys(names, broken)),
        ranks.across(group.process_group),
    ):
        assert (group.rank, group.size, group.is_main, group.process_group, group.local_rank) == (
            0,
            1,
            True,
            None,
            None,
        )
        assert (group.barrier(), group.broadcast_object("a"), group.all_gather_object("a")) == (None, "a", ["a"])
        assert (ranks.size(), ranks.rank(), ranks.current()) == (1, 0, None)
        assert all(each is x for each in (ranks.gather(x), ranks.sum_over_ranks(x), ranks.broadcast(x)))
        assert ranks.part_of_mean(x, 3) is x
        assert ranks.others(x).shape == (0, 2)
        assert torch.equal(ranks.largest_over_ranks(x), x)
        assert torch.equal(ranks.mean_over_ranks(x), x.mean(dim=0))
        assert (ranks.broadcast_object("a"), ranks.all_gather_object("a")) == ("a", ["a"])
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


def test_a_process_outside_the_group(monkeypatch):
    monkeypatch.setattr(dist, "get_rank", lambda group: -1)
    outside = ranks.across(dist.GroupMember.NON_GROUP_MEMBER)
    with pytest.raises(InputError, match=r"^this process is not a member of `group`"), outside:
        pass


@pytest.mark.parametrize("divides_nodes", [False, True])
def test_ranks_share_the_order_and_draw_their_own_views(divides_nodes):
    """Ranks take shards of one order of graphs and draw their own views; all ranks draw the same views of nodes."""
    order, views = [], []
    for rank in (0, 1):
        group = Group()
        group.rank, group.size = rank, 2
        method, device = SimpleNamespace(divides_nodes=divides_nodes), torch.device("cpu")
        shard, first, second = Context(group).draws(method, 3, device)
        assert shard == ((0, 1) if divides_nodes else (rank, 2))
        order.append(first.initial_seed())
        views.append(second.initial_seed())
    assert order[0] == order[1]
    assert (views[0] == views[1]) == divides_nodes


@pytest.mark.parametrize(("local", "lines"), [("0", 1), ("1", 0)])
def test_a_mistake_in_the_arguments_is_printed_once_per_machine(local, lines, monkeypatch, capsys):
    environment(monkeypatch, RANK="1", WORLD_SIZE="2", LOCAL_RANK=local)
    assert main(["--epochs", "many"]) == 2
    assert capsys.readouterr().err.count("graphcl: `epochs` must be a whole number, got 'many'.") == lines


def test_unreachable_ranks(monkeypatch):
    environment(monkeypatch, RANK="1", WORLD_SIZE="2", LOCAL_RANK="1")
    with pytest.raises(InputError, match=r"rank 1 of 2 cannot reach the other ranks .*torchrun"), launch(0.5):
        raise AssertionError("not reached")
