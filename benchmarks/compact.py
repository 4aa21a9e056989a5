"""Measure compact columns: python benchmarks/compact.py [--graphs 5000] [--columns 131]

Writes graphs with a one-hot `x` and a copy of the folder with plain floats, and prints JSON: the bytes of both, and the
CPU time of an epoch on each, in turn, so that the ratio holds on a busy machine. The losses must be equal.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from on_disk import Shard, molecules

from graphcl import (
    GIN,
    ContrastiveModel,
    EpochBatches,
    Loss,
    NodeDrop,
    TwoViews,
    load_dataset,
    make_loader,
    open_on_disk,
    train,
    write_on_disk,
)
from graphcl.datasets import preparation
from graphcl.system.memory import keep_freed_memory


def plain(folder: Path, other: Path) -> None:
    """Copy a folder with plain floats instead of compact columns."""
    shutil.copytree(folder, other)
    meta = json.loads((other / "graphcl.json").read_text())
    meta["compact"] = {}
    (other / "graphcl.json").write_text(json.dumps(meta))
    np.save(other / "x.npy", open_on_disk(folder)._data.x.numpy())


def step_seconds(dataset):
    """Return the CPU seconds of an epoch, and its loss."""
    order = torch.Generator().manual_seed(0)
    loader = make_loader(dataset, batch_sampler=EpochBatches(len(dataset), 128, True, order))
    torch.manual_seed(0)
    method = TwoViews(ContrastiveModel(GIN(dataset.num_features)), Loss("infonce"))
    start = time.process_time()
    (epoch,) = train(method, loader, NodeDrop(0.2), NodeDrop(0.2), epochs=1, generator=torch.Generator().manual_seed(1))
    return time.process_time() - start, epoch.loss


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=5_000)
    parser.add_argument("--columns", type=int, default=131)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as graphcl run
    data, slices = molecules(options.graphs, torch.Generator().manual_seed(0))
    kinds = torch.randint(options.columns, (len(data.x),), generator=torch.Generator().manual_seed(1))
    preparation._LARGE = 1
    data.x = torch.nn.functional.one_hot(kinds, options.columns).float()
    with tempfile.TemporaryDirectory() as place:
        compact, floats = Path(place, "compact"), Path(place, "floats")
        write_on_disk(iter([Shard(data, slices)]), compact)
        plain(compact, floats)
        found = {"graphs": options.graphs, "columns": options.columns}
        for name, folder in (("compact", compact), ("floats", floats)):
            found[f"{name}_x_mb"] = (folder / "x.npy").stat().st_size / 1e6
            found[f"{name}_disk_mb"] = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
        sets = {"compact_disk": open_on_disk(compact), "floats_disk": open_on_disk(floats)}
        sets["compact_memory"] = load_dataset(Shard(data, slices))
        preparation._LARGE = 2**60
        sets["floats_memory"] = load_dataset(Shard(data, slices))
        for dataset in sets.values():
            step_seconds(dataset)
        runs = [{name: step_seconds(dataset) for name, dataset in sets.items()} for _ in range(options.repeats)]
        assert len({loss for run in runs for _, loss in run.values()}) == 1
        for name in sets:
            found[f"{name}_epoch_cpu_s"] = round(statistics.median(run[name][0] for run in runs), 3)
        for kind in ("disk", "memory"):
            ratios = [run[f"compact_{kind}"][0] / run[f"floats_{kind}"][0] for run in runs]
            found[f"{kind}_ratio"] = round(statistics.median(ratios), 3)
    print(json.dumps({name: round(each, 3) for name, each in found.items()}))


if __name__ == "__main__":
    main()
