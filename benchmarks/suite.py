"""Three pipelines, the stages of ours, and the machine's floor, in one table per question.

    python benchmarks/suite.py --threads 2 --mirror ~/tu --out benchmarks/results/cpu    # cores of one's own
    python benchmarks/suite.py --threads 1 --cpu-time --mirror ~/tu                      # cores that others use too

writes `cpu.md` and `cpu.json` and prints the former. The pipelines train the same: batches of 128, the original graph
and one of four augmentations (`random4`, ratio 0.2), GIN 3 x 32 with sum readout, a projector, InfoNCE, Adam. They take
turns in one process; a cell is the median (and the fastest), a ratio the median of the turns' ratios. `pyg_pipeline.py`
and `per_graph.py` say what they do, `shapes.py` what the generated sets are like, `stages.py` and `floor.py` what is
measured how.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
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
from per_graph import PerGraph
from pyg_pipeline import PyGPipeline
from timing import machine, number, table, timed, told
from torch_geometric.data import Data

from graphcl import load_dataset

REAL = {"mutag": "MUTAG", "proteins": "PROTEINS", "nci1": "NCI1", "imdb-binary": "IMDB-BINARY"}
TINY = {"dd": 40, "reddit": 40, "collab": 20, "molpcba": 400, "proteins": 60}
PIPELINES = {"ours": Ours, "pyg": PyGPipeline, "per_graph": PerGraph}
SVM_GRAPHS = 1_200
"""Sets of so many labelled graphs or fewer are scored by the SVM too."""

EPOCHS = {
    "set": "set",
    "graphs": "graphs",
    "nodes": "nodes",
    "edges": "edges",
    "ours": "graphcl s",
    "pyg": "PyG s",
    "per_graph": "per graph s",
    "pyg_ratio": "PyG / graphcl",
    "per_graph_ratio": "per graph / graphcl",
    "part": "part timed",
    "turns": "turns",
    "load": "load",
    "ours_mb": "graphcl MB",
    "pyg_mb": "PyG MB",
    "per_graph_mb": "per graph MB",
}
ENCODER = {
    "set": "set",
    "data_share": "batching + augmenting %",
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
    """Features, edges and labels only, so that no pipeline carries along what it does not use."""
    if given.quick or name not in REAL:
        if name not in shapes.SHAPES:
            raise SystemExit(f"suite: there is no generated set like {name!r}; there are {', '.join(shapes.SHAPES)}.")
        return shapes.generate(name, TINY[name] if given.quick else given.molpcba if name == "molpcba" else None)
    whole = load_dataset(REAL[name], root=given.root, mirror=given.mirror)
    keys = ("x", "edge_index", "y")
    data = Data(**{key: whole._data[key] for key in keys})
    return shapes.Generated(data, {key: whole.slices[key] for key in keys})


def _seconds_per_graph(run: Any, limit: int | None) -> tuple[float, int]:
    """Of an epoch, or of its first graphs; and how many those were."""
    done: list[int] = []
    seconds = timed(lambda: done.append(run.epoch(limit)))
    return seconds / done[0], done[0]


def limits(runs: dict[str, Any], graphs: int, given: argparse.Namespace) -> dict[str, int | None]:
    """How many graphs of an epoch each pipeline is timed on: all (None) where an epoch takes less than `--seconds`."""
    found: dict[str, int | None] = {}
    for name, run in runs.items():
        pilot = min(graphs, 1024 if name == "ours" else 256)
        run.epoch(pilot)
        epoch = graphs * min(_seconds_per_graph(run, pilot)[0] for _ in range(2))
        part = max(given.seconds / 2 / epoch * graphs, 256)
        found[name] = None if epoch < given.seconds else min(graphs, round(part / 128 + 0.5) * 128)
    return found


def epochs(data: Any, given: argparse.Namespace) -> tuple[dict[str, Any], dict[str, int | None], Ours]:
    """Seconds of an epoch of each pipeline, taking turns; what was timed; and our pipeline."""
    graphs = len(data)
    runs = {name: pipeline(data) for name, pipeline in PIPELINES.items()}
    parts = limits(runs, graphs, given)
    for name in ("pyg", "per_graph"):
        for graph in runs[name].order[: parts[name]]:
            data[graph]  # PyG keeps the graphs it has once taken out, so that later epochs are faster: time those
    times: dict[str, list[float]] = {name: [] for name in runs}
    shares, covered = [], {}
    while True:
        for name, run in runs.items():
            seconds, done = _seconds_per_graph(run, parts[name])
            covered[name] = done / graphs
            times[name].append(seconds * graphs)
        shares.append(100 * runs["ours"].data_share)
        turns = len(times["ours"])
        if given.quick or (turns >= 3 and (turns >= 9 or sum(map(sum, times.values())) > given.seconds)):
            break
    row: dict[str, Any] = {name: statistics.median(found) for name, found in times.items()}
    for name in ("pyg", "per_graph"):
        row[f"{name}_ratio"] = statistics.median(b / a for a, b in zip(times["ours"], times[name], strict=True))
    parted = [f"{100 * share:.2g} %" if share < 1 else "all" for share in covered.values()]
    row["part"] = "all" if set(parted) == {"all"} else " / ".join(parted)
    row |= {"turns": turns, "times": times, "covered": covered, "data_share": statistics.median(shares)}
    return row, parts, runs["ours"]


def measure(name: str, given: argparse.Namespace, folder: Path, with_memory: bool) -> dict[str, Any]:
    """Everything about one set."""
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


def _cell(times: list[float]) -> str:
    return f"{number(statistics.median(times))} ({number(min(times))})"


def report(found: dict[str, Any]) -> str:
    """The Markdown."""
    rows = found["sets"]
    best = {key: max((row[key] for row in rows), default=None) for key in RATES}
    parts = [
        "# Benchmark",
        told(found["machine"]),
        "## An epoch",
        "Seconds, batch 128, median and (fastest) of turns; ratios are medians within turns. Where only a part of an "
        "epoch was timed (graphcl / PyG / per graph), it is scaled. Load: average when the set's turn came, with this "
        "process. MB: peak above the process with its data, over that same part.",
        table([row | {name: _cell(row["times"][name]) for name in PIPELINES} for row in rows], EPOCHS),
        "## A step of graphcl, in milliseconds",
        table([{"set": row["set"], **row["stages"]} for row in rows], stages.COLUMNS),
        "## The encoder and the machine",
        "Forward and backward on both views, against the least time the machine needs (`floor.py`): `floor` if all "
        "overlaps at its best rates, `reachable` if nothing overlaps and products go at the rate of this shape.",
        table(rows, ENCODER),
        table([best], RATES),
    ]
    if "linear" in found:
        parts += [
            "## Microseconds per graph, molpcba's shape",
            f"Of sets larger than {linear.MOST:,} graphs, the first steps of an epoch up to that many.",
            table(found["linear"]["rows"], linear.columns(found["linear"]["sizes"])),
        ]
    return "\n\n".join(parts) + "\n"


def write(found: dict[str, Any], path: Path | None) -> str:
    """The Markdown, which goes into a file with the numbers beside it."""
    text = report(found)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".md").write_text(text)
        path.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    return text


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description="Times this library beside two others ways to do the same.")
    parser.add_argument("--sets", default=None, help="by default all; with --quick all generated ones")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--cpu-time", action="store_true", help="with one thread: time computing, not waiting for a core"
    )
    parser.add_argument("--quick", action="store_true", help="tiny generated sets, once each: does it work?")
    parser.add_argument("--linear", action="store_true", help="also cost per graph against the number of graphs")
    parser.add_argument("--no-memory", action="store_true", help="spare the processes that measure memory")
    parser.add_argument("--molpcba", type=int, default=None, help="graphs of the set like molpcba, all by default")
    parser.add_argument("--seconds", type=float, default=5.0, help="an epoch that takes longer is timed in part")
    parser.add_argument("--mirror", default=None, help="folder or address of TU archives; the public server by default")
    parser.add_argument("--root", default="datasets", help="where TU sets are kept")
    parser.add_argument("--out", type=Path, help="NAME.md and NAME.json; by default results/cpu beside this file")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    if given.cpu_time and given.threads != 1:
        parser.error("--cpu-time needs --threads 1: several threads burn time while they wait for each other.")
    timing.clock = time.process_time if given.cpu_time else time.perf_counter
    if given.out is None and not given.quick:
        given.out = Path(__file__).parent / "results" / "cpu"
    if given.quick:
        given.seconds = min(given.seconds, 0.2)
    names = (given.sets or ",".join(TINY if given.quick else [*REAL, "dd", "reddit", "collab", "molpcba"])).split(",")

    found: dict[str, Any] = {"machine": machine(given.threads), "sets": []}
    with tempfile.TemporaryDirectory() as folder:
        for position, name in enumerate(names):
            with_memory = not given.no_memory and (position == 0 or not given.quick)
            found["sets"].append(measure(name.strip(), given, Path(folder), with_memory))
            write(found, given.out)
            print(f"{name}: done", flush=True)
    if given.linear:
        sizes = (200, 400) if given.quick else linear.SIZES
        found["linear"] = {"sizes": sizes, "rows": linear.linear(sizes, repeats=1 if given.quick else 3)}
    found["machine"]["load_average_at_the_end"] = [round(each, 2) for each in os.getloadavg()]
    print("\n" + write(found, given.out))
    return found


if __name__ == "__main__":
    main()
