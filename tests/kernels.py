"""Run the tests of Triton kernels on a GPU, or in Triton's interpreter, in a separate process."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
interpreted = os.environ.get("TRITON_INTERPRET") == "1"
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
runs_kernels = pytest.mark.skipif(DEVICE == "cpu" and not interpreted, reason="neither a GPU nor Triton's interpreter")
runs_none = pytest.mark.skipif(interpreted or DEVICE == "cuda", reason="the kernels run in this process")


def run_interpreted(file, selection):
    """Run the selected tests of `file` in the interpreter; Triton reads its variable when it is imported."""
    pytest.importorskip("triton", "3.1", reason="the interpreter of Triton 3.0 does not run them")
    command, root = [sys.executable, "-m", "pytest", "-k", selection, file], Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"TRITON_INTERPRET": "1"}, cwd=root)
    assert done.returncode == 0, done.stdout
