"""`--resume`: a run that was killed or stopped, anywhere, ends as if it never had been."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import InMemoryDataset

import graphcl
from graphcl import run as run_module
from graphcl.experiment.seed import run_folder
from graphcl.models.saved import read_saved
from graphcl.run import main
from graphcl.system.signals import Stop
from tests.conftest import small_graphs

WORDS = ["--epochs", "4", "--seeds", "0", "1", "--batch-size", "16", "--evaluation.folds", "3", "--encoder.hidden", "8"]
WORDS += ["--evaluation.inner-folds", "2", "--eval", "knn", "--checkpoint.epochs", "1", "--report", "false"]
TIMES = ("seconds", "epoch_seconds", "data_share", "finished", "command")


class Killed(BaseException):
    """As if the process were gone: nobody catches it."""


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs") / "own.pt"
    InMemoryDataset.save(small_graphs(), str(path))
    return str(path)


@pytest.fixture(scope="module")
def unbroken(graphs, tmp_path_factory):
    out = tmp_path_factory.mktemp("unbroken") / "run"
    assert main(["--dataset", graphs, *WORDS, "--out", str(out)]) == 0
    return out


def outcome(folder: Path) -> dict:
    """All that a run computed, without the time it took."""
    result = json.loads((folder / "result.json").read_text())
    result = {key: value for key, value in result.items() if key not in TIMES}
    result["config"] = {key: value for key, value in result["config"].items() if key != "out"}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [{key: value for key, value in row.items() if "seconds" not in key} for row in rows]
    return {
        "result": result,
        "metrics": rows,
        "files": sorted(each.name for each in folder.iterdir() if each.name[0] != "."),
    }


def assert_same(one: Path, other: Path) -> None:
    assert outcome(one) == outcome(other)
    weights, others = read_saved(one)[1], read_saved(other)[1]
    assert list(weights) == list(others)
    assert all(torch.equal(each, others[seed][key]) for seed in weights for key, each in weights[seed].items())
    with np.load(one / "embeddings.npz") as found, np.load(other / "embeddings.npz") as wanted:
        assert all(np.array_equal(found[key], wanted[key]) for key in wanted)
    lines = [len((each / "metrics.csv").read_text().splitlines()) for each in (one, other)]
    assert lines[0] == lines[1]


WRITES = ["config.yaml", "step-", "metrics.csv", "encoder.pt", "embeddings.npz", "result.json"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", WRITES)
def test_killed_at_any_write_it_ends_the_same(name, when, graphs, unbroken, tmp_path, monkeypatch):
    """Before a file of that name appears, half of it written, and after: at the first, the third, the sixth of them."""
    out = tmp_path / "run"
    honest = {module: module.write_whole for module in (graphcl.system.files, graphcl.training.checkpoint, run_folder)}
    count = [0]

    def write_whole(path, write):
        dies = path.name.startswith(name) and count[0] in (0, 2, 5)
        count[0] += path.name.startswith(name)
        if dies and when == "before":
            path.with_name(f".{path.name}.partial").write_bytes(b"half")
            raise Killed
        honest[graphcl.system.files](path, write)
        if dies:
            raise Killed

    for module in honest:
        monkeypatch.setattr(module, "write_whole", write_whole)
    words = ["--dataset", graphs, *WORDS, "--resume", str(out)]
    killed = 0
    while True:
        try:
            code = main(words)
            break
        except Killed:
            killed += 1
    assert code == 0
    assert killed >= 1
    assert_same(out, unbroken)


def test_half_a_line_of_the_metrics(graphs, unbroken, tmp_path, monkeypatch):
    out = tmp_path / "run"
    honest = run_module.RunFolder.add_epoch

    def add_epoch(self, seed, epoch):
        if (seed, epoch.epoch) == (1, 3):
            for name in ("metrics.jsonl", "metrics.csv"):
                with (self.path / name).open("a") as file:
                    file.write('{"seed": 1, "epo')
            raise Killed
        honest(self, seed, epoch)

    with monkeypatch.context() as patch:
        patch.setattr(run_module.RunFolder, "add_epoch", add_epoch)
        with pytest.raises(Killed):
            main(["--dataset", graphs, *WORDS, "--out", str(out)])
    assert main(["--resume", str(out)]) == 0  # with the settings that lie there
    assert_same(out, unbroken)


def test_what_is_finished_is_only_told(graphs, unbroken, capfd):
    before = {
        path.name: path.read_bytes() for path in unbroken.iterdir() if path.name not in ("report.html", "metrics.csv")
    }
    assert main(["--resume", str(unbroken), "--threads", "1", "--report", "false"]) == 0
    printed = capfd.readouterr().out
    assert "seed 0: finished before\nseed 1: finished before" in printed
    assert "trained encoder" in printed
    assert all((unbroken / name).read_bytes() == content for name, content in before.items())


MISTAKES = {
    "other settings": (
        ["--lr", "0.5", "--loss", "dcl"],
        "holds a run of other settings: `loss.name` was 'infonce' and is 'dcl'; ",
    ),
    "two folders": (["--out", "elsewhere"], "run and elsewhere; give one."),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_get_a_line(name, unbroken, capfd):
    words, line = MISTAKES[name]
    assert main(["--resume", str(unbroken), *words]) == 2
    err = capfd.readouterr().err
    assert line in err
    assert "Traceback" not in err


def test_folders_that_cannot_be_resumed(unbroken, graphs, tmp_path, capfd):
    def says(words, line):
        assert main([*words]) == 2
        assert line in capfd.readouterr().err

    says(["--resume"], "`--resume` takes one value, got 0.")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    says(
        ["--dataset", graphs, "--resume", str(tmp_path / "other")], "is not the folder of a run, and holds thesis.tex;"
    )
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in unbroken.iterdir():
        if path.name != ".lock":
            (copy / path.name).write_bytes(path.read_bytes())
    folder = run_folder.RunFolder(experiment_config(copy))
    says(["--resume", str(copy)], "another run is at work in")
    folder.__exit__(None, None, None)
    whole = (copy / "embeddings.npz").read_bytes()
    for damaged in (b"", whole[: len(whole) // 2]):
        (copy / "embeddings.npz").write_bytes(damaged)
        says(["--resume", str(copy)], "cannot be resumed, what it holds is damaged: ")
    (copy / "embeddings.npz").write_bytes(whole)
    (copy / "encoder.pt").write_bytes(b"PK")
    says(["--resume", str(copy)], "cannot be resumed, what it holds is damaged: ")
    (copy / "result.json").write_text('{"seeds": 1}')
    says(["--resume", str(copy)], "cannot be resumed, what it holds is damaged: ")


def experiment_config(folder):
    from graphcl.config.files import read_config
    from graphcl.config.settings import make_config

    return make_config({**read_config(folder / "config.yaml"), "out": str(folder), "resume": True})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_saves_within_the_step_and_the_code_says_so(number, graphs, unbroken, tmp_path, monkeypatch, capfd):
    out, before = tmp_path / "run", signal.getsignal(number)
    honest = run_module.RunFolder.add_epoch

    def add_epoch(self, seed, epoch):
        honest(self, seed, epoch)
        if (seed, epoch.epoch) == (1, 2):
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr(run_module.RunFolder, "add_epoch", add_epoch)
        assert main(["--dataset", graphs, *WORDS, "--checkpoint.epochs", "1000", "--out", str(out)]) == 75
    err = capfd.readouterr().err
    assert f"graphcl: {signal.Signals(number).name}: finishing the step and saving." in err
    assert f"graphcl: stopped; everything is saved; `--resume {out}` goes on." in err
    assert signal.getsignal(number) == before
    assert main(["--resume", str(out), "--checkpoint.epochs", "1"]) == 0
    found, wanted = outcome(out), outcome(unbroken)
    for each in (found, wanted):
        del each["result"]["config"]["checkpoint"]
    assert found == wanted


class Gone:
    """A stream whose reader went away after so many lines that hold a word."""

    def __init__(self, word, lines):
        self.word, self.lines = word, lines

    def write(self, text):
        self.lines -= self.word in text
        if self.lines < 0:
            raise BrokenPipeError

    def flush(self):
        pass

    def isatty(self):
        return False


@pytest.mark.parametrize("signalled", [False, True])
def test_a_run_that_nobody_reads_is_saved(signalled, graphs, unbroken, tmp_path, monkeypatch):
    """As after Ctrl-C in `graphcl run ... 2>&1 | tee log`, which ends tee too."""
    out = tmp_path / "run"
    honest = run_module.RunFolder.add_epoch

    def add_epoch(self, seed, epoch):
        honest(self, seed, epoch)
        if signalled and (seed, epoch.epoch) == (1, 2):
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(run_module.RunFolder, "add_epoch", add_epoch)
        patch.setattr(sys, "stdout", Gone("epoch", 5))
        patch.setattr(sys, "stderr", Gone("", 0))
        assert main(["--dataset", graphs, *WORDS, "--checkpoint.epochs", "1000", "--out", str(out)]) == 75
    assert len(list(out.glob("checkpoints/seed-1/step-*.pt"))) == 1
    assert main(["--resume", str(out), "--checkpoint.epochs", "1"]) == 0
    assert outcome(out)["metrics"] == outcome(unbroken)["metrics"]


def test_a_signal_beside_the_training_stops_at_once(graphs, tmp_path, monkeypatch, capfd):
    def score(*arguments, **options):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
        raise AssertionError("never here")

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "score", score)
        assert main(["--dataset", graphs, *WORDS, "--out", str(out)]) == 75
    assert f"stopped; what had finished is kept; `--resume {out}` goes on." in capfd.readouterr().err
    assert main(["--resume", str(out)]) == 0


@pytest.mark.several
def test_a_real_kill(graphs, unbroken, tmp_path):
    """SIGKILL, once; `benchmarks/kills.py` does it fifty times."""
    out = tmp_path / "run"
    words = [sys.executable, "-m", "graphcl", "run", "--dataset", graphs, *WORDS, "--resume", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(Path(graphcl.__file__).parents[1])}
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while not list(out.glob("checkpoints/seed-*/step-*.pt")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert main(["--resume", str(out)]) == 0
    assert_same(out, unbroken)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one megabyte, where the system lets one be made."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True)
    except OSError:
        pytest.skip("there is no mount here")
    if made.returncode:
        pytest.skip("no disk may be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(512))
            except OSError:
                return


def test_a_full_disk_loses_nothing_and_says_so(graphs, unbroken, small_disk, monkeypatch, capfd):
    """Full when a checkpoint is due: a warning. Full when the log is: the run ends with a line, and is resumed."""
    out = small_disk / "run"
    honest = run_module.RunFolder.add_epoch

    def add_epoch(self, seed, epoch):
        (small_disk / "filler").unlink(missing_ok=True)
        if (seed, epoch.epoch) == (1, 4):
            fill(small_disk)
        honest(self, seed, epoch)
        if (seed, epoch.epoch) == (1, 2):
            fill(small_disk)

    with monkeypatch.context() as patch:
        patch.setattr(run_module.RunFolder, "add_epoch", add_epoch)
        assert main(["--dataset", graphs, *WORDS, "--out", str(out)]) == 2
    err = capfd.readouterr().err
    assert "no checkpoint at step 6: No space left on device" in err
    assert f"graphcl: No space left on device, in {out}; what was saved is kept, `--resume {out}` goes on." in err
    assert "Traceback" not in err
    assert json.loads((out / "result.json").read_text())["seeds"] == [0]
    (small_disk / "filler").unlink()
    assert main(["--resume", str(out)]) == 0
    assert_same(out, unbroken)


def test_a_signal_that_is_ignored_stays_so():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)]
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with Stop().listening():
            assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) not in before
        assert signal.getsignal(signal.SIGTERM) == before[0]
    finally:
        signal.signal(signal.SIGUSR1, before[1])
