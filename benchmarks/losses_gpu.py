"""Time and memory of InfoNCE on a GPU, dense and tiled: a Markdown table.

    python benchmarks/losses_gpu.py

Rows are numbers of graphs. Cells are the median time of a forward and a backward pass in milliseconds, and their peak
memory without the views in MB. The dense engine runs up to the largest size that fits. The last column is the time of
one plain product of all rows with all rows, [N, d] by [d, N], in float32 (highest). `--dry-run` runs on the CPU.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch
from timing import median

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
    if z1.is_cuda:
        torch.cuda.synchronize()


def plain_product(count: int, width: int, device: str, repeats: int) -> str:
    """Return the milliseconds of the product of `count` rows with themselves, in blocks of rows that fit."""
    torch.set_float32_matmul_precision("highest")
    rows = torch.randn(count, width, device=device)
    out = torch.empty(min(count, 8192), count, device=device)
    blocks = rows.split(8192)
    seconds = median(lambda: [torch.mm(each, rows.T, out=out[: len(each)]) for each in blocks], repeats, device)
    return f"{1e3 * seconds:,.1f} ms"


def measure(count: int, width: int, dtype: torch.dtype, engine: str, repeats: int, device: str) -> str:
    """Return a cell of the table."""
    generator = torch.Generator(device).manual_seed(0)
    draw = torch.randn(2, count, width, generator=generator, device=device)
    z1, z2 = (z.to(dtype).clone().requires_grad_() for z in draw)
    del draw
    one_pass(z1, z2, engine)  # compiles, and warms up
    z1.grad = z2.grad = None
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        one_pass(z1, z2, engine)
        times.append(time.perf_counter() - start)
    memory = torch.cuda.max_memory_allocated() - before
    return f"{1e3 * statistics.median(times):,.1f} ms, {memory / 1e6:,.0f} MB"


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Time and memory of InfoNCE on a GPU, dense and tiled.")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of graphs")
    parser.add_argument("--width", type=int, default=128, help="columns of the projections")
    parser.add_argument("--repeats", type=int, default=5, help="repeats per cell")
    parser.add_argument("--dry-run", action="store_true", help="run a tiny size on the CPU")
    given = parser.parse_args(arguments)
    if not given.dry_run and not torch.cuda.is_available():
        sys.exit("losses_gpu: no CUDA device found; run it on a machine with a GPU.")
    device = "cpu" if given.dry_run else "cuda"
    given.sizes = [600] if given.dry_run else given.sizes
    columns = [(engine, *way) for way in WAYS.items() for engine in ("dense", "tiled")]
    name = "dry run on the CPU" if given.dry_run else torch.cuda.get_device_name()
    print(f"{name}, PyTorch {torch.__version__}, d = {given.width}\n")
    print("| N | " + " | ".join(f"{engine}, {name}" for engine, name, _ in columns) + " | product |")
    print("|---:|" + "---:|" * (len(columns) + 1))
    full = set()
    for count in sorted(given.sizes):
        cells = []
        for engine, name, (dtype, precision) in columns:
            cell = "does not fit"
            if (engine, name) not in full:
                torch.set_float32_matmul_precision(precision)
                try:
                    cell = measure(count, given.width, dtype, engine, given.repeats, device)
                except torch.cuda.OutOfMemoryError:
                    full.add((engine, name))
                torch.cuda.empty_cache()
            cells.append(cell)
        cells.append(plain_product(count, given.width, device, given.repeats))
        print(f"| {count:,} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
