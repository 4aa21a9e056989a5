"""Measure the cost per graph against the number of graphs: epochs on molpcba's shape, in microseconds per graph.

Of a large set, only the first steps of an epoch are timed. The order of the whole set is still drawn, and counts in
full.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ours import Ours
from shapes import generate
from timing import timed

SIZES = (1_000, 10_000, 100_000, 400_000)
MOST = 40_000
"""Most graphs of an epoch that are timed."""


def linear(sizes: Sequence[int] = SIZES, batch_sizes: Sequence[int] = (128, 1024), repeats: int = 3) -> list[dict]:
    """Return one row per batch size; sizes take turns, so that a busy moment affects all of them."""
    sets = {size: generate("molpcba", size) for size in sizes}
    rows = []
    for batch_size in batch_sizes:
        runs = {size: Ours(dataset, batch_size) for size, dataset in sets.items()}
        times: dict[int, list[float]] = {size: [] for size in sizes}
        for turn in range(repeats + 1):
            for size, run in runs.items():
                # Small sets have so short epochs that several are timed.
                epochs = max(1, min(MOST, sizes[-1]) // size)
                seconds = timed(lambda run=run, epochs=epochs: [run.epoch(MOST) for _ in range(epochs)])
                if turn:
                    times[size].append(1e6 * seconds / epochs / run.loader.taken)
        row: dict[str, Any] = {"batch": batch_size}
        row |= {f"n{size}": statistics.median(found) for size, found in times.items()}
        row["spread"] = max(row[f"n{size}"] for size in sizes) / min(row[f"n{size}"] for size in sizes)
        rows.append(row)
    return rows


def columns(sizes: Sequence[int] = SIZES) -> dict[str, str]:
    return {"batch": "batch"} | {f"n{size}": f"{size:,} graphs" for size in sizes} | {"spread": "largest / smallest"}
