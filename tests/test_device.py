"""Run tests/device/check_device.py on a fake CUDA device in another process, or on a real one where there is one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


@pytest.mark.cuda
def test_the_cuda_paths_equal_the_cpu():
    real = torch.cuda.is_available()
    if not real and shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("no C++ compiler, which the fake device needs")
    if not real and torch.__version__ < "2.5":
        pytest.skip("the fake device does not build with torch 2.4")
    plugin = [] if real else ["-p", "tests.device.fake"]  # it must be loaded before torch
    words = [*plugin, "-o", "addopts=", "-q", "--tb=short", "--import-mode=importlib", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *words, "tests/device/check_device.py"]
    environ = {**os.environ, "PYTEST_ADDOPTS": ""}  # such as `-n 8`, which is for this process only
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
