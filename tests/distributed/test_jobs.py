"""Test jobs of two ranks from the command line: output, files, and a rank that is killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from torch_geometric.data import InMemoryDataset

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


@pytest.mark.several
@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("mistake", "graphcl: `batch_size` must be at least 2 x 2 ranks = 4, two graphs each, got 3."),
        (
            "nodes",
            "graphcl: method `dgi` takes O(N) time for N nodes, which 2 ranks would not shorten; start one process.",
        ),
    ],
)
def test_a_mistake_is_printed_once_and_leaves_no_files(job, message, jobs, place):
    assert jobs[job]["codes"] == [2, 75]
    assert not (place / job).exists()
    assert messages(jobs[job]) == [message]


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


def environment(monkeypatch, **settings):
    for key, value in {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", **settings}.items():
        monkeypatch.setenv(key, value)


def test_a_group_of_one(monkeypatch):
    """Without torchrun, and with one process under torchrun, collectives return their argument."""
    for settings in ({}, {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}):
        environment(monkeypatch, **settings)
        with launch() as group:
            assert (group.rank, group.size, group.is_main) == (0, 1, True)
            assert (group.process_group, group.local_rank) == (None, None)
            assert group.barrier() is None
            assert group.broadcast_object("a") == "a"
            assert group.all_gather_object("a") == ["a"]


@pytest.mark.parametrize(("local", "lines"), [("0", 1), ("1", 0)])
def test_a_mistake_in_the_arguments_is_printed_once_per_machine(local, lines, monkeypatch, capsys):
    environment(monkeypatch, RANK="1", WORLD_SIZE="2", LOCAL_RANK=local)
    assert main(["--epochs", "many"]) == 2
    assert capsys.readouterr().err.count("graphcl: `epochs` must be a whole number, got 'many'.") == lines


def test_unreachable_ranks(monkeypatch):
    environment(monkeypatch, RANK="1", WORLD_SIZE="2", LOCAL_RANK="1")
    with pytest.raises(InputError, match=r"rank 1 of 2 cannot reach the other ranks .*torchrun"), launch(0.5):
        raise AssertionError("not reached")
