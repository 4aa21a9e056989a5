"""Test jobs of two ranks from the command line: output, files, a rank that is killed; and groups of one process."""

import json
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch_geometric.data import InMemoryDataset

from graphcl.commands import embed
from graphcl.distributed import ranks
from graphcl.distributed.launch import launch
from graphcl.errors import InputError
from graphcl.run import main
from tests.conftest import small_graphs


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def jobs(place):
    """Return the output and exit codes of the jobs in `jobs.py`, by name."""
    graphs = small_graphs()
    InMemoryDataset.save(graphs, str(place / "own.pt"))
    InMemoryDataset.save(graphs[:30], str(place / "fewer.pt"))
    graphs[3].x = 1 - graphs[3].x
    InMemoryDataset.save(graphs, str(place / "values.pt"))
    command = [sys.executable, str(Path(__file__).parent / "jobs.py"), str(place / "own.pt"), str(place)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout)


def messages(job):
    return [line for text in job["output"] for line in text.splitlines() if line.startswith("graphcl:")]


@pytest.mark.several
def test_a_complete_job_and_a_mistake(jobs, place):
    """Only rank 0 prints. A mistake is printed once and leaves no files."""
    assert jobs["whole"]["codes"] == [0, 0]
    first, second = jobs["whole"]["output"]
    assert "; ranks: 2; " in first
    assert "trained encoder" in first
    assert second == ""
    assert json.loads((place / "whole" / "result.json").read_text())["ranks"] == 2
    assert jobs["mistake"]["codes"] == [2, 75]
    assert not (place / "mistake").exists()
    line = "graphcl: method `dgi` takes O(N) time for N nodes, which 2 ranks would not shorten; start one process."
    assert messages(jobs["mistake"]) == [line]


@pytest.mark.several
def test_ranks_embed_a_shard_each(jobs, place):
    assert jobs["embed"]["codes"] == [0, 0]
    first, second = jobs["embed"]["output"]
    assert first.endswith(f"in {place / 'shards'}/, 7 shards\n")
    assert second == ""
    given = [str(place / "whole"), "--dataset", str(place / "own.pt"), "--batch-size", "5"]
    assert embed.main([*given, "--out", str(place / "one.npz")]) == 0
    h = np.concatenate([np.load(file) for file in sorted((place / "shards").glob("part-*/h.npy"))])
    assert np.array_equal(h, np.load(place / "one.npz")["h"])


@pytest.mark.several
def test_ranks_with_other_data_are_refused_in_one_line(jobs, place):
    for name, says in (("values", "`dataset.digest` is "), ("fewer", "`dataset.graphs` is 30 instead of 36, ")):
        assert jobs[name]["codes"] == [2, 2]
        (line,) = messages(jobs[name])
        assert line.startswith(f"graphcl: rank 1 has other data or files than rank 0: {says}")
        assert not (place / name).exists()


@pytest.mark.several
def test_a_killed_rank_ends_the_job_which_can_be_resumed(jobs, place, capfd):
    assert jobs["killed"]["codes"] == [75, -9]
    (message,) = messages(jobs["killed"])
    assert message.startswith("graphcl: another rank failed or timed out (")
    assert message.endswith("); the job ends, saved results are kept.")

    # One process resumes it and ends two epochs later.
    out = place / "run"
    kept, log = out / "config.yaml", out / "metrics.jsonl"
    done = len(log.read_text().splitlines()) + 2
    kept.write_text(kept.read_text().replace("epochs: 100000", f"epochs: {done}"))
    assert main(["--resume", str(out)]) == 0
    assert "graphcl: saved by 2 ranks, resumed by 1: the batches are equal," in capfd.readouterr().err
    assert [json.loads(line)["epoch"] for line in log.read_text().splitlines()] == [*range(1, done + 1)]
    assert json.loads((out / "result.json").read_text())["ranks"] == 1


def environment(monkeypatch, rank, size):
    """Set the variables of torchrun."""
    for key, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": 1}.items():
        monkeypatch.setenv(key, str(value))
    monkeypatch.setenv("MASTER_ADDR", "localhost")


@pytest.mark.parametrize("torchrun", [False, True])
def test_a_group_of_one_adds_nothing(torchrun, monkeypatch):
    """Collectives return their argument and send nothing."""
    if torchrun:
        environment(monkeypatch, rank=0, size=1)
    broken, x = mock.Mock(side_effect=AssertionError("a collective was called")), torch.arange(6.0).view(3, 2)
    names = ["all_gather", "all_gather_object", "all_gather_into_tensor", "all_reduce", "broadcast", "isend", "irecv"]
    with launch() as group, mock.patch.multiple(dist, **dict.fromkeys(names, broken)):
        assert (group.rank, group.size, group.is_main, group.process_group) == (0, 1, True, None)
        assert (group.barrier(), group.broadcast_object("a"), group.all_gather_object("a")) == (None, "a", ["a"])
        with ranks.across(group.process_group):
            assert (ranks.size(), ranks.rank()) == (1, 0)
            assert all(each is x for each in (ranks.gather(x), ranks.sum_over_ranks(x), ranks.broadcast(x)))
            assert ranks.part_of_mean(x, 3) is x
            assert ranks.others(x).shape == (0, 2)
            assert torch.equal(ranks.mean_over_ranks(x), x.mean(dim=0))
            assert ranks.any_rank(True, False) == [True, False]


WRONG = [
    (
        {"WORLD_SIZE": "abc"},
        r"WORLD_SIZE is set, but the variable WORLD_SIZE is 'abc'; start the processes by torchrun",
    ),
    ({"WORLD_SIZE": ""}, "the variable WORLD_SIZE is ''"),
    ({"RANK": "-1"}, "the variable RANK is '-1'"),
    ({"MASTER_ADDR": None}, r"the variable MASTER_ADDR is ''; .*, or unset WORLD_SIZE for a single process\.$"),
    ({"LOCAL_RANK": None}, "the variable LOCAL_RANK is ''"),
]


@pytest.mark.parametrize(("variables", "says"), WRONG)
def test_wrong_variables_of_torchrun_are_one_line(variables, says, monkeypatch, capsys):
    environment(monkeypatch, rank=0, size=2)
    for key, value in variables.items():
        monkeypatch.delenv(key) if value is None else monkeypatch.setenv(key, value)
    with pytest.raises(InputError, match=says), launch(0.5):
        raise AssertionError("not reached")
    assert main(["--dataset", "synthetic", "--epochs", "0"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("graphcl: WORLD_SIZE is set, but the variable ")


def test_unreachable_ranks(monkeypatch):
    environment(monkeypatch, rank=1, size=2)
    with pytest.raises(InputError, match=r"rank 1 of 2 cannot reach the other ranks .*torchrun"), launch(0.5):
        raise AssertionError("not reached")
