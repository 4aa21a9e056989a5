"""Measure the stages on a GPU, in graphs per second, with several batch sizes, in float32 and bfloat16.

    python benchmarks/gpu.py [--sets nci1,dd] [--out benchmarks/results]
    python benchmarks/gpu.py --predict

The first writes a table and a JSON file named after the device. Sets are generated (`shapes.py`). An epoch has the
graphs of the real set, or eight batches if that is more; its time is the median of five without the first two. PyG's
pipeline (`pyg_pipeline.py`) runs on the same device. Stages are timed between CUDA events; launches, and the share of
the time in which the device has something to do, are the profiler's; memory is the most that tensors take during
training, above the data set and the model. The encoder's least time is that of `floor.py` with this device's rates.
Shipped recipes are measured too, and compared with `floor.step_bounds`. `--dry-run` goes through everything on the CPU
with tiny sets.

The second needs no GPU: it counts on the fake device of the tests what a step of each recipe does, writes
`results/gpu_counts.json`, and prints the bounds for several GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import floor
import stages
import torch
from ours import Ours
from pyg_pipeline import PyGPipeline
from shapes import SHAPES, generate
from timing import machine, number, table, timed, told
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

SETS = ("nci1", "proteins", "dd")
BATCH_SIZES = (128, 1_024, 8_192)
RECIPES = ("graphcl", "adnce", "simgrace", "joao")
COUNTS = Path(__file__).parent / "results" / "gpu_counts.json"
ABOUT = {"set": "set", "batch": "batch"}
MODES = {"captured": (True, False), "captured, bfloat16": (True, True), "bfloat16": (False, True)}
"""Other ways to train -> whether steps are captured, and whether they are in bfloat16."""
SPEED = {key: heading for key, heading in stages.COLUMNS.items() if key not in ("set", "step")}
DEVICE = {
    **ABOUT,
    "graphs_per_s": "graphs/s",
    **{mode: mode for mode in MODES},
    "pyg": "PyG",
    "step_ms": "step ms",
    "views_ms": "views ms",
    "launches": "kernels / step",
    "other": "copies and fills / step",
    "busy": "device busy %",
    "peak_mb": "peak MB",
    "over_floor": "encoder / floor",
}
RECIPE = {"recipe": "recipe", "batch": "batch"}
PREDICTED = {**RECIPE, "operations": "operations", "launches": "kernels", **{gpu: f"{gpu}, ms" for gpu in floor.GPUS}}
CHECKED = {**RECIPE, "step_ms": "step ms", "graphs_per_s": "graphs/s", "model": "model, ms", "inside": "inside"}


@cache
def data_for(name: str, batch: int, quick: bool = False) -> Any:
    """Return the graphs of an epoch: as many as the real set has, but at least eight batches."""
    return generate(name, 64 if quick else max(SHAPES[name].num_graphs, 8 * batch))


def count() -> None:
    """Write what a step of each recipe does on the fake device, which must be in place before torch is imported."""
    from graphcl.losses import tiled
    from tests.device.fake import LOG

    def as_kernels(function: Any) -> Any:
        """Count the tiles of PyTorch as what Triton's take: about ten operations, whose tensors are small."""

        def counted(*arguments: Any) -> Any:
            operations, launches, moved = LOG.operations, LOG.launches, LOG.bytes
            found = function(*arguments)
            LOG.operations, LOG.launches, LOG.bytes = operations + 10, launches + 10, moved
            return found

        return counted

    passes = as_kernels(tiled.forward), as_kernels(tiled.backward)
    tiled.tiles = lambda _: passes
    data, rows = generate("proteins"), []
    views = [(data._data.x.size(0) / len(data), data._data.edge_index.size(1) / len(data))]
    views.append((0.8 * views[0][0], 0.64 * views[0][1]))  # the fewest that a view of ratio 0.2 has
    for recipe, batch in product(RECIPES, BATCH_SIZES):
        run = Ours(generate("proteins", min(8 * batch, 8_192)), batch, "cuda", recipe=recipe)
        LOG.reset()
        steps = run.epoch() / batch
        found = {"operations": LOG.operations, "launches": LOG.launches, "bytes": LOG.bytes}
        least = [floor.work(batch * nodes, batch * edges, data.num_features, *run.size) for nodes, edges in views]
        flops, moved, _ = map(sum, zip(*least, strict=True))
        row = {key: round(value / steps) for key, value in found.items()}
        rows.append({"recipe": recipe, "batch": batch, **row, "flops": round(flops), "least_bytes": round(moved)})
        print(f"{recipe}, {batch}: done", flush=True)
    COUNTS.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


def model(row: dict[str, Any], gpu: str) -> str:
    """Return the model's interval as text."""
    return " - ".join(map(number, floor.step_bounds(row, gpu)))


def predicted() -> str:
    """Return the model's table for all recipes and GPUs."""
    return table(
        [row | {gpu: model(row, gpu) for gpu in floor.GPUS} for row in json.loads(COUNTS.read_text())], PREDICTED
    )


def check_model(device: torch.device, quick: bool) -> Iterator[dict[str, Any]]:
    """Yield the measured step of each recipe, and whether it is between the model's bounds."""
    rows = json.loads(COUNTS.read_text())
    name = torch.cuda.get_device_name() if device.type == "cuda" else ""
    gpu = next((gpu for gpu in floor.GPUS if gpu in name), None)
    for row in rows[:1] if quick else rows:
        data = data_for("proteins", row["batch"], quick)
        run = Ours(data, row["batch"], device, recipe=row["recipe"])
        graphs_per_s = len(data) / run.epoch_seconds(1 if quick else 5)
        row |= {"graphs_per_s": round(graphs_per_s), "step_ms": 1e3 * min(row["batch"], len(data)) / graphs_per_s}
        if gpu:
            least, most = floor.step_bounds(row, gpu)
            row |= {"model": model(row, gpu), "inside": "yes" if least <= row["step_ms"] <= most else "no"}
        yield row


def device_events(run: Ours, limit: int, steps: int, device: torch.device) -> dict[str, float]:
    """Return kernels and other device operations per step, and the fraction of time in which the device is busy."""
    on_cuda = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]) as profiled:
        seconds = timed(lambda: run.epoch(limit), device)
    done = [
        event
        for event in profiled.events()
        if event.device_type == DeviceType.CUDA
        and not getattr(event, "is_user_annotation", False)
        and not event.name.startswith(("Optimizer.", "ProfilerStep"))
    ]
    busy = end = 0.0
    for event in sorted(done, key=lambda event: event.time_range.start):
        busy += max(0.0, event.time_range.end - max(end, event.time_range.start))
        end = max(end, event.time_range.end)
    other = sum(event.name.startswith(("Memcpy", "Memset")) for event in done)
    return {"launches": (len(done) - other) / steps, "other": other / steps, "busy": 100 * busy / 1e6 / seconds}


def peak_mb(run: Ours, limit: int) -> float:
    """Return the most memory that tensors take during training, above the data set and the model."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run.epoch(limit)
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def measure(name: str, batch_size: int, device: torch.device, quick: bool) -> dict[str, Any]:
    """Return one row of each table."""
    data, epochs, on_cuda = data_for(name, batch_size, quick), 1 if quick else 5, device.type == "cuda"
    limit, size = min(len(data), max(2048, 2 * batch_size)), min(batch_size, len(data))
    run = Ours(data, batch_size, device)
    row: dict[str, Any] = {"set": name, "batch": batch_size}
    row["graphs_per_s"] = round(len(data) / run.epoch_seconds(epochs))
    row["step_ms"] = 1e3 * size / row["graphs_per_s"]
    for mode, (capture, amp) in MODES.items():
        other = Ours(data, batch_size, device, amp=amp, capture=capture and on_cuda)
        row[mode] = round(len(data) / other.epoch_seconds(epochs))
    pyg = PyGPipeline(data, batch_size, device=str(device))
    pyg.epoch(size)
    row["pyg"] = round(limit / timed(lambda: pyg.epoch(limit), device))
    found = stages.stages(run, limit, 1 if quick else 2, device)
    row |= {stage: round(1e3 * size / found[stage]) for stage in SPEED if found.get(stage)}
    row |= {"views_ms": found["batching"] + found["random4"], "milliseconds": found}
    row |= device_events(run, limit, -(-limit // batch_size), device)
    if on_cuda:
        row["peak_mb"] = peak_mb(run, limit)
    views = [(found[f"nodes{i}"], found[f"edges{i}"]) for i in (1, 2)]
    known = floor.rates(round(views[0][0]), device, quick)
    row["over_floor"] = found["encoder"] / 1e3 / floor.step_floor(views, data._data.x.size(1), known).floor_s
    row["rates"] = floor.as_row(known)
    return row


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description="The stages of this library on a GPU.")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=None)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--dry-run", action="store_true", help="run tiny sets on the CPU")
    parser.add_argument("--predict", action="store_true", help="count on the fake device and print the model")
    given = parser.parse_args(arguments)
    if given.predict:
        here = Path(__file__).parent
        environment = os.environ | {"PYTHONPATH": f"{here.parent}:{here}", "CUDA_VISIBLE_DEVICES": ""}
        start = "from tests.device import fake; fake.pytest_configure(None); import gpu; gpu.count()"
        subprocess.run([sys.executable, "-c", start], env=environment, check=True)
        print(f"\n{predicted()}")
        return {}
    if not given.dry_run and not torch.cuda.is_available():
        sys.exit("gpu: CUDA device not found; use --dry-run to try it on the CPU.")
    device = torch.device("cpu" if given.dry_run else "cuda")
    batch_sizes = given.batch_sizes or ((16, 64) if given.dry_run else BATCH_SIZES)

    name = "dry-run" if given.dry_run else re.sub(r"[^a-z0-9.]+", "-", torch.cuda.get_device_name().lower())
    given.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"machine": machine(torch.get_num_threads()), "rows": [], "recipes": []}
    for name_of_set, batch_size in product(given.sets.split(","), batch_sizes):
        found["rows"].append(measure(name_of_set, batch_size, device, given.dry_run))
        write(found, given.out / name, given.dry_run)
    for row in check_model(device, given.dry_run):
        found["recipes"].append(row)
        write(found, given.out / name, given.dry_run)
    print("\n" + Path(f"{given.out / name}.md").read_text())
    return found


def write(found: dict[str, Any], path: Path, dry: bool) -> None:
    """Write the tables and the JSON file so far."""
    heading = "# Dry run on the CPU: the numbers mean nothing" if dry else "# Benchmark on a GPU"
    thousands = [row | {key: row[key] / 1e3 for key in SPEED if key in row} for row in found["rows"]]
    parts = [
        heading,
        told(found["machine"]),
        "## Graphs per second of training",
        table(found["rows"], DEVICE),
        "## Graphs per second of each stage alone, in thousands",
        table(thousands, {**ABOUT, **SPEED}),
        "## Recipes, against the model",
        table(found["recipes"], CHECKED),
    ]
    Path(f"{path}.md").write_text("\n\n".join(parts) + "\n")
    Path(f"{path}.json").write_text(json.dumps(found, indent=1) + "\n")
    print(f"wrote {len(found['rows'])} rows and {len(found['recipes'])} recipes to {path}.md", flush=True)


if __name__ == "__main__":
    main()
