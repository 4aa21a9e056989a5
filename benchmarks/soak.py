"""Two thousand epochs on MUTAG: memory and time per step stay flat. docs/long_runs.md tells.

python benchmarks/soak.py --mirror ../shared/tu [--epochs 2000]

Trained twice, with a checkpoint every 50 epochs: once as it is, for resident memory and time; once under tracemalloc,
which sees every Python object, but costs time. An epoch's record is kept, as `train` returns it. The exit code is 1 if
memory or time grows beyond that.
"""

import argparse
import gc
import statistics
import sys
import tempfile
import tracemalloc
from pathlib import Path

import torch

from graphcl.config.files import read_config
from graphcl.config.settings import make_config
from graphcl.datasets import load_dataset
from graphcl.experiment.seed import make_model, train_seed
from graphcl.system.memory import keep_freed_memory
from graphcl.training.checkpoint import Checkpoints

PARTS = 8
MOST_GROWTH = {"resident MB": 1.02, "ms a step": 1.15}
"""The last quarter against the second, at most."""
MOST_RECORD = 2.0
"""KB that an epoch may leave behind: its record here and in `train`."""


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
    """What each epoch looked like."""
    config = make_config({**read_config("graphcl/MUTAG"), "epochs": given.epochs})
    dataset = load_dataset("MUTAG", place / "data", given.mirror, config.features)
    model = make_model(config, dataset)
    steps = -(-len(dataset) // config.batch_size)
    found = []

    def look(epoch):
        gc.collect()
        found.append(
            {
                "resident": resident(),
                "step": 1000 * epoch.seconds / steps,
                "traced": tracemalloc.get_traced_memory()[0] / 1e6,
            }
        )

    if traced:
        tracemalloc.start()
    try:
        kept = Checkpoints(place / f"checkpoints-{traced}", epochs=50)
        train_seed(config, dataset, model, callbacks=[look], checkpoints=kept)
    finally:
        tracemalloc.stop()
    return found


def parts(found, length, key, of):
    return [of([each[key] for each in found[start : start + length]]) for start in range(0, length * PARTS, length)]


def resident():
    """Resident memory in MB, as Linux tells it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


if __name__ == "__main__":
    main()
