"""Train on molecule-sized graphs from disk: python benchmarks/on_disk.py --graphs 10000000 --steps 200

Writes generated graphs (26 nodes, 56 directed edges in the mean) into a folder in shards, trains on them, and prints
JSON: graphs per second, bytes on disk, and the peak of anonymous memory. Pages of mapped files are not counted, because
the system reclaims them when it needs memory. (Linux only: VmHWM includes both, so a thread polls /proc/self/status.)
The folder is deleted unless --keep is given.
"""

import argparse
import json
import shutil
import threading
import time
from itertools import islice
from pathlib import Path

import torch
from torch_geometric.data import Data, InMemoryDataset

from graphcl import (
    GIN,
    ContrastiveModel,
    EpochBatches,
    Loss,
    NodeDrop,
    TwoViews,
    make_loader,
    open_on_disk,
    train,
    write_on_disk,
)
from graphcl.graphs.segment import pointers, ranges

KINDS = 4


class Shard(InMemoryDataset):
    def __init__(self, data, slices):
        super().__init__()
        self._data, self.slices = data, slices


def molecules(num_graphs, generator):
    """Return trees of 14 to 38 nodes with three extra bonds; two classes differ in their atoms."""

    def whole(below):
        return (torch.rand(below.shape, generator=generator) * below).long()

    counts = torch.randint(14, 39, (num_graphs,), generator=generator)
    ptr = pointers(counts)
    graph = torch.arange(num_graphs).repeat_interleave(counts)
    y = torch.randint(2, (num_graphs,), generator=generator)
    kind = whole(torch.full(graph.shape, 3)) + y[graph]
    x = torch.nn.functional.one_hot(kind, KINDS).float()

    node = ranges(torch.zeros_like(counts), counts)
    child = node[node > 0]
    parent = child - 1 - whole(child.clamp(max=3))
    owner = torch.arange(num_graphs).repeat_interleave(3)
    one = whole(counts[owner])
    other = (one + 2 + whole(counts[owner] - 3)) % counts[owner]
    # Each graph's edges in a row, both directions.
    place = torch.cat([graph[node > 0], owner]).repeat(2).argsort(stable=True)
    ends = torch.stack([torch.cat([child, one]), torch.cat([parent, other])])
    edge_index = torch.cat([ends, ends.flip(0)], dim=1)[:, place]
    slices = {"x": ptr, "edge_index": pointers(2 * (counts + 2)), "y": torch.arange(num_graphs + 1)}
    return Data(x=x, edge_index=edge_index, y=y), slices


def shards(num_graphs, size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for start in range(0, num_graphs, size):
        yield Shard(*molecules(min(size, num_graphs - start), generator))


class AnonymousMemory:
    """Record the peak of the process's anonymous memory in bytes while the block runs."""

    def __enter__(self):
        self.start = self.peak = anonymous()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self):
        while not self._stop.wait(0.01):
            self.peak = max(self.peak, anonymous())

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self.peak = max(self.peak, anonymous())


def anonymous():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status tells no RssAnon")


class Steps:
    """Yield the first steps of a loader's epoch, and count graphs."""

    def __init__(self, loader, steps):
        self.loader, self.steps, self.graphs = loader, steps, 0
        self.batch_sampler = loader.batch_sampler

    def chunks(self):
        left = self.steps
        for batch, sizes in self.loader.chunks():
            if left <= 0:
                return
            left -= len(sizes)
            self.graphs += batch.num_graphs
            yield batch, sizes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=200_000)
    parser.add_argument("--shard", type=int, default=50_000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--window", type=int)
    parser.add_argument("--out", default="/tmp/graphcl-on-disk")
    parser.add_argument("--keep", action="store_true", help="keep the folder, and reuse an existing one")
    options = parser.parse_args()
    torch.set_num_threads(1)

    found = {"graphs": options.graphs, "window": options.window}
    if not (options.keep and Path(options.out).exists()):
        with AnonymousMemory() as memory:
            start = time.perf_counter()
            write_on_disk(shards(options.graphs, options.shard), options.out, name="molecules")
            found["write_graphs_per_second"] = round(options.graphs / (time.perf_counter() - start))
        found["write_anonymous_mb"] = round((memory.peak - memory.start) / 1e6)
    try:
        found["disk_mb"] = round(sum(file.stat().st_size for file in Path(options.out).iterdir()) / 1e6)
        with AnonymousMemory() as memory:
            start = time.perf_counter()
            dataset = open_on_disk(options.out)
            found["open_seconds"] = round(time.perf_counter() - start, 3)
            order = torch.Generator().manual_seed(0)
            sampler = EpochBatches(len(dataset), options.batch_size, True, order, options.window)
            loader = make_loader(dataset, batch_sampler=sampler)
            steps = Steps(loader, options.steps)
            method = TwoViews(ContrastiveModel(GIN(dataset.num_features)), Loss("infonce"))
            (epoch,) = train(method, steps, NodeDrop(0.2), NodeDrop(0.2), epochs=1)
        found["train_anonymous_mb"] = round((memory.peak - memory.start) / 1e6)
        found["train_graphs_per_second"] = round(steps.graphs / epoch.seconds)
        found["data_share"] = round(epoch.data_seconds / epoch.seconds, 3)
        start, cut = time.perf_counter(), 0
        for batch, _ in islice(loader.chunks(), 1, 1 + options.steps // 8):
            cut += batch.num_graphs
        found["load_graphs_per_second"] = round(cut / (time.perf_counter() - start))
    finally:
        if not options.keep:
            shutil.rmtree(options.out)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
