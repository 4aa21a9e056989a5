"""Jobs of two ranks from the command line: what they say, what they keep, and what becomes of a rank's death."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from torch_geometric.data import InMemoryDataset

from graphcl.distributed.processes import processes
from graphcl.errors import InputError
from graphcl.run import main
from tests.conftest import small_graphs


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def jobs(place):
    """What the jobs of `jobs.py` said and how they ended."""
    InMemoryDataset.save(small_graphs(), str(place / "own.pt"))
    command = [sys.executable, str(Path(__file__).parent / "jobs.py"), str(place / "own.pt"), str(place)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


@pytest.mark.several
def test_a_whole_job(jobs, place):
    assert jobs["whole"]["codes"] == [0, 0]
    first, second = jobs["whole"]["said"]
    assert "; ranks: 2; " in first
    assert "trained encoder" in first
    assert second == ""  # rank 0 alone speaks
    assert json.loads((place / "whole" / "result.json").read_text())["ranks"] == 2


@pytest.mark.several
def test_a_mistake_is_told_once_and_leaves_nothing(jobs, place):
    assert jobs["mistake"]["codes"] == [2, 75]
    assert not (place / "mistake").exists()
    line = "graphcl: `batch_size` must be at least 2 x 2 ranks = 4, two graphs each, got 3."
    assert [text for said in jobs["mistake"]["said"] for text in said.splitlines() if "graphcl:" in text] == [line]


@pytest.mark.several
def test_a_killed_rank_is_named_and_the_job_goes_on(jobs, place, capfd):
    found, out = jobs["killed"], place / "run"
    assert found["codes"] == [75, -9]
    told = [line for line in found["said"][0].splitlines() if line.startswith("graphcl:")]
    assert len(told) == 1
    assert f", process {found['pid']}) is gone; the job ends, and what was saved is kept." in told[0]

    # One process goes on, to an end two epochs later.
    kept = out / "config.yaml"
    done = max(json.loads(line)["epoch"] for line in (out / "metrics.jsonl").read_text().splitlines()) + 2
    kept.write_text(kept.read_text().replace("epochs: 100000", f"epochs: {done}"))
    assert main(["--resume", str(out)]) == 0
    told = "graphcl: saved by 2 ranks, goes on with 1: the same graphs in the same batches, but views are drawn anew"
    assert told in capfd.readouterr().err
    epochs = [json.loads(line)["epoch"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert epochs == [*range(1, done + 1)]
    assert json.loads((out / "result.json").read_text())["ranks"] == 1


def environment(monkeypatch, **settings):
    for key, value in {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", **settings}.items():
        monkeypatch.setenv(key, value)


def test_a_world_of_one_is_a_plain_run(monkeypatch):
    environment(monkeypatch, RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    with processes() as found:
        assert found is None


@pytest.mark.parametrize(("local", "lines"), [("0", 1), ("1", 0)])
def test_a_mistake_in_the_words_is_told_once_a_machine(local, lines, monkeypatch, capsys):
    environment(monkeypatch, RANK="1", WORLD_SIZE="2", LOCAL_RANK=local)
    assert main(["--epochs", "many"]) == 2
    assert capsys.readouterr().err.count("graphcl: `epochs` must be a whole number, got 'many'.") == lines


def test_others_that_never_come(monkeypatch):
    environment(monkeypatch, RANK="1", WORLD_SIZE="2", LOCAL_RANK="1")
    with pytest.raises(InputError, match=r"rank 1 of 2 cannot reach the others .*torchrun"), processes(0.5):
        raise AssertionError("never here")
