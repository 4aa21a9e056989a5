"""Dense and tiled engine of every pairwise loss on the CPU: python benchmarks/losses.py

Prints Markdown tables of forward and backward for two views [N, D]: CPU seconds of both engines, interleaved in one
process (medians), and how many times as fast tiled is; peak memory above the inputs, each in a separate process (Linux
only); and growth with N, with exponents fitted by least squares to the logarithms.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import torch

from graphcl.losses import Loss
from graphcl.registry import losses
from graphcl.system.memory import keep_freed_memory

MORE = {"tuplet": {"num_negatives": 8}, "cl_dro": {"divergence": "chi2"}, "infonce": {"temperature": 0.01}}
"""Arguments of a second case of a loss, which take another path."""

FITTED = 2048
"""Smallest N of the fit of the exponents: below, a loss is mostly calls, and memory mostly the tiles."""


def cases():
    for name in losses:
        if hasattr(losses[name], "formula"):
            yield from ((name, arguments) for arguments in ({}, *([MORE[name]] if name in MORE else [])))


def inputs(name, n, columns):
    """Return two views and what the loss needs: labels of pairs of graphs, or a queue of 4 N rows."""
    generator = torch.Generator().manual_seed(0)
    others = {"labels": torch.arange(n) // 2} if "labels" in losses.arguments(name).tensors else {}
    if losses.arguments(name).defaults.get("negatives") == "queue":
        others["queue"] = torch.randn(4 * n, columns, generator=generator)
    return [z.requires_grad_() for z in torch.randn(2, n, columns, generator=generator)], others


def seconds(name, arguments, n, columns, budget, clock):
    """Return the median seconds of both engines, after a warm-up, of runs that take about `budget` seconds in all."""
    views, others = inputs(name, n, columns)
    both = [Loss(name, engine=engine, **arguments) for engine in ("dense", "tiled")]
    spent = [[], []]
    end = time.perf_counter() + budget
    while len(spent[0]) < 3 or (time.perf_counter() < end and len(spent[0]) < 200):
        for loss, into in zip(both, spent, strict=True):
            start = clock()
            loss(*views, **others).backward()
            into.append(clock() - start)
    return [statistics.median(each[1:]) for each in spent]


def speed(options):
    clock = time.process_time if options.threads == 1 else time.perf_counter
    print(f"| loss | {' | '.join(f'N = {n:,}' for n in options.sizes)} |\n|---|{'---|' * len(options.sizes)}")
    for name, arguments in cases():
        if options.losses and name not in options.losses:
            continue
        cells = []
        for n in options.sizes:
            dense, tiled = seconds(name, arguments, n, options.columns, options.budget, clock)
            cells.append(f"{1e3 * dense:.3g} / {1e3 * tiled:.3g} ms, x {dense / tiled:.2g}")
        label = ", ".join([name, *(f"{key}={value}" for key, value in arguments.items())])
        print(f"| {label} | {' | '.join(cells)} |", flush=True)


def highest_memory():
    """Return the peak resident memory of this process in MB. (`ru_maxrss` includes the parent's.)"""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))


def peak(name, engine, n, columns):
    """Print CPU seconds and peak memory in MB of one forward and backward, above inputs and their gradients."""
    (z1, z2), others = inputs(name, n, columns)
    for z in (z1, z2):
        z.grad = torch.zeros_like(z)
    Loss(name, engine=engine)(z1[:64], z2[:64], **(others and inputs(name, 64, columns)[1])).backward()  # a warm-up
    before, start = highest_memory(), time.process_time()
    Loss(name, engine=engine)(z1, z2, **others).backward()
    print(time.process_time() - start, highest_memory() - before)


def growth(options):
    """Print CPU time and memory of both engines over N, and their exponents."""
    print(f"| loss, engine | {' | '.join(f'N = {n:,}' for n in options.growth)} | exponents of time, memory |")
    print(f"|---|{'---|' * (len(options.growth) + 1)}")
    for name in options.losses or ("infonce", "adnce", "triplet"):
        for engine in ("dense", "tiled"):
            sizes = [n for n in options.growth if engine == "tiled" or n <= options.dense]
            found = []
            for n in sizes:
                command = [sys.executable, __file__, "--peak", name, engine, str(n), "--columns", str(options.columns)]
                # glibc returns freed blocks of this size at once, so that the peak is that of blocks in use.
                environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000"}
                done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
                found.append([float(value) for value in done.stdout.split()])
            large = [place for place, n in enumerate(sizes) if n >= FITTED]
            logs = np.log(np.array(found)[large])
            slopes = [np.polyfit(np.log(sizes)[large], column, 1)[0] for column in logs.T]
            cells = [f"{spent:.3g} s, {memory:.3g} MB" for spent, memory in found]
            cells += ["-"] * (len(options.growth) - len(sizes))
            exponents = "{:.2f}, {:.2f}".format(*slopes) if len(large) > 2 else "-"
            print(f"| {name}, {engine} | {' | '.join(cells)} | {exponents} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[64, 128, 512, 1024, 2048])
    parser.add_argument("--growth", type=int, nargs="*", default=[128, 512, 2048, 4096, 8192, 16384])
    parser.add_argument("--dense", type=int, default=4096, help="largest N of the dense engine in the table of growth")
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--budget", type=float, default=0.5, help="seconds for each cell")
    parser.add_argument("--threads", type=int, default=1, help="with more than one, the clock is wall time")
    parser.add_argument("--losses", nargs="*", help="names of losses; by default all")
    parser.add_argument("--peak", nargs=3, metavar=("LOSS", "ENGINE", "N"), help="measure one in this process")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        peak(*options.peak[:2], int(options.peak[2]), options.columns)
        return
    keep_freed_memory()
    print(f"torch {torch.__version__}, {options.threads} threads, D = {options.columns}; dense / tiled\n")
    if options.sizes:
        speed(options)
    if options.growth:
        growth(options)


if __name__ == "__main__":
    main()
