"""Measure memory, time and gradients of training steps with and without `micro_batch`:

    python benchmarks/micro_batch.py --mirror FOLDER

NCI1, repeated up to the size of a batch; GIN with BatchNorm in evaluation mode (`frozen_bn`), two views by node drop,
InfoNCE, one thread, projections of width D. Each cell has its own process. Memory is the peak above that of the loaded
data, where the allocator returns what is freed at once; CPU time is that of a step in another process, where it does
not. The gradient is that of the encoder in float64, relative to the largest entry of the plain one.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from functools import partial

import torch
from memory import high_water, settle

from graphcl import GIN, ContrastiveModel, NodeDrop, ResidentLoader, TwoViews, load_dataset, train

BATCHES, PROJECTIONS, PIECE, STEPS = (256, 1024, 8192), (64, 384), 256, 2

AT_ONCE = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}


def graphs(options, count):
    """Return `count` graphs: NCI1, as often as needed."""
    dataset = load_dataset("NCI1", mirror=options.mirror, data_root=options.data_root)
    return [dataset[number % len(dataset)] for number in range(count)]


def method(columns, projection=64):
    """Return an untrained model and the method."""
    torch.manual_seed(0)
    return TwoViews(ContrastiveModel(GIN(columns, 128, 3), projection), "infonce")


def cell(options):
    """Print the peak in MB and the CPU seconds of a step."""
    torch.set_num_threads(1)
    found = graphs(options, options.batch)
    made, loader = method(found[0].num_features, options.projection), ResidentLoader(found, len(found))
    small = ResidentLoader(found[:8], 8)
    train(made, small, NodeDrop(0.2), NodeDrop(0.2), steps=1, frozen_bn=True)  # libraries load what they need
    settle()
    before, started = high_water(), time.process_time()
    piece = options.piece or None
    train(made, loader, NodeDrop(0.2), NodeDrop(0.2), steps=STEPS, micro_batch=piece, frozen_bn=True)
    print(high_water() - before, (time.process_time() - started) / STEPS)


def gradient(batch, piece, columns):
    """Return the gradient of a batch in float64."""
    made = method(columns).double().train()
    for each in made.modules():
        if isinstance(each, torch.nn.BatchNorm1d):
            each.eval()
    made.model.micro_batch = piece
    made(batch, batch, ids=torch.arange(batch.num_graphs)).loss.backward()
    return torch.cat([each.grad.flatten() for each in made.parameters()])


def main():
    """Measure all cells and print a table."""
    parser = argparse.ArgumentParser(prog="python benchmarks/micro_batch.py")
    parser.add_argument("--mirror", help="folder or URL holding NCI1.zip")
    parser.add_argument("--data-root", default="datasets")
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--piece", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--projection", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.batch:
        cell(options)
        return
    print("| D | batch | plain, MB | pieces, MB | plain, CPU s | pieces, CPU s | time ratio |\n" + "|---" * 7 + "|")
    for projection, batch in itertools.product(PROJECTIONS, BATCHES):
        found = []
        for piece in (0, PIECE):
            arguments = ["--batch", str(batch), "--piece", str(piece), "--projection", str(projection)]
            command = [sys.executable, __file__, *sys.argv[1:], *arguments]
            run = partial(subprocess.run, command, stdout=subprocess.PIPE, text=True, check=True)
            found.append((float(run(env=AT_ONCE).stdout.split()[0]), float(run().stdout.split()[1])))
        (plain, time1), (pieces, time2) = found
        figures = f"{plain:.0f} | {pieces:.0f} | {time1:.2f} | {time2:.2f} | {time2 / time1:.2f}"
        print(f"| {projection} | {batch} | {figures} |", flush=True)
    whole = next(iter(ResidentLoader(graphs(options, 1024), 1024)))
    whole.x = whole.x.double()
    one, two = (gradient(whole, piece, whole.num_features) for piece in (None, 100))
    print(f"gradient in float64, batch 1024, pieces of 100: {(one - two).abs().max() / one.abs().max():.1e}")


if __name__ == "__main__":
    main()
