"""Test that the examples do what their docstrings say."""

import functools
import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcl import InputError, Loss, svm
from graphcl.commands.run import COMMAND as RUN
from graphcl.config import make_config
from graphcl.datasets.synthetic import synthetic
from graphcl.registry import losses
from graphcl.run import main
from graphcl.run import run as run_from_python
from tests.conftest import restored

EXAMPLES = Path(__file__).parents[1] / "examples"


GRAPHS = functools.cache(functools.partial(synthetic, num_graphs=200))


def generate(monkeypatch, graphs):
    """Let `graphs` generate the data set "synthetic"."""
    for module in ("graphcl.datasets.sources.objects", "graphcl.datasets.synthetic"):
        monkeypatch.setattr(f"{module}.synthetic", graphs)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Generate a third of the data set "synthetic" once for all examples, and use fewer folds in `svm` by default."""
    generate(monkeypatch, GRAPHS)
    monkeypatch.setattr("graphcl.svm", functools.partial(svm, folds=5, inner_folds=2))


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Yield a function that runs an example as a script; then restore the registry and torch's random state."""
    monkeypatch.chdir(tmp_path)
    assert losses  # imports all losses
    with restored(losses), torch.random.fork_rng(devices=[]):
        yield lambda name, **options: runpy.run_path(str(EXAMPLES / name), **options)


@pytest.mark.parametrize(
    ("name", "words", "figure", "count", "most"),
    [
        ("by_hand.py", "", "gain", 1, 5),
        ("own_loss/align_uniform.py", "", "gain", 1, 5),
        ("estimator.py", "", "gain", 1, 5),
        ("graphgym.py", "", "gain", 1, 5),
        ("lightning_module.py", "", "gain", 1, 5),
        ("moco.py", "", "gain", 1, 5),
        ("pairs.py", "", "gain", 1, 15),
        ("texts.py", "", r"graphs: recall@1 ([\d.]+) %", 1, 50),
        ("weekly.py", "", "gain", 1, 1),
        ("pyg_transform.py", "", "gain", 1, 2),
        ("compare_losses.py", "", r"([+-][\d.]+) ±", 4, 5),
        ("gpu_experiment.py", "--epochs 1 --seeds 1", r"\(([+-][\d.]+)\)", 4, 0),
        ("own_data.py", "", r"([\d.]+) %", 1, 95),
        ("search.py", "", r"([\d.]+) %", 1, 60),
        ("retrieval.py", "--queries 1 --out it.png", r"([\d.]+) %", 1, 70),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_an_example_prints_what_it_promises(name, words, figure, count, most, run, monkeypatch, capsys):
    """The gain, accuracy or recall in percent; examples whose docstring states a gain print two accuracies."""
    if name.startswith(("lightning", "graphgym")):
        pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
    if name == "graphgym.py":
        pytest.importorskip("yacs", reason="GraphGym needs yacs")
    if name == "search.py":
        pytest.importorskip("faiss", reason="the extra `search` is not installed")
    if name == "retrieval.py":
        generate(monkeypatch, synthetic)  # all graphs
    monkeypatch.setattr(sys, "argv", [name, *words.split()])
    run(name, run_name="__main__")
    found = list(map(float, re.findall(r"([\d.]+) %" if figure == "gain" else figure, capsys.readouterr().out)))
    if figure == "gain":
        untrained, trained = found
        found = [trained - untrained]
    assert len(found) == count
    assert min(found) > most


class Trial:
    """Stand-in for Optuna's `Trial`, with the methods that the example uses."""

    def __init__(self):
        self.user_attrs = {}

    def suggest_float(self, name, low, high, *, log):
        return (low * high) ** 0.5

    def suggest_categorical(self, name, choices):
        return choices[-1]

    def set_user_attr(self, key, value):
        self.user_attrs[key] = value


def test_the_objective_of_a_search(run):
    """The objective trains with the suggested settings, and returns the accuracy on inner folds, not on test folds."""
    trial = Trial()
    value = run("optuna_search.py")["objective"](trial, epochs=1)
    kept = json.loads((Path(trial.user_attrs["folder"]) / "result.json").read_text())
    scores, config = kept["scores"]["knn"], kept["config"]
    assert (config["loss"]["name"], config["views"]["first"]["name"], config["epochs"]) == ("adnce", "identity", 1)
    assert (config["lr"], config["loss"]["temperature"]) == pytest.approx((0.01, 0.05**0.5))
    assert trial.user_attrs["accuracy"] == scores["trained"]["mean"]
    assert value == pytest.approx(np.mean(scores["per_seed"][0]["trained"]["inner"])) != trial.user_attrs["accuracy"]


def test_run_from_python_is_the_command(run, saved_graphs, tmp_path):
    """`graphcl.run.run` and the command line give the same scores; an error message names the setting."""
    settings = {"dataset": "synthetic", "epochs": 1, "seeds": [3], "eval": ["knn"], "report": False}
    found = run_from_python(**settings, out="a", **{"loss.mu": 0.5, "loss": "adnce"})
    words = "--dataset synthetic --loss adnce --loss.mu 0.5 --epochs 1 --seeds 3 --eval knn --report false --out b"
    assert main(words.split()) == 0
    again = json.loads((tmp_path / "b" / "result.json").read_text())
    assert json.loads(json.dumps(found.summary["scores"])) == again["scores"]
    assert (found.accuracy, str(found.folder)) == (again["scores"]["knn"]["trained"]["mean"], "a")
    assert list(found.rows) == ["majority", "statistics", "untrained", "calibrated", "trained"]
    (tmp_path / "own.yaml").write_text("loss: {name: dcl}\nepochs: 0\n")
    assert run_from_python("own.yaml", **settings | {"epochs": 1}, out="c").summary["config"]["loss"]["name"] == "dcl"
    with pytest.raises(InputError, match="`epoch` is not a known key"):
        run_from_python(epoch=1)
    found = run_from_python(**settings | {"dataset": saved_graphs(labelled=False), "eval": "instance"}, out="d")
    assert list(found.rows) == ["statistics", "untrained", "calibrated", "trained"]
    with pytest.raises(InputError, match="the graphs have no class labels, so there is no accuracy"):
        print(found.accuracy)


def test_the_own_loss_passes_its_test_and_keeps_the_contract(run, monkeypatch):
    """The example's loss works with the registry, all options of `Loss`, the help text and the settings."""
    monkeypatch.syspath_prepend(EXAMPLES / "own_loss")
    tests = run("own_loss/test_align_uniform.py")
    views = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).unbind()
    tests["test_is_zero_for_equal_rows"]()
    for engine in ("dense", "tiled"):
        tests["test_gradient"](views, engine)
        tests["test_equals_the_equation"]([view.detach() for view in views], engine, 0.5, 3.0)
    sys.modules.pop("align_uniform")
    assert losses.summary("align_uniform").startswith("Compute alignment and uniformity")
    z1, z2, queue = torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(0)).unbind()
    for options in ({}, {"negatives": "all"}, {"symmetric": False}, {"engine": "tiled"}):
        assert torch.isfinite(Loss("align_uniform", **options)(z1, z2, queue=queue, weight=torch.ones(6)))
    assert "align_uniform" in RUN.topic("losses")
    assert make_config({"loss": "align_uniform"}).loss["t"] == 2.0
    with pytest.raises(InputError, match=r"`t` must be in \(0, inf\), got 0\.0\."):
        Loss("align_uniform", t=0.0)


def test_the_neighbours_of_a_drug_are_of_its_kind(run, tmp_path):
    pytest.importorskip("rdkit", reason="the extra `molecules` is not installed")
    example = run("molecules.py")
    assert "naproxen" in example["main"](picture=str(tmp_path / "n.png"))[:3]
    assert (tmp_path / "n.png").read_bytes().startswith(b"\x89PNG")
    assert hasattr(example["draw"]("CCO", {"glucose": 0.5}), "_repr_png_")  # a notebook shows it
    assert {"theophylline", "caffeine"} == set(example["neighbours"]("Cn1cnc2c1c(=O)[nH]c(=O)n2C", 2))  # theobromine


def test_the_notebook_runs_from_top_to_bottom(run, tmp_path, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    pyplot.close("all")  # of other examples
    cells = json.loads((EXAMPLES / "tour.ipynb").read_text())["cells"]
    source = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    source = source.replace("epochs=10", "epochs=1")
    exec(compile(source, "tour.ipynb", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert re.search(r"dcl: \d", printed)
    assert "trained encoder" in printed
    assert [len(pyplot.figure(number).axes) for number in pyplot.get_fignums()] == [4, 1, 1]
    pyplot.close("all")
