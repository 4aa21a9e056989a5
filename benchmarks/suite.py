"""Measure four pipelines, the stages of ours, and the machine's floor.

    python benchmarks/suite.py --threads 2 --mirror ~/tu --out benchmarks/results/cpu    # idle cores
    python benchmarks/suite.py --threads 1 --cpu-time --mirror ~/tu                      # shared cores

writes `cpu.md` and `cpu.json` and prints the former. The pipelines train the same: batches of 128, the original graph
and one of four augmentations (`random4`, ratio 0.2), GIN 3 x 32 with sum readout, a projector, InfoNCE, Adam. They take
turns in one process; a cell is the median (and the fastest), a ratio the median of the turns' ratios. Slow pipelines
are timed on part of an epoch, as the tables say; all sets take about nine minutes, less with a smaller `--seconds`.
`pyg_pipeline.py`, `per_graph.py` and `per_graph_dense.py` describe the pipelines, `shapes.py` the generated
sets, `stages.py` and `floor.py` the measurements.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from operator import truediv
from pathlib import Path
from typing import Any

import floor
import linear
import memory
import shapes
import stages
import timing
import torch
from ours import Ours
from pipelines import PIPELINES
from timing import machine, number, table, timed, told
from torch_geometric.data import Data

from graphcl import load_dataset
from graphcl.system.memory import keep_freed_memory

OTHERS = [key for key in PIPELINES if key != "ours"]
REAL = {"mutag": "MUTAG", "proteins": "PROTEINS", "nci1": "NCI1", "imdb-binary": "IMDB-BINARY"}
TINY = {"dd": 40, "reddit": 40, "collab": 20, "molpcba": 400, "proteins": 60}
SVM_GRAPHS = 1_200
"""Labelled sets of at most this many graphs are also scored by the SVM."""

EPOCHS = {
    "set": "set",
    "graphs": "graphs",
    "nodes": "nodes",
    "edges": "edges",
    **{key: f"{pipeline.name} s" for key, pipeline in PIPELINES.items()},
    **{f"{key}_ratio": f"{PIPELINES[key].name} / graphcl" for key in OTHERS},
    "part": "timed in part",
    "turns": "turns",
    "load": "load",
}
DATA = {
    "set": "set",
    **{f"{key}_data": f"{pipeline.name} data s" for key, pipeline in PIPELINES.items()},
    **{f"{key}_data_ratio": f"{PIPELINES[key].name} / graphcl, data" for key in OTHERS},
    **{f"{key}_share": f"{pipeline.name} data %" for key, pipeline in PIPELINES.items()},
    "part": "timed in part",
}
MEMORY = {
    "set": "set",
    **{f"{key}_mb": f"{pipeline.name} MB" for key, pipeline in PIPELINES.items()},
    "part": "in part",
}
ENCODER = {
    "set": "set",
    "encoder_ms": "encoder ms",
    "floor_ms": "floor ms",
    "reachable_ms": "reachable ms",
    "over_floor": "encoder / floor",
    "over_reachable": "encoder / reachable",
    "mflop": "Mflop",
    "mb": "MB",
    "shape": "Gflop/s at its shape",
    "svm": "embed + SVM s",
}
RATES = {
    "memory_copy": "copy in memory GB/s",
    "cache_copy": "copy in cache GB/s",
    "square": "square products Gflop/s",
}


def dataset(name: str, given: argparse.Namespace) -> Any:
    """Keep features, edges and labels only, so that no pipeline moves unused data."""
    if given.quick or name not in REAL:
        if name not in shapes.SHAPES:
            raise SystemExit(f"suite: unknown generated set {name!r}; choose from: {', '.join(shapes.SHAPES)}.")
        return shapes.generate(name, TINY[name] if given.quick else given.molpcba if name == "molpcba" else None)
    whole = load_dataset(REAL[name], data_root=given.root, mirror=given.mirror)
    keys = ("x", "edge_index", "y")
    data = Data(**{key: whole._data[key] for key in keys})
    return shapes.Generated(data, {key: whole.slices[key] for key in keys})


def _seconds_per_graph(run: Any, limit: int | None) -> tuple[float, int]:
    """Return the seconds of an epoch or of its first graphs, and the number of graphs."""
    done: list[int] = []
    seconds = timed(lambda: done.append(run.epoch(limit)))
    return seconds / done[0], done[0]


def limits(runs: dict[str, Any], graphs: int, given: argparse.Namespace) -> dict[str, int | None]:
    """Return the graphs that each pipeline is timed on: all (None) if an epoch takes less than `--seconds`."""
    found: dict[str, int | None] = {}
    for name, run in runs.items():
        pilot = min(graphs, 1024 if name == "ours" else 256)
        run.epoch(pilot)
        epoch = graphs * min(_seconds_per_graph(run, pilot)[0] for _ in range(2))
        part = max(given.seconds / 2 / epoch * graphs, 256)
        found[name] = None if epoch < given.seconds else min(graphs, round(part / 128 + 0.5) * 128)
    return found


def epochs(data: Any, given: argparse.Namespace) -> tuple[dict[str, Any], dict[str, int | None], Ours]:
    """Return the seconds of an epoch of each pipeline, in turns, the parts timed, and our pipeline."""
    graphs = len(data)
    runs = {name: PIPELINES[name](data) for name in given.pipelines}
    parts = limits(runs, graphs, given)
    others = [name for name in runs if name != "ours"]
    for name in others:
        for graph in runs[name].order[: parts[name]]:
            data[graph]  # PyG keeps the graphs it has once taken out, so that later epochs are faster: time those
    times: dict[str, list[float]] = {name: [] for name in runs}
    data_times: dict[str, list[float]] = {name: [] for name in runs}
    covered = {}
    while True:
        for name, run in runs.items():
            seconds, done = _seconds_per_graph(run, parts[name])
            covered[name] = done / graphs
            times[name].append(seconds * graphs)
            data_times[name].append(seconds * graphs * run.data_share)
        turns = len(times["ours"])
        if given.quick or (turns >= 3 and (turns >= 9 or sum(map(sum, times.values())) > given.seconds)):
            break
    row: dict[str, Any] = {name: statistics.median(found) for name, found in times.items()}
    for name in runs:
        row[f"{name}_data"] = statistics.median(data_times[name])
        row[f"{name}_share"] = 100 * statistics.median(map(truediv, data_times[name], times[name]))
    for name in others:
        row[f"{name}_ratio"] = statistics.median(map(truediv, times[name], times["ours"]))
        row[f"{name}_data_ratio"] = statistics.median(map(truediv, data_times[name], data_times["ours"]))
    parted = [f"{PIPELINES[name].name}: {100 * share:.2g} %" for name, share in covered.items() if share < 1]
    row |= {"part": "; ".join(parted) or "none", "turns": turns, "times": times, "data_times": data_times}
    row["covered"] = covered
    return row, parts, runs["ours"]


def measure(name: str, given: argparse.Namespace, folder: Path, with_memory: bool) -> dict[str, Any]:
    """Return all measurements of one set."""
    torch.manual_seed(0)
    data = dataset(name, given)
    graphs = len(data)
    nodes, edges = data._data.x.size(0) / graphs, data._data.edge_index.size(1) / 2 / graphs
    row: dict[str, Any] = {"set": name if name in REAL and not given.quick else f"{name} (generated)"}
    row |= {"graphs": graphs, "nodes": round(nodes, 1), "edges": round(edges, 1), "load": os.getloadavg()[0]}
    found, parts, run = epochs(data, given)
    row |= found
    if with_memory:
        memory.save(data, folder / f"{name}.pt")
        for key in ("ours",) if given.quick else parts:
            row[f"{key}_mb"] = memory.peak(key, folder / f"{name}.pt", parts[key], given.threads)
        (folder / f"{name}.pt").unlink()

    step = row["ours"] / graphs * 128
    limit = None if row["ours"] < given.seconds / 10 else int(given.seconds / 10 / step + 1) * 128
    row["stages"] = stages.stages(run, limit, 1 if given.quick else 3)
    views = [(row["stages"][f"nodes{i}"], row["stages"][f"edges{i}"]) for i in (1, 2)]
    known = floor.rates(round(views[0][0]), quick=given.quick)
    least = floor.step_floor(views, data._data.x.size(1), known)
    row |= floor.as_row(known)
    encoder = row["stages"]["encoder"]
    row |= {
        "encoder_ms": encoder,
        "floor_ms": 1e3 * least.floor_s,
        "reachable_ms": 1e3 * least.reachable_s,
        "over_floor": encoder / 1e3 / least.floor_s,
        "over_reachable": encoder / 1e3 / least.reachable_s,
        "mflop": least.flops / 1e6,
        "mb": least.bytes / 1e6,
    }
    if graphs <= SVM_GRAPHS and name in REAL and not given.quick:
        row["svm"] = stages.evaluation(run, data, given.threads)
    return row


NOTE = """The pipelines train the same encoder:

- graphcl: this library.
- PyG: its `DataLoader`, and its utilities on whole batches.
- per graph, edge lists: one graph at a time in NumPy, by masks over the graph's list of edges. Regions grow in a Python
  loop along lists of neighbours that are cut out once per graph.
- per graph, dense: one graph at a time in NumPy, as released code is described. A dense n x n adjacency matrix and its
  `nonzero` renumber the nodes kept, and the matrix tells absent pairs; regions grow by a random member of a Python set
  of neighbours, each step with a scan of the whole list of edges.

The encoder of all pipelines but graphcl is PyG's `GINConv`. It takes about as long whatever prepares the data, so a
ratio of whole epochs is bounded by the encoder's share of them: the ratio of data preparation alone stands below."""


def _cell(times: list[float]) -> str:
    return f"{number(statistics.median(times))} ({number(min(times))})"


def report(found: dict[str, Any]) -> str:
    """Return the Markdown."""
    rows = found["sets"]
    left_out = [key for key in PIPELINES if key not in found["pipelines"]]

    def chosen(columns: dict[str, str]) -> dict[str, str]:
        return {key: heading for key, heading in columns.items() if key.split("_")[0] not in left_out}

    best = {key: max((row[key] for row in rows), default=None) for key in RATES}
    parts = [
        "# Benchmark",
        told(found["machine"]),
        "## An epoch",
        table([row | {name: _cell(times) for name, times in row["times"].items()} for row in rows], chosen(EPOCHS)),
        "Seconds, batch 128, median and (fastest) of turns; ratios are medians within turns. Timed in part: of such a "
        "pipeline only the first graphs of a random order were timed, the same each turn, and the time is scaled to "
        "all graphs. Load: average when the set's turn came, with this process.",
        NOTE,
        "## Data preparation alone",
        "The part of an epoch that its steps wait for their views: taking graphs out, augmenting and batching them "
        "(graphcl: `Epoch.data_seconds`, as its share of wall time). Medians of turns, in percent of that pipeline's "
        "epoch in the last columns.",
        table(rows, chosen(DATA)),
        "## A step of graphcl, in milliseconds",
        table([{"set": row["set"], **row["stages"]} for row in rows], stages.COLUMNS),
        "## The encoder and the machine",
        "Forward and backward on both views, against the least time the machine needs (`floor.py`): `floor` if all "
        "overlaps at its best rates, `reachable` if nothing overlaps and products go at the rate of this shape.",
        table(rows, ENCODER),
        table([best], RATES),
    ]
    if any("ours_mb" in row for row in rows):
        parts += [
            "## Memory",
            "Peak above the process with its data, over an epoch or the part of it that is timed.",
            table(rows, chosen(MEMORY)),
        ]
    if "linear" in found:
        parts += [
            "## Microseconds per graph, molpcba's shape",
            f"Of sets larger than {linear.MOST:,} graphs, the first steps of an epoch up to that many.",
            table(found["linear"]["rows"], linear.columns(found["linear"]["sizes"])),
        ]
    return "\n\n".join(parts) + "\n"


def write(found: dict[str, Any], path: Path | None) -> str:
    """Write the Markdown and the JSON, and return the Markdown."""
    text = report(found)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".md").write_text(text)
        path.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    return text


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description="Time this library and other ways to do the same.")
    parser.add_argument("--sets", default=None, help="default: all; with --quick all generated ones")
    parser.add_argument(
        "--pipelines", default=",".join(PIPELINES), help="pipelines to time, of %(default)s; ours is always included"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--cpu-time", action="store_true", help="measure CPU time instead of wall time; one thread only"
    )
    parser.add_argument("--quick", action="store_true", help="run tiny generated sets once each, as a check")
    parser.add_argument("--linear", action="store_true", help="also cost per graph against the number of graphs")
    parser.add_argument("--no-memory", action="store_true", help="do not start the processes that measure memory")
    parser.add_argument("--molpcba", type=int, default=None, help="graphs of the set like molpcba, all by default")
    parser.add_argument("--seconds", type=float, default=5.0, help="an epoch that takes longer is timed in part")
    parser.add_argument("--mirror", default=None, help="folder or address of TU archives; the public server by default")
    parser.add_argument("--root", default="datasets", help="where TU sets are kept")
    parser.add_argument("--out", type=Path, help="NAME.md and NAME.json; default: results/cpu in this folder")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    keep_freed_memory()  # for all pipelines alike, as `python -m graphcl.run` does
    if given.cpu_time and given.threads != 1:
        parser.error("--cpu-time needs --threads 1: several threads burn time while they wait for each other.")
    given.pipelines = [name.strip() for name in given.pipelines.split(",")]
    unknown = [name for name in given.pipelines if name not in PIPELINES]
    if unknown:
        parser.error(f"--pipelines: unknown pipeline {unknown[0]!r}; choose from: {', '.join(PIPELINES)}.")
    given.pipelines = [name for name in PIPELINES if name == "ours" or name in given.pipelines]
    timing.clock = time.process_time if given.cpu_time else time.perf_counter
    if given.out is None and not given.quick:
        given.out = Path(__file__).parent / "results" / "cpu"
    if given.quick:
        given.seconds = min(given.seconds, 0.2)
    names = (given.sets or ",".join(TINY if given.quick else [*REAL, "dd", "reddit", "collab", "molpcba"])).split(",")

    found: dict[str, Any] = {"machine": machine(given.threads), "pipelines": given.pipelines, "sets": []}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for position, name in enumerate(names):
            with_memory = not given.no_memory and (position == 0 or not given.quick)
            found["sets"].append(measure(name.strip(), given, Path(folder), with_memory))
            write(found, given.out)
            print(f"{name}: done after {time.perf_counter() - start:.0f} s", flush=True)
    if given.linear:
        sizes = (200, 400) if given.quick else linear.SIZES
        found["linear"] = {"sizes": sizes, "rows": linear.linear(sizes, repeats=1 if given.quick else 3)}
    found["machine"]["load_average_at_the_end"] = [round(each, 2) for each in os.getloadavg()]
    print("\n" + write(found, given.out))
    return found


if __name__ == "__main__":
    main()
