"""Print the peak resident memory of a pipeline in training, above imports and data, in MB.

    python benchmarks/memory.py PIPELINE FILE LIMIT THREADS

Each pipeline has its own process. `ru_maxrss` would include the parent's peak, so the process reads its
high-water mark, reset after the data is loaded.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from pipelines import PIPELINES
from shapes import Generated, generate
from torch_geometric.data import Data

import graphcl


def save(dataset: Any, path: Path) -> None:
    torch.save((dataset._data.to_dict(), dataset.slices), path)


def load(path: Path) -> Generated:
    data, slices = torch.load(path, weights_only=True)
    return Generated(Data(**data), slices)


def peak(name: str, path: Path, limit: int | None, threads: int) -> float | None:
    """Return the MB of a pipeline on a saved set, or None if the system does not report it."""
    if not Path("/proc/self/status").exists():
        return None
    command = [sys.executable, __file__, name, str(path), str(limit or 0), str(threads)]
    # The package that this process measures, whichever is installed.
    environment = os.environ | {"PYTHONPATH": str(Path(graphcl.__file__).parents[1])}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return float(done.stdout)


def high_water() -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))


def settle() -> None:
    """Free memory left over from loading, and reset the high-water mark."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except (OSError, AttributeError):
        pass  # then the peak of loading counts as the level to start from


def main() -> None:
    name, path, limit, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    dataset = load(Path(path))
    PIPELINES[name](generate("molpcba", 16)).epoch()  # libraries load what they need
    settle()
    before = high_water()
    PIPELINES[name](dataset).epoch(int(limit) or None)
    print(high_water() - before)


if __name__ == "__main__":
    main()
