"""Check that the examples do what their docstrings say."""

import re
import runpy
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from graphcl import InputError, Loss, svm
from graphcl.config import make_config
from graphcl.config.run_command import RUN
from graphcl.registry import losses

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Return a function that runs an example as a script; restore the registry and torch's generator afterwards."""
    before, state = set(losses), torch.get_rng_state()
    monkeypatch.chdir(tmp_path)
    yield lambda name, **options: runpy.run_path(str(EXAMPLES / name), **options)
    for name in set(losses) - before:
        for known in (losses._targets, losses._arguments, losses._facts):
            known.pop(name)
    torch.set_rng_state(state)


@pytest.mark.parametrize("name", ["by_hand.py", "own_loss/align_uniform.py"])
def test_training_gains(run, name, capsys, monkeypatch):
    """Both promise about ten points; fewer folds are used here."""
    monkeypatch.setattr("graphcl.svm", partial(svm, folds=5, inner_folds=2))
    run(name, run_name="__main__")
    untrained, trained = map(float, re.findall(r"([\d.]+) %", capsys.readouterr().out))
    assert trained > untrained + 5


@pytest.mark.parametrize("name", ["estimator.py", "lightning_module.py", "moco.py", "pyg_transform.py"])
@pytest.mark.filterwarnings("ignore")
def test_training_gains_in_loops_of_other_libraries(name, capsys):
    if name.startswith("lightning"):
        pytest.importorskip("pytorch_lightning", reason="the extra `lightning` is not installed")
    with torch.random.fork_rng(devices=[]):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    untrained, trained = map(float, re.findall(r"([\d.]+) %", capsys.readouterr().out))
    assert trained > untrained + 5


def test_losses_compared(run, capsys):
    run("compare_losses.py", run_name="__main__")
    gains = list(map(float, re.findall(r"([+-][\d.]+) ±", capsys.readouterr().out)))
    assert len(gains) == 4
    assert min(gains) > 5


def test_own_data(run, capsys):
    run("own_data.py", run_name="__main__")
    (accuracy,) = map(float, re.findall(r"([\d.]+) %", capsys.readouterr().out))
    assert accuracy > 95


def test_a_grid_in_one_process(run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu_experiment.py", "--epochs", "1", "--seeds", "1"])
    run("gpu_experiment.py", run_name="__main__")
    gains = list(map(float, re.findall(r"\(([+-][\d.]+)\)", capsys.readouterr().out)))
    assert len(gains) == 4
    assert min(gains) > 0


def test_retrieval(monkeypatch, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys, "argv", ["retrieval.py", "--queries", "1", "--out", str(tmp_path / "it.png")])
    runpy.run_path(str(EXAMPLES / "retrieval.py"), run_name="__main__")
    (found,) = map(float, re.findall(r"([\d.]+) %", capsys.readouterr().out))
    assert found > 70
    assert (tmp_path / "it.png").read_bytes().startswith(b"\x89PNG")


def test_the_own_loss_has_a_test_that_passes(tmp_path):
    # In a separate process, because it adds a name to the registry.
    quietly = ["-q", "-p", "no:cacheprovider", "--import-mode=prepend", str(EXAMPLES / "own_loss")]
    done = subprocess.run([sys.executable, "-m", "pytest", *quietly], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split("\n")[0].count(".") >= 7, done.stdout


def test_the_own_loss_keeps_the_contract(run):
    """Check that the registry, all options of `Loss`, the help text and the settings accept it."""
    assert "align_uniform" not in losses
    run("own_loss/align_uniform.py")
    assert losses.summary("align_uniform").startswith("Compute alignment and uniformity")
    z1, z2, queue = torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(0)).unbind()
    for options in ({}, {"negatives": "all"}, {"symmetric": False}, {"engine": "tiled"}):
        assert torch.isfinite(Loss("align_uniform", **options)(z1, z2, queue=queue, weight=torch.ones(6)))
    assert "align_uniform" in RUN.help()
    assert make_config({"loss": "align_uniform"}).loss["t"] == 2.0
    with pytest.raises(InputError, match=r"`t` must be in \(0, inf\), got 0\.0\."):
        Loss("align_uniform", t=0.0)
