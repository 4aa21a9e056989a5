"""`keep_freed_memory`, tested in a separate process, as it changes the whole process."""

import subprocess
import sys
from pathlib import Path

import pytest

import graphcl

CODE = """
import resource, runpy, sys
keep_freed_memory = runpy.run_path(sys.argv[1])["keep_freed_memory"]  # the file alone imports in no time
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        b"1" * 40_000_000  # memory of malloc, as for tensors; Python imports in no time
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
usual = faults()
kept = keep_freed_memory()
faults()
print(int(kept), usual, faults())
"""


def test_large_blocks_reuse_memory():
    pytest.importorskip("resource")
    file = Path(graphcl.__file__).parent / "system" / "memory.py"
    out = subprocess.run([sys.executable, "-c", CODE, file], capture_output=True, text=True, check=True)
    kept, usual, faults = map(int, out.stdout.split())
    if not kept:
        pytest.skip("this C library has no such setting")
    assert faults < 1000  # ten times 40 MB are nearly 100,000 pages if each is new
    assert usual > 10 * max(faults, 1)
