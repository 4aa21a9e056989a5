"""`--resume`: an interrupted run ends with the results of an uninterrupted run; an unusable folder gets one line."""

import contextlib
import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from torch_geometric.data import InMemoryDataset

import graphcl
from graphcl.config import read_config
from graphcl.experiment import scoring
from graphcl.experiment.record import run_folder, seed_files
from graphcl.models.saved import read_saved
from graphcl.run import main
from graphcl.system.signals import Stop
from tests.conftest import overriding, small_graphs
from tests.datasets.graphs import Trap
from tests.memory import peak

ARGUMENTS = ["--epochs", "4", "--seeds", "0", "1", "--batch-size", "16", "--encoder.hidden_channels", "8"]
ARGUMENTS += ["--eval", "knn", "--evaluation.folds", "3", "--evaluation.inner-folds", "2"]
ARGUMENTS += ["--checkpoint.epochs", "1", "--report", "false"]
TIMES = ("seconds", "epoch_seconds", "data_share", "finished", "command")


class Killed(BaseException):
    """Exception that simulates SIGKILL, as no code catches it."""


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs") / "own.pt"
    InMemoryDataset.save(small_graphs(), str(path))
    return str(path)


@pytest.fixture(scope="module")
def unbroken(graphs, tmp_path_factory):
    out = tmp_path_factory.mktemp("unbroken") / "run"
    assert main(["--dataset", graphs, *ARGUMENTS, "--out", str(out)]) == 0
    return out


@pytest.fixture
def copy(unbroken, graphs, tmp_path):
    yield shutil.copytree(unbroken, tmp_path / "copy")
    InMemoryDataset.save(small_graphs(), graphs)


@pytest.fixture
def default_signals():
    """Set the default handlers, as nohup ignores SIGHUP and a run respects that; a run must restore them."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    assert [signal.signal(number, each) for number, each in before.items()] == [signal.SIG_DFL] * 2


def outcome(folder):
    """Return the results in a run folder, without times."""
    result = json.loads((folder / "result.json").read_text())
    result = {key: value for key, value in result.items() if key not in TIMES}
    result["config"] = {key: value for key, value in result["config"].items() if key not in ("out", "checkpoint")}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [{key: value for key, value in row.items() if "seconds" not in key} for row in rows]
    files = sorted(each.name for each in folder.iterdir() if each.name[0] != ".")
    return result, rows, files


def assert_same(one, other):
    assert outcome(one) == outcome(other)
    weights, others = read_saved(one)[1], read_saved(other)[1]
    assert list(weights) == list(others)
    assert all(torch.equal(each, others[seed][key]) for seed in weights for key, each in weights[seed].items())
    with np.load(one / "embeddings.npz") as found, np.load(other / "embeddings.npz") as wanted:
        assert all(np.array_equal(found[key], wanted[key]) for key in wanted)


def after_epoch(act):
    """Return a function of a monkeypatch: after each new row in the log, `act(folder, (seed, epoch))` is called."""
    honest = run_folder.EpochLog.add

    def add(self, seed, epoch):
        honest(self, seed, epoch)
        act(self.folder, (seed, epoch.epoch))

    return lambda patch: patch.setattr(run_folder.EpochLog, "add", add)


def killed_in_a_line(folder, place):
    if place == (1, 3):
        with (folder / "metrics.jsonl").open("a") as file:
            file.write('{"seed": 1, "epo')
        raise Killed


def send(number):
    return after_epoch(lambda folder, place: os.kill(os.getpid(), number) if place == (1, 2) else None)


class Closed(io.StringIO):
    """Stream that its reader has closed."""

    def write(self, text):
        raise BrokenPipeError


def closed_and_signalled(patch):
    """In `graphcl run ... 2>&1 | tee log`, Ctrl-C also ends tee, so the run cannot print any more."""

    def act(folder, place):
        if place == (1, 2):
            patch.setattr(sys, "stdout", Closed())
            patch.setattr(sys, "stderr", Closed())
            os.kill(os.getpid(), signal.SIGHUP)

    after_epoch(act)(patch)


class Terminal(io.StringIO):
    """Terminal that can be closed."""

    is_open = True

    def isatty(self):
        return True

    def write(self, text):
        if not self.is_open:
            raise OSError(errno.EIO, "Input/output error")
        return super().write(text)


def terminal_closed(patch):
    terminal = Terminal()
    for name in ("stdout", "stderr"):
        patch.setattr(sys, name, terminal)

    def act(folder, place):
        if place == (1, 2):
            terminal.is_open = False
            os.kill(os.getpid(), signal.SIGHUP)

    after_epoch(act)(patch)


def signalled_in_evaluation(patch):
    def score_rows(*arguments, **options):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
        raise AssertionError("not reached")

    patch.setattr(scoring, "score_rows", score_rows)


STOPPED = "stopped; {} saved; `--resume {{out}}` continues the run."
SAVED, FINISHED = STOPPED.format("everything is"), STOPPED.format("finished results are")
INTERRUPTIONS = {
    "half a line": (after_epoch(killed_in_a_line), Killed, ()),
    "SIGTERM": (send(signal.SIGTERM), 75, ("SIGTERM: saving and stopping.", SAVED)),
    "closed output, SIGHUP": (closed_and_signalled, 75, ()),
    "closed terminal, SIGHUP": (terminal_closed, 75, ()),
    "evaluation": (signalled_in_evaluation, 75, ("SIGTERM: stopping.", FINISHED)),
}
"""Name -> function that prepares the interruption, how the run ends, and what it prints on stderr."""


@pytest.mark.parametrize("name", INTERRUPTIONS)
def test_a_run_resumed_after_an_interruption_ends_the_same(
    name, graphs, unbroken, tmp_path, capfd, monkeypatch, default_signals
):
    interrupt, end, lines = INTERRUPTIONS[name]
    out = tmp_path / "run"
    rule = ["--checkpoint.epochs", "1000"] if end == 75 else []  # the stop alone saves
    with monkeypatch.context() as patch, pytest.raises(Killed) if end is Killed else contextlib.nullcontext():
        interrupt(patch)
        assert main(overriding(["--dataset", graphs, *ARGUMENTS], *rule, "--resume", str(out))) == end
    err = capfd.readouterr().err
    assert all(f"graphcl: {line.format(out=out)}" in err for line in lines)
    assert main(["--resume", str(out)]) == 0  # with the settings in the folder
    assert_same(out, unbroken)


WRITES = ("config.yaml", "data.json", "step-", "metrics.jsonl", "encoder.pt", "embeddings.npz", "result.json")


def test_a_run_killed_at_every_file_ends_the_same(graphs, unbroken, tmp_path, monkeypatch):
    """The process is killed when a file is half written, and again after the file is written, for each of `WRITES`."""
    left, out, ends = {(name, when) for name in WRITES for when in ("before", "after")}, tmp_path / "run", []
    honest = graphcl.system.files.write_whole

    def write_whole(path, write):
        name = next((name for name in WRITES if path.name.startswith(name)), None)
        if (name, "before") in left:
            left.remove((name, "before"))
            path.with_name(f".{path.name}.partial").write_bytes(b"half")
            raise Killed
        honest(path, write)
        if (name, "after") in left:
            left.remove((name, "after"))
            raise Killed

    for module in (graphcl.system.files, graphcl.system.arrays, run_folder, seed_files):
        monkeypatch.setattr(module, "write_whole", write_whole)
    while not ends or ends[-1] is Killed:
        try:
            words = [] if (out / "config.yaml").exists() else ["--dataset", graphs, *ARGUMENTS]
            ends.append(main([*words, "--resume", str(out)]))
        except Killed:
            ends.append(Killed)
    assert ends == [Killed] * 2 * len(WRITES) + [0]
    assert_same(out, unbroken)


@pytest.mark.several
def test_a_real_kill(graphs, unbroken, tmp_path):
    """A process gets SIGKILL after its first checkpoint."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "graphcl", "run", "--dataset", graphs, *ARGUMENTS, "--resume", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(Path(graphcl.__file__).parents[1])}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while not list(out.glob("checkpoints/seed-*/step-*.pt")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert main(["--resume", str(out)]) == 0
    assert_same(out, unbroken)


def test_a_full_disk_loses_nothing(graphs, unbroken, tmp_path, capfd, monkeypatch):
    """If the disk is full at a log entry, the run ends and can be resumed; at a checkpoint, see tests/training."""
    out = tmp_path / "run"

    def fill(folder, place):
        if place == (1, 3):
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        after_epoch(fill)(patch)
        assert main(["--dataset", graphs, *ARGUMENTS, "--out", str(out)]) == 2
    line = f"No space left on device: {out}; earlier results are saved; resume with `--resume {out}`."
    assert capfd.readouterr().err == f"graphcl: {line}\n"
    assert json.loads((out / "result.json").read_text())["seeds"] == [0]
    assert main(["--resume", str(out)]) == 0
    assert_same(out, unbroken)


def test_a_run_is_extended_by_seeds_and_then_only_summarised(graphs, unbroken, tmp_path, capfd):
    out = tmp_path / "run"
    assert main(overriding(["--dataset", graphs, *ARGUMENTS], "--resume", str(out), "--seeds", "0")) == 0
    printed = capfd.readouterr().out
    assert f"{out} did not exist: this is a new run\n" in printed
    assert re.search(r"knn, trained encoder +\S+ +- +\S+\n", printed)  # one seed has no deviation
    assert f"one seed of five: graphcl run --resume {out} --seeds 0-4 adds the others" in printed
    assert main(["--resume", str(out), "--seeds", "0-1"]) == 0
    assert_same(out, unbroken)
    before = {path: path.read_bytes() for path in out.iterdir() if path.is_file()}
    capfd.readouterr()
    assert main(["--resume", str(out), "--threads", "1"]) == 0
    assert "seed 0: finished before\nseed 1: finished before" in capfd.readouterr().out
    assert {path: path.read_bytes() for path in before} == before


def test_a_damaged_line_of_metrics_costs_this_line_only(unbroken, copy):
    before = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_text("".join([*before[:2], "{damaged\n", *before[3:]]))
    assert main(["--resume", str(copy)]) == 0
    assert (copy / "metrics.jsonl").read_text() == "".join(each for each in before if each != before[2])
    assert (copy / "result.json").read_bytes() == (unbroken / "result.json").read_bytes()


def change(name, edit):
    return lambda folder: (folder / name).write_bytes(edit((folder / name).read_bytes()))


def reversed_graphs(folder):
    InMemoryDataset.save(small_graphs()[::-1], read_config(folder / "config.yaml")["dataset"])


def link(name):
    """Replace `name` by a link to files elsewhere."""

    def damage(folder):
        if name == "checkpoints":
            shutil.rmtree(folder / name)
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(folder.parent / "precious" / ("" if name == "checkpoints" else "step-000000001.pt"))

    return damage


DAMAGED = "cannot be resumed, a file is damaged: "
REFUSED = {
    "settings": (None, "--lr 0.5 --loss dcl", "`loss.name` was 'infonce' and is 'dcl'; "),
    "seeds": (None, "--seeds 1-2", "`seeds` was [0, 1] and is [1, 2]. Resume it with its own settings, pass another"),
    "missing": (shutil.rmtree, "", "copy not found; check the path, or give `--dataset`"),
    "foreign": (lambda folder: (folder / "config.yaml").unlink(), "--dataset own.pt", "is not a run folder, it contai"),
    "locked": (lambda folder: FileLock(folder / ".lock").acquire(), "", "another run uses"),
    "edited": (change("config.yaml", lambda text: text.replace(b"lr: 0.01", b"lr: 0.02")), "", "`lr` was 0.01 and is"),
    "other data": (reversed_graphs, "--seeds 0-2", "copy holds a run on other data or files: `dataset.digest` was "),
    "bomb": (lambda folder: np.savez_compressed(folder / "embeddings.npz", seeds=[0], h=np.zeros((1, 10**8), np.uint8)),
             "", DAMAGED),
    "code": (lambda folder: torch.save({"weights": Trap()}, folder / "encoder.pt"), "", DAMAGED),
    "half a file": (change("result.json", lambda text: text[:200]), "", DAMAGED),
    **{name: (link(name), "", f"{name} is a link, and nothing is written through it; remove it.")
       for name in (".lock", "checkpoints", "metrics.jsonl")},
}  # fmt: skip
"""Name -> damage to a run folder, further arguments, and a part of the message."""


@pytest.mark.parametrize("name", REFUSED)
def test_an_unusable_folder_is_refused(name, copy, graphs, tmp_path, capfd, monkeypatch):
    """Nothing is written outside the folder, no code is run, and memory is bounded."""
    monkeypatch.chdir(Path(graphs).parent)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / ".a.partial").write_text("kept")
    (precious / "step-000000001.pt").write_text("kept")
    damage, words, expected = REFUSED[name]
    lock = damage(copy) if damage else None
    capfd.readouterr()
    with peak() as found:
        assert main(["--resume", str(copy), *words.split()]) == 2
    del lock
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("graphcl: ")
    assert expected in line
    assert found[0] < 100 * 2**20
    assert [each.read_text() for each in precious.iterdir()] == ["kept"] * 2
    left = [path.name for path in (*tmp_path.iterdir(), *Path.cwd().iterdir())]
    assert sorted(left) == (["own.pt", "precious"] if name == "missing" else ["copy", "own.pt", "precious"])


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.getsignal(signal.SIGTERM)
    own = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with Stop().listening():
            assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) != before
        assert signal.getsignal(signal.SIGTERM) == before
    finally:
        signal.signal(signal.SIGUSR1, own)
