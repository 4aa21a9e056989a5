"""Measure how time and memory grow: python benchmarks/growth.py

Loss over the batch, an epoch, an evaluator, WL patterns and the sparse index over the number of graphs, augmentations
over the size of a graph. Each case has a process of its own with one thread: CPU seconds (median of three or more, of
long ones one) and MB of the first call, above imports and input. An exponent is the slope of the logarithms over the
largest sizes, those of the last factor of ten. Writes benchmarks/results/growth.json, docs/figures/growth.svg, and
prints the table of docs/speed.md.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timing import machine

ROOT = Path(__file__).parents[1]
RESULT, FIGURE = ROOT / "benchmarks" / "results" / "growth.json", ROOT / "docs" / "figures" / "growth.svg"
SECONDS = 2.0
"""CPU time after which a case is not repeated more than three times."""


def loss(n: int, name: str = "infonce") -> Callable[[], Any]:
    """Return forward and backward of a loss of two views, 64 columns."""
    import torch

    from graphcl.losses import Loss

    formula, z = Loss(name), torch.randn(2, n, 64, requires_grad=True)
    return lambda: formula(*z).backward()


def epoch(n: int) -> Callable[[], Any]:
    """Return an epoch of molecules in batches of 128, with `random4`."""
    from ours import Ours
    from shapes import generate

    return Ours(generate("nci1", n)).epoch


def evaluator(n: int, name: str = "svm") -> Callable[[], Any]:
    """Return an evaluator of rows of 96 columns, two classes that overlap."""
    import torch

    from graphcl import evaluate

    y = torch.arange(n) % 2
    h = torch.randn(n, 96) + y[:, None] * 0.2
    return lambda: getattr(evaluate, name)(h, y)


def wl_counts(n: int) -> Callable[[], Any]:
    """Return the columns of the WL-OA kernel of molecules, the counts of their colours up to depth 5."""
    from shapes import generate

    from graphcl.references.wl import _kernels

    dataset = _dataset(generate("nci1", n))
    return lambda: _kernels.__wrapped__(dataset, *range(n))


def wl_kernel(n: int) -> Callable[[], Any]:
    """Return all similarities of the WL-OA kernel of molecules, at depth 5."""
    import numpy as np
    import torch

    similarity, rows = wl_counts(n)()[1].similarity, torch.arange(n)
    return lambda: similarity(5, np.arange(n))(rows, rows)


def patterns(n: int) -> Callable[[], Any]:
    """Return the sparse rows of WL patterns of molecules."""
    return _sparse(n)


def index(n: int) -> Callable[[], Any]:
    """Return the search of 100 molecules in a sparse index."""
    from graphcl.extensions.sparse.index import SparseIndex

    rows = _sparse(n)()
    built = SparseIndex(rows)
    return lambda: built.search(rows[:100])


def _sparse(n: int) -> Callable[[], Any]:
    from shapes import generate
    from torch_geometric.data import Batch

    from graphcl.extensions.sparse.encoder import WLSparse

    dataset = generate("nci1", n)
    batch, encoder = Batch.from_data_list(list(dataset)), WLSparse(dataset.num_features)
    return lambda: encoder.rows(batch.x, batch.edge_index, batch.batch, size=n)


def _dataset(generated: Any) -> Any:
    from graphcl import load_dataset

    return load_dataset(generated)


def augmentation(n: int, name: str = "NodeDrop") -> Callable[[], Any]:
    """Return an augmentation of one connected graph of n nodes and 2 n undirected edges."""
    import torch
    from torch_geometric.data import Batch, Data

    import graphcl

    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    pairs = torch.cat([ring, torch.randint(n, (2, n))], dim=1)
    pairs = torch.unique(pairs[:, pairs[0] != pairs[1]].sort(dim=0).values, dim=1)
    data = Data(x=torch.randn(n, 8), edge_index=torch.cat([pairs, pairs.flip(0)], dim=1))
    batch, change = Batch.from_data_list([data]), getattr(graphcl, name)(0.2)
    return lambda: change(batch)


BATCHES = (128, 512, 2_048, 8_192, 16_384)
NUMBERS, SIZES = (1_000, 10_000, 100_000), (10, 100, 1_000, 10_000, 100_000)
CASES: dict[str, tuple[Callable[..., Callable[[], Any]], tuple[str, ...], tuple[int, ...], str]] = {
    "infonce": (loss, ("infonce",), BATCHES, "batch"),
    "adnce": (loss, ("adnce",), BATCHES, "batch"),
    "triplet": (loss, ("triplet",), BATCHES, "batch"),
    "vicreg": (loss, ("vicreg",), BATCHES, "batch"),
    "epoch": (epoch, (), NUMBERS, "graphs"),
    "svm": (evaluator, ("svm",), (500, 1_000, 2_000, 4_000), "graphs"),
    "logreg": (evaluator, ("logreg",), NUMBERS, "graphs"),
    "knn": (evaluator, ("knn",), (1_000, 3_000, 10_000), "graphs"),
    "WL counts": (wl_counts, (), NUMBERS, "graphs"),
    "WL-OA kernel": (wl_kernel, (), (500, 1_000, 2_000, 4_000), "graphs"),
    "wl_sparse rows": (patterns, (), NUMBERS, "graphs"),
    "sparse index, 100 queries": (index, (), NUMBERS, "graphs"),
    "node drop": (augmentation, ("NodeDrop",), SIZES, "nodes of the graph"),
    "edge perturbation": (augmentation, ("EdgePerturb",), SIZES, "nodes of the graph"),
    "subgraph": (augmentation, ("Subgraph",), SIZES, "nodes of the graph"),
    "attribute mask": (augmentation, ("AttributeMask",), SIZES, "nodes of the graph"),
}
"""Function, its arguments, the sizes and what they count."""


def measure(name: str, n: int) -> dict[str, Any]:
    """Return the CPU seconds and the MB of a case, measured in this process."""
    import torch
    from memory import high_water, settle

    torch.set_num_threads(1)
    torch.manual_seed(0)
    function, arguments, sizes, _ = CASES[name]
    function(min(sizes), *arguments)()  # libraries load what they need
    action = function(n, *arguments)
    settle()
    before = high_water()
    seconds: list[float] = []
    while len(seconds) < 3 or (sum(seconds) < SECONDS and len(seconds) < 1_000):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
        if len(seconds) == 1:
            mb = high_water() - before
            if seconds[0] > 2 * SECONDS:
                break
    return {"case": name, "n": n, "seconds": statistics.median(seconds), "mb": mb}


def exponent(rows: list[dict[str, Any]], key: str) -> float:
    """Return the slope of log(value) over log(n), by least squares over the last factor of ten of n."""
    last = [row for row in rows if row["n"] * 10 >= max(row["n"] for row in rows)]
    points = [(math.log(row["n"]), math.log(max(row[key], 1e-9))) for row in last]
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def page(rows: list[dict[str, Any]]) -> str:
    """Return the table of docs/speed.md."""
    lines = ["| | over | CPU seconds | exponent | MB | exponent |", "|---|---|---|---|---|---|"]
    for name, (_, _, _, over) in CASES.items():
        own = [row for row in rows if row["case"] == name]
        if own:
            first, last = own[0], own[-1]
            slopes = [exponent(own, key) for key in ("seconds", "mb")]
            seconds, mb = (f"{_short(first[key])} to {_short(last[key])}" for key in ("seconds", "mb"))
            sizes = f"{over}, {first['n']:,} to {last['n']:,}"
            memory = f"{slopes[1]:.2f}" if last["mb"] > 20 else ""
            lines.append(f"| {name} | {sizes} | {seconds} | {slopes[0]:.2f} | {mb} | {memory} |")
    return "\n".join(lines)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def draw(rows: list[dict[str, Any]]) -> str:
    """Return the plot of CPU seconds, one panel for each kind of size, as SVG."""
    from graphcl.report.style import COLOURS, MARKERS, panels, style, to_svg

    kinds = list(dict.fromkeys(over for *_, over in CASES.values()))
    with style():
        figure, axes = panels(len(kinds), 3.3, 3.1)
        for axis, kind in zip(axes, kinds, strict=True):
            names = [name for name, case in CASES.items() if case[3] == kind]
            for position, name in enumerate(names):
                sizes, seconds = zip(*[(row["n"], row["seconds"]) for row in rows if row["case"] == name], strict=True)
                colour, marker = COLOURS[position % 7], MARKERS[position // 7]
                axis.loglog(sizes, seconds, color=colour, marker=marker, markersize=3, label=name)
            axis.set_xlabel(kind)
            axis.legend(fontsize=6.5, ncol=3, loc="lower center", bbox_to_anchor=(0.5, 1), columnspacing=1)
        axes[0].set_ylabel("CPU seconds, one thread")
    return to_svg(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--case", nargs=2, metavar=("NAME", "N"), help="measure one case in this process")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(arguments.case[0], int(arguments.case[1]))))
        return
    kept = json.loads(RESULT.read_text())["rows"] if RESULT.exists() else []
    rows = [row for row in kept if row["case"] not in arguments.cases]
    for name in arguments.cases:
        for n in CASES[name][2]:
            command = [sys.executable, __file__, "--case", name, str(n)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(rows[-1], flush=True)
    RESULT.write_text(json.dumps({"machine": machine(1), "rows": rows}, indent=1) + "\n")
    FIGURE.write_text(draw(rows))
    print(page(rows))


if __name__ == "__main__":
    main()
