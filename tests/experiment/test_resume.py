"""`--resume`: a run that was killed or stopped at any point ends with the results of an uninterrupted run."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import InMemoryDataset

import graphcl
from graphcl.config import make_config, read_config
from graphcl.errors import InputError
from graphcl.experiment import seed as experiment
from graphcl.experiment.record import run_folder
from graphcl.models.saved import load_encoder, read_saved
from graphcl.run import main
from graphcl.system.signals import Stop
from tests.conftest import small_graphs

ARGUMENTS = [
    "--epochs",
    "4",
    "--seeds",
    "0",
    "1",
    "--batch-size",
    "16",
    "--encoder.hidden_channels",
    "8",
    "--eval",
    "knn",
]
ARGUMENTS += ["--evaluation.folds", "3", "--evaluation.inner-folds", "2", "--checkpoint.epochs", "1"]
ARGUMENTS += ["--report", "false"]
TIMES = ("seconds", "epoch_seconds", "data_share", "finished", "command", "checksums")


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


def outcome(folder):
    """Return the results in a run folder, without times."""
    result = json.loads((folder / "result.json").read_text())
    result = {key: value for key, value in result.items() if key not in TIMES}
    result["config"] = {key: value for key, value in result["config"].items() if key not in ("out", "checkpoint")}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [{key: value for key, value in row.items() if "seconds" not in key} for row in rows]
    files = sorted(each.name for each in folder.iterdir() if each.name[0] != ".")
    lines = len((folder / "metrics.csv").read_text().splitlines())
    return {"result": result, "metrics": rows, "files": files, "lines": lines}


def assert_same(one, other):
    assert outcome(one) == outcome(other)
    weights, others = read_saved(one)[1], read_saved(other)[1]
    assert list(weights) == list(others)
    assert all(torch.equal(each, others[seed][key]) for seed in weights for key, each in weights[seed].items())
    with np.load(one / "embeddings.npz") as found, np.load(other / "embeddings.npz") as wanted:
        assert all(np.array_equal(found[key], wanted[key]) for key in wanted)


@contextmanager
def at_epochs(before=None, after=None):
    """Call `before` and `after` with (folder, seed, epoch) around each new row in the log."""
    honest = run_folder.RunFolder.add_epoch

    def add_epoch(self, seed, epoch):
        if before:
            before(self, seed, epoch.epoch)
        honest(self, seed, epoch)
        if after:
            after(self, seed, epoch.epoch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_folder.RunFolder, "add_epoch", add_epoch)
        yield patch


@pytest.mark.parametrize(
    "name", ["config.yaml", "data.json", "step-", "metrics.csv", "encoder.pt", "embeddings.npz", "result.json"]
)
def test_killed_at_any_write_it_ends_the_same(name, graphs, unbroken, tmp_path, monkeypatch):
    """The process is killed when a file is half written, or after the file is written."""
    out, deaths = tmp_path / "run", {0: "before", 1: "after", 3: "before"}
    modules = (graphcl.system.files, graphcl.training.checkpoint, run_folder)
    honest, count, kills = graphcl.system.files.write_whole, [0], [0]

    def write_whole(path, write):
        when = deaths.get(count[0]) if path.name.startswith(name) else None
        count[0] += path.name.startswith(name)
        kills[0] += when is not None
        if when == "before":
            path.with_name(f".{path.name}.partial").write_bytes(b"half")
            raise Killed
        honest(path, write)
        if when == "after":
            raise Killed

    for module in modules:
        monkeypatch.setattr(module, "write_whole", write_whole)
    while True:
        before = kills[0]
        try:
            assert main(["--dataset", graphs, *ARGUMENTS, "--resume", str(out)]) == 0
            break
        except Killed:
            assert kills[0] == before + 1
    assert kills[0] >= 1
    assert_same(out, unbroken)


def test_half_a_line_of_the_metrics(graphs, unbroken, tmp_path):
    out = tmp_path / "run"

    def die(folder, seed, epoch):
        if (seed, epoch) == (1, 3):
            for name in ("metrics.jsonl", "metrics.csv"):
                with (folder.path / name).open("a") as file:
                    file.write('{"seed": 1, "epo')
            raise Killed

    with at_epochs(before=die), pytest.raises(Killed):
        main(["--dataset", graphs, *ARGUMENTS, "--out", str(out)])
    assert main(["--resume", str(out)]) == 0  # the settings are those in the folder
    assert_same(out, unbroken)


def test_a_finished_run_is_only_summarised(unbroken, capfd):
    names = [path.name for path in unbroken.iterdir() if path.name not in ("report.html", "metrics.csv")]
    before = {name: (unbroken / name).read_bytes() for name in names}
    assert main(["--resume", str(unbroken), "--threads", "1", "--report", "false"]) == 0
    printed = capfd.readouterr().out
    assert "seed 0: finished before\nseed 1: finished before" in printed
    assert "trained encoder" in printed
    assert {name: (unbroken / name).read_bytes() for name in names} == before


def test_a_missing_folder_alone_is_refused(tmp_path, capfd):
    assert main(["--resume", str(tmp_path / "runn")]) == 2
    assert f"folder {tmp_path}/runn not found; check the path, or give `--dataset`" in capfd.readouterr().err
    assert not (tmp_path / "runn").exists()


def test_a_run_without_a_finished_seed_has_no_encoder(graphs, tmp_path):
    (tmp_path / "config.yaml").touch()
    with pytest.raises(InputError, match=f"no seed of {tmp_path} is finished; run: graphcl run --resume"):
        load_encoder(tmp_path)


def test_a_run_is_extended_by_seeds(graphs, unbroken, tmp_path, capfd):
    out = tmp_path / "run"
    words = ["--dataset", graphs, *ARGUMENTS, "--resume", str(out)]
    assert main([*words, "--seeds", "0"]) == 0
    printed = capfd.readouterr().out
    assert f"{out} did not exist: this is a new run\n" in printed
    assert re.search(r"knn, trained encoder +\S+ +- +\S+\n", printed)  # one seed has no deviation
    assert f"one seed of five: graphcl run --resume {out} --seeds 0-4 adds the others" in printed
    assert main(["--resume", str(out), "--seeds", "0-1"]) == 0
    printed = capfd.readouterr().out
    assert "seed 0: finished before\n" in printed
    assert "new run" not in printed
    assert_same(out, unbroken)


def refused(arguments, message, capfd):
    assert main(arguments) == 2
    err = capfd.readouterr().err
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lr", "0.5", "--loss", "dcl"], "`loss.name` was 'infonce' and is 'dcl'; "),
        (["--seeds", "1-2"], "`seeds` was [0, 1] and is [1, 2]. Resume it with its own settings, pass another"),
        (["--out", "elsewhere"], "run and elsewhere; give one."),
        (["--resume"], "`--resume` takes one value, got 0."),
    ],
)
def test_mistakes_get_one_message(arguments, message, unbroken, capfd):
    refused(["--resume", str(unbroken), *arguments], message, capfd)


def test_folders_that_cannot_be_resumed(unbroken, graphs, tmp_path, capfd):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    other = ["--dataset", graphs, "--resume", str(tmp_path / "other")]
    refused(other, "is not a run folder, it contains thesis.tex;", capfd)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in unbroken.iterdir():
        if path.name != ".lock":
            (copy / path.name).write_bytes(path.read_bytes())
    resume = ["--resume", str(copy)]
    with run_folder.RunFolder(make_config({**read_config(copy / "config.yaml"), "out": str(copy), "resume": True})):
        refused(resume, "another run uses", capfd)
    whole = (copy / "embeddings.npz").read_bytes()
    for name, content in [
        ("embeddings.npz", b""),
        ("embeddings.npz", whole[: len(whole) // 2]),
        ("encoder.pt", b"PK"),
        ("result.json", b'{"seeds": 1}'),
        ("result.json", (copy / "result.json").read_bytes().replace(b'"accuracy"', b'"accurac_"', 1)),
    ]:
        intact = (copy / name).read_bytes()
        (copy / name).write_bytes(content)
        refused(resume, "cannot be resumed, a file is damaged: ", capfd)
        (copy / name).write_bytes(intact)


@pytest.mark.parametrize("rows", [0, 3])
def test_lost_metrics_of_a_finished_seed_are_reported(rows, graphs, unbroken, tmp_path, capfd):
    """A damaged line costs this line only; all other results stay."""
    copy = shutil.copytree(unbroken, tmp_path / "copy")
    before = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    kept = [*before[:2], "{damaged\n", *before[3:]] if rows else []
    (copy / "metrics.jsonl").write_text("".join(kept))
    assert main(["--resume", str(copy)]) == 0
    err = capfd.readouterr().err
    for seed in (0,) if rows else (0, 1):
        assert f"metrics.jsonl lacks epochs of the finished seed {seed}, or they changed; its scores, weights" in err
    assert err.count("\n") == (1 if rows else 2)
    assert (copy / "metrics.jsonl").read_text() == "".join(each for each in kept if "damaged" not in each)
    assert (copy / "result.json").read_bytes() == (unbroken / "result.json").read_bytes()


@pytest.mark.parametrize(("change", "message"), [
    (lambda data: data[::-1], "`dataset.digest` was "),
    (lambda data: data[:-2], "`dataset.graphs` was 36 and is 34; "),
])  # fmt: skip
def test_other_data_is_refused(change, message, tmp_path, capfd):
    path, out = tmp_path / "own.pt", tmp_path / "run"
    InMemoryDataset.save(small_graphs(), str(path))
    assert main(["--dataset", str(path), *ARGUMENTS, "--seeds", "0", "--out", str(out)]) == 0
    settings = (out / "config.yaml").read_bytes()
    InMemoryDataset.save(change(small_graphs()), str(path))
    refused(["--resume", str(out), "--seeds", "0", "1"], f"{out} holds a run on other data: {message}", capfd)
    assert (out / "config.yaml").read_bytes() == settings
    InMemoryDataset.save(small_graphs(), str(path))
    (out / "config.yaml").write_bytes(settings.replace(b"lr: 0.01", b"lr: 0.02"))
    refused(["--resume", str(out)], "config.yaml was changed after a seed was finished: `lr` was 0.01 and is", capfd)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_exits_with_75(number, graphs, unbroken, tmp_path, capfd, request):
    inherited = signal.signal(number, signal.SIG_DFL)  # nohup ignores SIGHUP, and a run respects that
    request.addfinalizer(lambda: signal.signal(number, inherited))
    out, before = tmp_path / "run", signal.SIG_DFL

    def send(folder, seed, epoch):
        if (seed, epoch) == (1, 2):
            os.kill(os.getpid(), number)

    with at_epochs(after=send):
        assert main(["--dataset", graphs, *ARGUMENTS, "--checkpoint.epochs", "1000", "--out", str(out)]) == 75
    err = capfd.readouterr().err
    assert f"graphcl: {signal.Signals(number).name}: saving and stopping." in err
    assert f"graphcl: stopped; everything is saved; `--resume {out}` continues the run." in err
    assert signal.getsignal(number) == before
    assert main(["--resume", str(out), "--checkpoint.epochs", "1"]) == 0
    assert outcome(out) == outcome(unbroken)


class Closed:
    """Stream that is closed by its reader after `lines` lines that contain `word`."""

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
def test_a_run_whose_output_nobody_reads_is_saved(signalled, graphs, unbroken, tmp_path):
    """In `graphcl run ... 2>&1 | tee log`, Ctrl-C also ends tee, so the run cannot print any more."""
    out = tmp_path / "run"

    def send(folder, seed, epoch):
        if signalled and (seed, epoch) == (1, 2):
            os.kill(os.getpid(), signal.SIGTERM)

    with at_epochs(after=send) as patch:
        patch.setattr(sys, "stdout", Closed("epoch", 5))
        patch.setattr(sys, "stderr", Closed("", 0))
        assert main(["--dataset", graphs, *ARGUMENTS, "--checkpoint.epochs", "1000", "--out", str(out)]) == 75
    assert len(list(out.glob("checkpoints/seed-1/step-*.pt"))) == 1
    assert main(["--resume", str(out), "--checkpoint.epochs", "1"]) == 0
    assert outcome(out)["metrics"] == outcome(unbroken)["metrics"]


def test_a_signal_during_evaluation_stops_at_once(graphs, tmp_path, monkeypatch, capfd):
    def score_rows(*arguments, **options):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
        raise AssertionError("not reached")

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "score_rows", score_rows)
        assert main(["--dataset", graphs, *ARGUMENTS, "--out", str(out)]) == 75
    err = capfd.readouterr().err
    assert "graphcl: SIGTERM: stopping." in err
    assert f"stopped; finished results are saved; `--resume {out}` continues the run." in err
    assert main(["--resume", str(out)]) == 0


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


@pytest.fixture
def small_disk(tmp_path):
    """Return the path of a mounted disk of one megabyte; skip the test if mounting is not permitted."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True)
    except OSError:
        pytest.skip("mount not found")
    if made.returncode:
        pytest.skip("mounting is not permitted")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk):
    with (disk / "filler").open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(512))
            except OSError:
                return


def test_a_full_disk_loses_nothing(graphs, unbroken, small_disk, capfd):
    """If the disk is full at a checkpoint, the run warns and goes on; at a log entry, it ends and can be resumed."""
    out = small_disk / "run"

    def before(folder, seed, epoch):
        (small_disk / "filler").unlink(missing_ok=True)
        if (seed, epoch) == (1, 4):
            fill(small_disk)

    def after(folder, seed, epoch):
        if (seed, epoch) == (1, 2):
            fill(small_disk)

    with at_epochs(before, after):
        assert main(["--dataset", graphs, *ARGUMENTS, "--out", str(out)]) == 2
    err = capfd.readouterr().err
    assert "no checkpoint at step 6: No space left on device" in err
    assert (
        f"graphcl: No space left on device, in {out}; earlier results are saved; resume with `--resume {out}`." in err
    )
    assert "Traceback" not in err
    assert json.loads((out / "result.json").read_text())["seeds"] == [0]
    (small_disk / "filler").unlink()
    assert main(["--resume", str(out)]) == 0
    assert_same(out, unbroken)


def test_a_signal_that_is_ignored_stays_ignored():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)]
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with Stop().listening():
            assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) not in before
        assert signal.getsignal(signal.SIGTERM) == before[0]
    finally:
        signal.signal(signal.SIGUSR1, before[1])
