"""What a run says: its environment, its scores as lines, its protocol."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from graphcl import native
from graphcl.datasets.dataset import Benchmark
from graphcl.evaluate import METRICS, FoldScores, paired_gain, summarise


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, commit and hardware: what a figure depends on besides the settings."""
    packages = ("graphcl", "torch", "torch-geometric", "scikit-learn", "numpy", "networkx", "ogb")
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return {
        "versions": {"python": platform.python_version(), **found},
        "commit": _commit(),
        "compiled": native.enabled,  # draws follow the same law either way, but from other numbers
        "hardware": {
            "machine": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        },
        "command": sys.argv,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def compared(before: Sequence[FoldScores], after: Sequence[FoldScores]) -> dict[str, Any]:
    """What `result.json` holds of an evaluator's scores, a seed each, before training and after it."""
    return {
        "metric": after[0].metric,
        "untrained": vars(summarise(before)),
        "trained": vars(summarise(after)),
        "gain": vars(paired_gain(after, before)),
        "per_seed": [{"untrained": vars(old), "trained": vars(new)} for old, new in zip(before, after, strict=True)],
    }


def score_lines(result: Mapping[str, Any]) -> list[str]:
    """The outcome of a run as a small table, plus what its figures mean."""
    seeds, steps = len(next(iter(result["scores"].values()))["gain"]["seeds"]), result["config"]["steps"]
    when = f"at epoch {result['epochs']}" if steps is None else f"after {steps} steps"
    how = f"{protocol_line(result)}; mean over {seeds} seed{'s' if seeds > 1 else ''} {when}."
    return [*table_lines(result, {"untrained": "untrained encoder", "trained": "trained encoder"}), how]


def table_lines(result: Mapping[str, Any], rows: Mapping[str, str]) -> list[str]:
    """The scores as a table: for each evaluator `rows`, its keys in the scores and their labels, and the gain."""
    on_folds = "folds" in result
    metric = METRICS[next(iter(result["scores"].values()))["metric"]]
    lines = [f"{'':28}{metric:>12}{'± seeds':>10}{'± folds' if on_folds else '':>10}".rstrip()]
    for evaluator, scores in result["scores"].items():
        for name, words in rows.items():
            row, label = scores[name], f"{evaluator}, {words}"
            folds = f"{row['std_folds']:10.2f}" if on_folds else ""
            lines.append(f"{label:28}{row['mean']:12.2f}{row['std_seeds']:10.2f}{folds}")
        gain, label = scores["gain"], f"{evaluator}, gain, paired"
        lines.append(f"{label:28}{gain['mean']:+12.2f}{gain['std_seeds']:10.2f}")
    return lines


def protocol_line(result: Mapping[str, Any], split_chooses: str = "C") -> str:
    """Who was trained on, what chose, who was tested; on a split, the validation part chose `split_chooses`."""
    if "folds" in result:
        chosen = " and ".join(dict.fromkeys("k" if name == "knn" else "C" for name in result["scores"]))
        return f"{result['folds']} stratified folds, {chosen} by an inner {result['inner_folds']}-fold grid"
    train, valid, test = result["split"].values()
    return f"OGB's split: {train} training graphs, {split_chooses} by {valid} for validation, scored on {test}"


def protocol(folds: int, inner_folds: int, benchmark: Benchmark | None) -> dict[str, Any]:
    """What `result.json` holds of the parts that were trained on and scored."""
    if benchmark is None:
        return {"folds": folds, "inner_folds": inner_folds}
    return {"split": {part: len(graphs) for part, graphs in benchmark.split.items()}}


def unit(metric: str) -> str:
    """How a metric is called behind a figure on a line."""
    return "%" if metric == "accuracy" else METRICS[metric]


@functools.cache  # each cell of a sweep asks; and it is the code that was loaded which counts
def _commit() -> str | None:
    """The commit of this very file, with `-dirty` where the checkout differs from it; None outside of a checkout."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> str:
    try:
        lines: Sequence[str] = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
