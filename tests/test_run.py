"""Test the command line `graphcl.run`: files of a run, output, and error messages."""

import functools
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from graphcl import run as run_module
from graphcl.commands.run import COMMAND as RUN
from graphcl.config import make_config, read_config
from graphcl.config.recipes import shipped_configs
from graphcl.config.resolve import choices
from graphcl.datasets import load_dataset
from graphcl.experiment import trial as experiment
from graphcl.experiment.record import progress
from graphcl.loaders.loader import make_loader
from graphcl.models.gin import GIN
from graphcl.models.saved import load_encoder, read_saved
from graphcl.references.rows import row_labels
from graphcl.registry import augmentations, encoders, evaluators, losses
from graphcl.run import main
from graphcl.system.progress import showing
from graphcl.system.signals import Stop
from graphcl.training.loop import Epoch
from graphcl.training.settings import TrainingSettings
from tests.conftest import overriding, small_graphs
from tests.methods.small import OF_GRAPHS
from tests.trials import try_settings

ROWS = row_labels()

QUICK = ["--epochs", "2", "--seeds", "0", "1", "--batch-size", "16", "--evaluation.folds", "3"]
QUICK += ["--evaluation.inner-folds", "2", "--encoder.hidden_channels", "8", "--report", "false"]


EVERY = ["--eval", "svm,knn", "--evaluation.scale"]


@pytest.fixture
def go(saved_graphs, tmp_path, capfd):
    """Return a function that runs the command line on small graphs.

    The function returns the exit code, stdout, stderr and the run folder.
    """

    def run(*words: str, **options):
        out = tmp_path / "run"
        dataset = [] if "--dataset" in words else ["--dataset", saved_graphs(**options)]
        where = [] if "--out" in words else ["--out", str(out)]
        code = main([*dataset, *where, *overriding(QUICK, *words)])
        captured = capfd.readouterr()
        return code, captured.out, captured.err, out

    return run


def test_a_run_keeps_everything(go):
    code, printed, err, out = go("--loss", "adnce", "--loss.mu", "0.5", "--report", "true", *EVERY)
    assert (code, err) == (0, "")
    assert sorted(path.name for path in out.iterdir() if path.name != ".lock") == [
        "card.md", "checkpoints",
        "config.yaml", "data.json", "embeddings.npz", "encoder.pt", "metrics.jsonl", "report.html",
        "report.npz",
        "result.json",
    ]  # fmt: skip

    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [(line["seed"], line["epoch"]) for line in lines] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert all(np.isfinite([line["loss"], line["alignment"], line["uniformity"]]).all() for line in lines)

    result = json.loads((out / "result.json").read_text())
    assert result["config"]["loss"]["mu"] == 0.5
    assert result["config"]["features"] == "labels"  # resolved, not "auto"
    assert torch.__version__.startswith(result["versions"]["torch"].split("+")[0])
    assert {"load", "embed", "train", "evaluate"} <= set(result["seconds"])
    assert result["hardware"]["device"] == "cpu"

    arrays = np.load(out / "embeddings.npz")
    assert arrays["h"].shape == (2, 36, 24)
    assert arrays["seeds"].tolist() == [0, 1]
    # The scores are those of the saved embeddings.
    assert (list(result["scores"]), result["folds"], result["inner_folds"]) == (["svm", "knn"], 3, 2)
    for name, scores in result["scores"].items():
        options = {"folds": 3, "inner_folds": 2, **({"scale": True} if name == "svm" else {})}
        again = [evaluators[name](arrays["h"][i], arrays["y"], seed=i, **options) for i in range(2)]
        for key in ("accuracy", "chosen"):
            assert [tuple(each["trained"][key]) for each in scores["per_seed"]] == [
                getattr(each, key) for each in again
            ]
        assert scores["trained"]["mean"] == pytest.approx(np.mean([each.mean for each in again]))
        assert scores["gain"]["mean"] == pytest.approx(scores["trained"]["mean"] - scores["untrained"]["mean"])
        for row in [label for row, label in ROWS.items() if row in scores] + ["gain over untrained encoder"]:
            assert sum(line.startswith(f"{name}, {row} ") for line in printed.split("\n")) == 1
    assert "3 stratified folds, C and k by an inner 2-fold grid; mean over 2 seeds at epoch 2." in printed
    assert f"{result['scores']['svm']['trained']['mean']:.2f}" in printed
    assert re.match(r"loading \S+own.pt \.\.\.\n", printed)
    assert "\nseed 0: scoring ...\nseed 0: majority " in printed


def test_bars_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "40")
    monkeypatch.setattr(sys, "stderr", screen := io.StringIO())
    monkeypatch.setattr(screen, "isatty", lambda: True)
    training = SimpleNamespace(settings=TrainingSettings(epochs=20), loader=range(5), steps=31, epoch=6)
    with showing(), progress.TrainingBar(0, make_config({"epochs": 20, "batch_size": 10}), Stop(), True) as bar:
        bar.step(training)  # not the first step, as in a resumed run
        bar.epoch(Epoch(7, 0.5, 0.25, -1.0, 2.0, 1.0))
    *_, line = [each for each in screen.getvalue().split("\r") if each.strip()]
    assert re.match(r"seed 0, epoch 7: 310/1000 .* graphs/s, \S+ left, loss 0.5000, alignment 0.250, uniformity", line)
    with showing(), progress.fold_bar(0) as show:
        show("svm, trained", 3, 3)
    assert "seed 0: svm, trained: 3/3 " in screen.getvalue()


def test_the_total_of_a_bar_is_that_of_the_graphs():
    loader = make_loader(load_dataset(small_graphs(36)), 10)
    count = progress.TrainingBar(0, make_config({"batch_size": 10}), Stop(), True)._graphs_in(loader)
    assert [count(steps) for steps in (0, 1, 3, 4, 5, 8)] == [0, 10, 30, 36, 46, 72]


def test_a_column_beside_which_the_svm_sees_no_other(go, monkeypatch, tmp_path):
    def embed(model, loader):
        h, y = honest(model, loader)
        return torch.cat([1e5 * h[:, :1], h[:, 1:]], dim=1), y

    honest = experiment.embed
    monkeypatch.setattr(experiment, "embed", embed)
    line = "graphcl: seed 4: one column holds 100.0 % of the embedding's variance, so the SVM uses little else; "
    for words, told in (([], 1), (["--evaluation.scale"], 0), (["--eval", "knn"], 0)):
        code, _, err, _ = go("--seeds", "4", *words, "--out", str(tmp_path / "_".join(["run", *words])))
        assert (code, err.count(line), err.count("\n")) == (0, told, told)


def test_the_files_of_a_run_repeat_it(go, saved_graphs, tmp_path):
    """The saved encoder gives the saved embeddings; the saved configuration repeats the run."""
    _, _, _, out = go("--loss", "dcl", "--views.second", "node_drop")
    h = np.load(out / "embeddings.npz")["h"]
    encoder, description = load_encoder(out, seed=1)
    assert (type(encoder), encoder.training, encoder.out_channels) == (GIN, False, 24)
    assert description.settings["loss"]["name"] == "dcl"
    graph = load_dataset(saved_graphs())[4]
    assert torch.allclose(encoder(graph.x, graph.edge_index)[0], torch.from_numpy(h[1, 4]), atol=1e-5)
    assert main(["--config", str(out / "config.yaml"), "--out", str(tmp_path / "again")]) == 0
    assert np.array_equal(np.load(tmp_path / "again" / "embeddings.npz")["h"], h)


def test_without_out_folders_are_numbered(saved_graphs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = saved_graphs()
    for _ in range(2):
        assert main(["--dataset", path, *overriding(QUICK, "--epochs", "1")]) == 0
    assert sorted(folder.name for folder in (tmp_path / "runs").iterdir()) == ["own-infonce-1", "own-infonce-2"]


def test_unlabelled_graphs_and_small_classes(go):
    """Graphs without labels are embedded and scored by copies; a class smaller than the folds reduces the folds."""
    code, _, _, out = go(labelled=False)
    assert code == 0
    arrays = np.load(out / "embeddings.npz")
    assert (arrays["h"].shape, "y" in arrays) == ((2, 36, 24), False)
    assert list(json.loads((out / "result.json").read_text())["scores"]) == ["instance"]
    code, _, err, _ = go("--evaluation.folds", "10", "--out", f"{out}-small", n=9, classes=2)
    assert code == 0
    assert err == "graphcl: warning: class 1 has only 4 graphs: 4 outer and 2 inner folds instead of 10 and 2.\n"


MISTAKES = [
    ("--dataset PROTEIN", {}, "PROTEINS"),
    ("--encoder gine", {}, "encoder `gine` needs `edge_attr`, which own lacks; use gin."),
    ("--device cuda:99", {}, "`device` is cuda:99, but torch sees"),
    ("--out /dev/null/x", {}, "cannot create the folder /dev/null/x"),
    ("--out full", {}, "full exists already and is never overwritten; pass another folder with --out."),
    ("--eval knn", {"labelled": False}, "`eval` knn does not fit own, which has no classes; pass --eval instance."),
    ("", {"n": 1}, "graph"),
    ("", {"n": 3}, "`y` must leave 2 graphs of every class in each training part, got 1 of class 1."),
    ("", {"n": 9, "classes": 1}, "`y` must have two classes or more, got [0]."),
]


def test_a_mistake_is_one_line_and_writes_nothing(go, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("x")
    for words, options, line in MISTAKES:
        code, _, err, out = go(*words.split(), **options)
        assert (code, line in err) == (2, True), (words, options, err)
        assert all(each.startswith("graphcl: ") for each in err.strip().split("\n"))
        assert not out.exists()
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["precious"]


def test_a_run_that_stops_keeps_what_finished(go, monkeypatch):
    """If the loss of the second seed becomes NaN, all results of the first seed are saved."""
    honest, calls = experiment.train, []

    def train(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            options["lr"] = 1e30
            options["epochs"] = 5
        return honest(*arguments, **options)

    monkeypatch.setattr(experiment, "train", train)
    code, printed, err, out = go()
    assert code == 2
    assert "became NaN or infinite" in err
    assert "seed 0: majority" in printed
    assert np.load(out / "embeddings.npz")["seeds"].tolist() == [0]
    assert list(read_saved(out)[1]) == [0]
    result = json.loads((out / "result.json").read_text())
    assert result["scores"]["svm"]["trained"]["seeds"] == [0]
    assert not list(out.glob(".*partial"))


def test_every_name_takes_a_step_from_the_command_line(saved_graphs):
    path = saved_graphs(edge_attr=True)
    dataset = load_dataset(path)
    options = [["--loss", name] for name in choices(losses)]
    options += [["--method", name] for name in OF_GRAPHS]
    unfit = {"molecule_gine", "molecule_gin", "wl_sparse"}  # which need category features, and pairs
    options += [["--encoder", name] for name in encoders if name not in unfit]
    for name in augmentations:
        members = ["--views.second.members=[identity, node_drop]"] if name in ("compose", "one_of") else []
        options.append(["--views.second", name, *members])
    for words in options:
        try_settings(RUN.parse(["--dataset", path, *words]), dataset)


@pytest.mark.parametrize("name", sorted(shipped_configs()))
def test_every_shipped_configuration_trains(name, saved_graphs, tmp_path):
    out = tmp_path / "run"
    of_nodes = make_config(read_config(name)).method["name"] not in OF_GRAPHS
    dataset = "sbm-400" if of_nodes else saved_graphs(n=16)
    words = ["--config", name, "--dataset", dataset, "--batch-size", "8", "--steps", "1", "--seeds", "0"]
    words += ["--evaluation.folds", "2", "--evaluation.inner-folds", "2", "--out", str(out)]
    words += ["--eval", "knn", "--evaluation.scale", "false", "--report", "false"]  # eight times faster
    assert main(words) == 0
    assert np.isfinite(json.loads((out / "metrics.jsonl").read_text())["loss"])
    kept, shipped = read_config(out / "config.yaml"), make_config(read_config(name))
    assert (kept["loss"], kept["method"], kept["name"]) == (shipped.loss, shipped.method, name)


def test_mutag_gains_from_training(mirror, tmp_path):
    words = ["--config", "adnce", "--dataset", "MUTAG", "--mirror", mirror, "--seeds", "0"]
    assert main([*words, "--data-root", str(tmp_path / "data"), "--out", str(tmp_path / "run")]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    # Over five seeds: 88.0 +- 1.0 trained, 86.6 untrained (docs/results.md); majority class: 66.5.
    assert result["scores"]["svm"]["trained"]["mean"] > 83
    assert result["scores"]["svm"]["untrained"]["mean"] > 80
    assert result["epoch_seconds"] < 2


def test_from_any_directory_as_a_module_until_it_is_interrupted(tmp_path, saved_graphs):
    """`python -m graphcl.run` works in any directory; SIGINT gives exit code 75 and names the folder to resume."""
    words = [sys.executable, "-m", "graphcl.run", "--dataset", saved_graphs(), *overriding(QUICK, "--epochs", "100000")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    env = {**os.environ, "PYTHONPATH": str(run_module.__file__).rsplit("/graphcl/", 1)[0]}
    # A background process ignores SIGINT, and its children inherit this.
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(words, cwd=tmp_path, env=env, preexec_fn=heard, **pipes)
    while not (tmp_path / "runs" / "own-infonce-1" / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    printed, err = process.communicate(timeout=30)
    assert process.returncode == 75
    assert "seed 0, epoch 1: loss" in printed
    assert "graphcl: SIGINT: saving and stopping; repeat it to stop at once." in err
    assert "graphcl: stopped; everything is saved; `--resume runs/own-infonce-1` continues the run." in err
    assert "Traceback" not in err
