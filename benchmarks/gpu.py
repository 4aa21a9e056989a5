"""Measure the stages on a GPU, in graphs per second, with several batch sizes, in float32 and bfloat16.

    python benchmarks/gpu.py [--mirror ~/tu] [--out benchmarks/results]
    python benchmarks/gpu.py --predict

The first writes a table and a JSON file named after the device. Sets are generated (`shapes.py`); with `--mirror`, the
real PROTEINS is measured too. Times are between CUDA events; launches, and the share of the time in which the device
has something to do, are the profiler's, over an epoch or part of one; memory is the most that tensors take during
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
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import floor
import stages
import suite
import torch
from ours import Ours
from shapes import generate
from timing import machine, number, table, timed, told
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

SETS = {"proteins": 8_192, "dd": 8_192, "molpcba": 100_000}
BATCH_SIZES = (128, 1_024, 8_192)
RECIPES = ("graphcl", "adnce", "simgrace", "joao")
COUNTS = Path(__file__).parent / "results" / "gpu_counts.json"
ABOUT = {"set": "set", "batch": "batch", "amp": "bfloat16"}
SPEED = {key: heading for key, heading in stages.COLUMNS.items() if key not in ("set", "step")}
DEVICE = {
    **ABOUT,
    "graphs_per_s": "graphs/s",
    "step_ms": "step ms",
    "launches": "kernels / step",
    "other": "copies and fills / step",
    "busy": "device busy %",
    "peak_mb": "peak MB",
    "over_floor": "encoder / floor",
}
RECIPE = {"recipe": "recipe", "batch": "batch"}
PREDICTED = {**RECIPE, "operations": "operations", "launches": "kernels", **{gpu: f"{gpu}, ms" for gpu in floor.GPUS}}
CHECKED = {**RECIPE, "step_ms": "step ms", "graphs_per_s": "graphs/s", "model": "model, ms", "inside": "inside"}


def graphs_for(batch: int) -> int:
    """Return the graphs of an epoch: at batch 128 about those of PROTEINS."""
    return min(8 * batch, SETS["proteins"])


def count() -> None:
    """Write what a step of each recipe does on the fake device, which must be in place before torch is imported."""
    from graphcl.losses.engine import pairs, torch_tiles
    from tests.device.fake import LOG

    def as_kernels(function: Any) -> Any:
        """Count the tiles of PyTorch as what Triton's take: about ten operations, whose tensors are small."""

        def counted(*arguments: Any) -> Any:
            operations, launches, moved = LOG.operations, LOG.launches, LOG.bytes
            found = function(*arguments)
            LOG.operations, LOG.launches, LOG.bytes = operations + 10, launches + 10, moved
            return found

        return counted

    tiles = SimpleNamespace(forward=as_kernels(torch_tiles.forward), backward=as_kernels(torch_tiles.backward))
    pairs.tiles = lambda _: tiles
    data, rows = generate("proteins"), []
    views = [(data._data.x.size(0) / len(data), data._data.edge_index.size(1) / len(data))]
    views.append((0.8 * views[0][0], 0.64 * views[0][1]))  # the fewest that a view of ratio 0.2 has
    for recipe, batch in product(RECIPES, BATCH_SIZES):
        run = Ours(generate("proteins", graphs_for(batch)), batch, "cuda", recipe=recipe)
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


def check_model(device: torch.device, quick: bool) -> list[dict[str, Any]]:
    """Return the measured step of each recipe, and whether it is between the model's bounds."""
    rows = json.loads(COUNTS.read_text())
    name = torch.cuda.get_device_name() if device.type == "cuda" else ""
    gpu = next((gpu for gpu in floor.GPUS if gpu in name), None)
    for row in rows[:1] if quick else rows:
        data = generate("proteins", 64 if quick else graphs_for(row["batch"]))
        run = Ours(data, row["batch"], device, recipe=row["recipe"])
        run.epoch()
        graphs_per_s = max(len(data) / timed(run.epoch, device) for _ in range(1 if quick else 3))
        row |= {"graphs_per_s": round(graphs_per_s), "step_ms": 1e3 * min(row["batch"], len(data)) / graphs_per_s}
        if gpu:
            least, most = floor.step_bounds(row, gpu)
            row |= {"model": model(row, gpu), "inside": "yes" if least <= row["step_ms"] <= most else "no"}
    return [row for row in rows if "step_ms" in row]


def device_events(run: Ours, limit: int | None, device: torch.device) -> dict[str, float]:
    """Return kernels and other device operations per step, and the fraction of time in which the device is busy."""
    on_cuda = device.type == "cuda"
    steps: list[int] = []
    handle = run.model.projector.register_forward_hook(lambda *_: steps.append(1))
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]) as profiled:
        seconds = timed(lambda: run.epoch(limit), device)
    handle.remove()
    count = len(steps) / 2  # the projector is called for each of two views
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
    return {"launches": (len(done) - other) / count, "other": other / count, "busy": 100 * busy / 1e6 / seconds}


def measure(name: str, data: Any, batch_size: int, amp: bool, device: torch.device, quick: bool) -> dict[str, Any]:
    """Return one row of each table."""
    run = Ours(data, batch_size, device, amp=amp)
    limit = min(len(data), max(SETS["dd"], 2 * batch_size))
    row: dict[str, Any] = {"set": name, "batch": batch_size, "amp": "yes" if amp else "no"}
    found = stages.stages(run, limit, 1 if quick else 5, device)
    size = min(batch_size, len(data))
    row |= {stage: round(1e3 * size / found[stage]) for stage in SPEED if found.get(stage)}
    row |= {"graphs_per_s": round(1e3 * size / found["step"]), "step_ms": found["step"], "milliseconds": found}
    row |= device_events(run, limit, device)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run.epoch(limit)
        row["peak_mb"] = (torch.cuda.max_memory_allocated() - before) / 1e6
    if not amp:
        views = [(found[f"nodes{i}"], found[f"edges{i}"]) for i in (1, 2)]
        known = floor.rates(round(views[0][0]), device, quick)
        row["over_floor"] = found["encoder"] / 1e3 / floor.step_floor(views, data._data.x.size(1), known).floor_s
        row["rates"] = floor.as_row(known)
    return row


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description="The stages of this library on a GPU.")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=None)
    parser.add_argument("--mirror", default=None, help="folder or address of TU archives, for the real PROTEINS")
    parser.add_argument("--root", default="datasets", help="where TU sets are kept")
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

    found: dict[str, Any] = {"machine": machine(torch.get_num_threads()), "rows": []}
    found["recipes"] = check_model(device, given.dry_run)
    print(table(found["recipes"], CHECKED), flush=True)
    named: dict[str, Any] = {}
    for name in given.sets.split(","):
        named[f"{name} (generated)"] = generate(name, 64 if given.dry_run else SETS.get(name))
    if given.mirror and not given.dry_run:
        real = argparse.Namespace(quick=False, root=given.root, mirror=given.mirror, molpcba=None)
        named["PROTEINS"] = suite.dataset("proteins", real)
    for name, data in named.items():
        for batch_size in batch_sizes:
            for amp in (False, True):
                found["rows"].append(measure(name, data, batch_size, amp, device, given.dry_run))
                print(f"{name}, {batch_size}, {'bfloat16' if amp else 'float32'}: done", flush=True)
    text = "\n\n".join(
        [
            "# Benchmark on a GPU" if not given.dry_run else "# Dry run on the CPU: the numbers mean nothing",
            told(found["machine"]),
            "## Recipes, against the model",
            table(found["recipes"], CHECKED),
            "## Training",
            table(found["rows"], DEVICE),
            "## Graphs per second of each stage alone, in thousands",
            table(
                [row | {key: row[key] / 1e3 for key in SPEED if key in row} for row in found["rows"]],
                {**ABOUT, **SPEED},
            ),
        ]
    )
    name = "dry-run" if given.dry_run else torch.cuda.get_device_name()
    path = given.out / re.sub(r"[^a-z0-9.]+", "-", name.lower())
    given.out.mkdir(parents=True, exist_ok=True)
    Path(f"{path}.md").write_text(text + "\n")
    Path(f"{path}.json").write_text(json.dumps(found, indent=1) + "\n")
    print("\n" + text)
    return found


if __name__ == "__main__":
    main()
