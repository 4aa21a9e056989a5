"""Train MUTAG for 2,000 epochs and check that memory and time per step stay flat.

python benchmarks/monthly/soak.py --mirror FOLDER [--epochs 2000]

Trains twice, with a checkpoint every 50 epochs: once for resident memory and time, once under tracemalloc, which sees
every Python object but costs time. The exit code is 1 if memory or time grows. docs/long_runs.md shows the result.
"""

import argparse
import gc
import statistics
import sys
import tempfile
import tracemalloc
from pathlib import Path

import torch

from graphcl.config import make_config, read_config
from graphcl.datasets import load_dataset
from graphcl.experiment.output import Output
from graphcl.experiment.trial import Trial
from graphcl.system.memory import keep_freed_memory
from graphcl.tasks.task import make_task
from graphcl.training.checkpoint import Checkpoints

PARTS = 8
MOST_GROWTH = {"resident MB": 1.02, "ms a step": 1.15}
"""Largest ratio of the last quarter to the second."""
MOST_RECORD = 2.0
"""KB that an epoch may keep: its record, here and in `train`."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mirror", required=True, help="folder that holds MUTAG.zip")
    parser.add_argument("--epochs", type=int, default=2000)
    given = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        plain = soak(given, Path(place), traced=False)
        traced = soak(given, Path(place), traced=True)
    length = given.epochs // PARTS
    columns = {
        "resident MB": parts(plain, length, "resident", max),
        "ms a step": parts(plain, length, "step", statistics.median),
        "traced MB": parts(traced, length, "traced", max),
    }
    print("| epochs | " + " | ".join(columns) + " |\n|---" + "|---" * len(columns) + "|")
    for number in range(PARTS):
        cells = [f"{values[number]:.2f}" for values in columns.values()]
        print(f"| {number * length + 1} to {(number + 1) * length} | " + " | ".join(cells) + " |")
    grown = []
    for name, most in MOST_GROWTH.items():
        ratio = statistics.mean(columns[name][-2:]) / statistics.mean(columns[name][2:4])
        print(f"{name}: the last quarter is {ratio:.3f} times the second")
        grown += [name] * (ratio > most)
    record = 1000 * (columns["traced MB"][-1] - columns["traced MB"][1]) / (length * (PARTS - 2))
    print(f"traced: {record:.2f} KB an epoch")
    sys.exit(f"not flat: {grown}, {record:.2f} KB an epoch" if grown or record > MOST_RECORD else 0)


def soak(given, place, traced):
    """Return the memory and the time of each epoch."""
    config = make_config({**read_config("graphcl", "MUTAG"), "dataset": "MUTAG", "epochs": given.epochs})
    dataset = load_dataset("MUTAG", place / "data", given.mirror, config.features)
    steps = -(-len(dataset) // config.batch_size)
    found = []

    class Measure(Output):
        def on_epoch(self, epoch):
            gc.collect()
            milliseconds, used = 1000 * epoch.seconds / steps, tracemalloc.get_traced_memory()[0] / 1e6
            found.append({"resident": resident(), "step": milliseconds, "traced": used})

    if traced:
        tracemalloc.start()
    try:
        output = Measure()
        output.checkpoints = Checkpoints(place / f"checkpoints-{traced}", epochs=50)
        Trial(make_task(config, dataset), 0, torch.device("cpu")).run((), output)
    finally:
        tracemalloc.stop()
    return found


def parts(found, length, key, of):
    return [of([each[key] for each in found[start : start + length]]) for start in range(0, length * PARTS, length)]


def resident():
    """Return the resident memory in MB, from /proc."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


if __name__ == "__main__":
    main()
