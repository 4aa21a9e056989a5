"""Tiled against dense engine on the CPU: python benchmarks/losses.py

Prints Markdown: seconds of forward and backward for two views [N, 128] (medians, both in one process), and the peak
memory above the inputs at N = 65,536, each loss in a separate process (Linux only).
"""

import argparse
import statistics
import subprocess
import sys
import time

import torch

from graphcl.losses import Loss

WIDTH = 128
CASES = [
    ("infonce", {}),
    ("infonce", {"symmetric": False}),
    ("infonce", {"negatives": "all"}),
    ("infonce", {"temperature": 0.01}),
    ("adnce", {}),
    ("hcl", {}),
    ("alpha_cl", {}),
    ("triplet", {}),
    ("tuplet", {"num_negatives": 8}),
    ("jsd", {}),
]


def views(n):
    z = torch.randn(2, n, WIDTH, generator=torch.Generator().manual_seed(0))
    return [each.requires_grad_() for each in z]


def seconds(loss, n, repeats):
    """Return the median time of forward and backward, after one warm-up."""
    found = []
    for _ in range(repeats + 1):
        z1, z2 = views(n)
        start = time.perf_counter()
        loss(z1, z2).backward()
        found.append(time.perf_counter() - start)
    return statistics.median(found[1:])


def label(name, arguments):
    return name + "".join(f", {key}={value}" for key, value in arguments.items())


def speed(sizes, repeats):
    print(f"| loss | {' | '.join(f'N = {n:,}' for n in sizes)} |")
    print(f"|---|{'---|' * len(sizes)}")
    for name, arguments in CASES:
        cells = []
        for n in sizes:
            dense, tiled = (seconds(Loss(name, engine=e, **arguments), n, repeats) for e in ("dense", "tiled"))
            cells.append(f"{dense:.3f} / {tiled:.3f} s, x {dense / tiled:.1f}")
        print(f"| {label(name, arguments)} | {' | '.join(cells)} |", flush=True)


def highest_memory():
    """Return the peak resident memory of this process in MB. (`ru_maxrss` includes the parent's.)"""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))


def peak(n, name):
    """Print time and peak memory in MB of one forward and backward, above inputs and their gradients."""
    z1, z2 = views(n)
    for z in (z1, z2):
        z.grad = torch.zeros_like(z)
    Loss(name, engine="tiled")(z1[:64], z2[:64]).backward()  # warm-up: libraries load lazily
    before = highest_memory()
    start = time.perf_counter()
    Loss(name, engine="tiled")(z1, z2).backward()
    spent = time.perf_counter() - start
    print(f"{highest_memory() - before:.0f} MB, {spent:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peak", nargs=2, metavar=("N", "LOSS"), help="measure the memory of one loss in this process")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.peak:
        peak(int(arguments.peak[0]), arguments.peak[1])
        return
    print(
        f"torch {torch.__version__}, {arguments.threads} threads; dense / tiled, and how many times as fast tiled is\n"
    )
    speed(arguments.sizes, arguments.repeats)
    print("\nPeak memory above inputs and gradients, and time, tiled, N = 65,536:\n")
    for name in ("infonce", "nt_xent", "adnce"):
        command = [sys.executable, __file__, "--threads", str(arguments.threads), "--peak", "65536", name]
        print(
            f"- {name}: {subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()}",
            flush=True,
        )


if __name__ == "__main__":
    main()
