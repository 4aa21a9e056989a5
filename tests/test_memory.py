"""Keeping freed memory: a setting of the process, tried in processes of their own."""

import subprocess
import sys

import pytest

CODE = """
import resource, torch
from graphcl.memory import keep_freed_memory
kept = {keeps} and keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(10_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(kept, faults())
"""


def measured(keeps):
    pytest.importorskip("resource")
    out = subprocess.run([sys.executable, "-c", CODE.format(keeps=keeps)], capture_output=True, text=True, check=True)
    kept, faults = out.stdout.split()
    return kept == "True", int(faults)


def test_large_tensors_reuse_memory():
    kept, faults = measured(True)
    if not kept:
        pytest.skip("this C library has no such setting")
    # 20 tensors of 40 MB, which are nearly 200,000 pages if each is new.
    assert faults < 1000
    assert measured(False)[1] > 10 * max(faults, 1)
