"""Time and memory of InfoNCE on a GPU, dense and tiled: a Markdown table.

    python benchmarks/losses_gpu.py

Rows are numbers of graphs. Cells are the median time of a forward and a backward pass in milliseconds, and their peak
memory without the views in MB. The dense engine runs up to the largest size that fits.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch

from graphcl.losses import infonce

SIZES = [2**power for power in range(12, 19)]
WAYS = {
    "float32 (highest)": (torch.float32, "highest"),
    "float32 (high)": (torch.float32, "high"),
    "bfloat16 (highest)": (torch.bfloat16, "highest"),
}
"""Dtype of the views and precision of float32 products (`torch.set_float32_matmul_precision`)."""


def one_pass(z1: torch.Tensor, z2: torch.Tensor, engine: str) -> None:
    """Run a forward and a backward pass and synchronise."""
    z1.grad = z2.grad = None
    infonce(z1, z2, engine=engine).backward()
    torch.cuda.synchronize()


def measure(count: int, width: int, dtype: torch.dtype, engine: str, repeats: int) -> str:
    """Return a cell of the table."""
    generator = torch.Generator("cuda").manual_seed(0)
    draw = torch.randn(2, count, width, generator=generator, device="cuda")
    z1, z2 = (z.to(dtype).clone().requires_grad_() for z in draw)
    del draw
    one_pass(z1, z2, engine)  # compiles, and warms up
    z1.grad = z2.grad = None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        one_pass(z1, z2, engine)
        times.append(time.perf_counter() - start)
    memory = torch.cuda.max_memory_allocated() - before
    return f"{1e3 * statistics.median(times):,.1f} ms, {memory / 1e6:,.0f} MB"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Time and memory of InfoNCE on a GPU, dense and tiled.")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of graphs")
    parser.add_argument("--width", type=int, default=128, help="columns of the projections")
    parser.add_argument("--repeats", type=int, default=5, help="repeats per cell")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("losses_gpu: no CUDA device found; run it on a machine with a GPU.")
    columns = [(engine, *way) for way in WAYS.items() for engine in ("dense", "tiled")]
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, d = {given.width}\n")
    print("| N | " + " | ".join(f"{engine}, {name}" for engine, name, _ in columns) + " |")
    print("|---:|" + "---:|" * len(columns))
    full = set()
    for count in sorted(given.sizes):
        cells = []
        for engine, name, (dtype, precision) in columns:
            cell = "does not fit"
            if (engine, name) not in full:
                torch.set_float32_matmul_precision(precision)
                try:
                    cell = measure(count, given.width, dtype, engine, given.repeats)
                except torch.cuda.OutOfMemoryError:
                    full.add((engine, name))
                torch.cuda.empty_cache()
            cells.append(cell)
        print(f"| {count:,} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
