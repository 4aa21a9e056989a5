"""Measure the stages on a GPU, in graphs per second, with batches of 128 and 4,096, in float32 and bfloat16.

    python benchmarks/gpu.py [--mirror ~/tu] [--out benchmarks/results]

writes a table and a JSON file named after the device. Sets are generated (`shapes.py`); with `--mirror`, the
real PROTEINS is measured too. Times are between CUDA events; launches, and the share of the time in which the device
has something to do, are the profiler's, over an epoch or part of one; memory is the most that tensors take during
training, above the data set and the model. The encoder's least time is that of `floor.py` with this device's rates.
`--dry-run` goes through everything on the CPU with tiny sets.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import floor
import stages
import suite
import torch
from ours import Ours
from shapes import generate
from timing import machine, table, timed, told
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

SETS = {"proteins": 8_192, "dd": 8_192, "molpcba": 100_000}
BATCH_SIZES = (128, 4_096)
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
    given = parser.parse_args(arguments)
    if not given.dry_run and not torch.cuda.is_available():
        sys.exit("gpu: CUDA device not found; use --dry-run to try it on the CPU.")
    device = torch.device("cpu" if given.dry_run else "cuda")
    batch_sizes = given.batch_sizes or ((16, 64) if given.dry_run else BATCH_SIZES)

    found: dict[str, Any] = {"machine": machine(torch.get_num_threads()), "rows": []}
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
