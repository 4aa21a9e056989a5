"""The examples do what their heads say."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(*words, cwd):
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=cwd, env=quiet)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["by_hand.py", "own_loss/align_uniform.py"])
def test_training_gains(name, tmp_path):
    """Both promise about ten points."""
    printed = run(str(EXAMPLES / name), cwd=tmp_path)
    untrained, trained = map(float, re.findall(r"([\d.]+) %", printed))
    assert trained > untrained + 5


@pytest.mark.parametrize("name", ["estimator.py", "lightning_module.py", "pyg_transform.py"])
@pytest.mark.filterwarnings("ignore")
def test_training_gains_in_other_peoples_loops(name, capsys):
    """In this process, which has imported everything already."""
    if name.startswith("lightning"):
        pytest.importorskip("pytorch_lightning", reason="the extra `lightning` is not installed")
    with torch.random.fork_rng(devices=[]):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    untrained, trained = map(float, re.findall(r"([\d.]+) %", capsys.readouterr().out))
    assert trained > untrained + 5


def test_retrieval(monkeypatch, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    words = ["retrieval.py", "--queries", "1", "--out", str(tmp_path / "it.png")]
    monkeypatch.setattr(sys, "argv", words)
    runpy.run_path(str(EXAMPLES / "retrieval.py"), run_name="__main__")
    (found,) = map(float, re.findall(r"([\d.]+) %", capsys.readouterr().out))
    assert found > 70
    assert (tmp_path / "it.png").read_bytes().startswith(b"\x89PNG")


def test_the_own_loss_has_a_test_that_passes(tmp_path):
    # In a process of its own, as it adds a name to the registry.
    quietly = ["-q", "-p", "no:cacheprovider", "--import-mode=prepend"]
    printed = run("-m", "pytest", *quietly, str(EXAMPLES / "own_loss"), cwd=tmp_path)
    assert printed.split("\n")[0].count(".") >= 7, printed


def test_the_own_loss_keeps_the_contract(tmp_path):
    """The registry, every switch, the help text and the settings see it, and nothing else was edited."""
    code = (
        "import sys, runpy, torch; sys.path.insert(0, sys.argv[1]); import align_uniform\n"
        "from graphcl.registry import losses; from graphcl import Loss\n"
        "z1, z2 = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0)).unbind()\n"
        "assert 'align_uniform' in losses and losses.summary('align_uniform').startswith('Alignment and uniformity')\n"
        "more = {'queue': torch.randn(7, 5), 'weight': torch.ones(6)}\n"
        "for options in ({}, {'negatives': 'all'}, {'symmetric': False}, {'engine': 'tiled'}):\n"
        "    assert torch.isfinite(Loss('align_uniform', **options)(z1, z2, **more))\n"
        "from graphcl.command_line import help_text; assert 'align_uniform' in help_text()\n"
        "from graphcl.config import make_config; assert make_config({'loss': 'align_uniform'}).loss['t'] == 2.0\n"
        "from graphcl.errors import InputError\n"
        "try: Loss('align_uniform', t=0.0)\n"
        "except InputError as error: print(error)\n"
    )
    assert "`t` must be in (0, inf), got 0.0." in run("-c", code, str(EXAMPLES / "own_loss"), cwd=tmp_path)
