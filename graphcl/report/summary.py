"""Summarise a run: environment, table of scores, evaluation protocol."""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from graphcl.datasets.dataset import Benchmark
from graphcl.evaluate import METRICS, FoldScores, best_row, paired_gain, summarise


def environment(device: torch.device) -> dict[str, Any]:
    """Return the versions, the commit, the hardware and the command line of this process, for `result.json`."""
    versions = {"python": platform.python_version()}
    for package in ("graphcl", "torch", "torch-geometric", "scikit-learn", "numpy", "networkx", "ogb"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "versions": versions,
        "commit": _commit(),
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


ROWS = {
    "majority": "majority class",
    "random": "random order",
    "statistics": "graph statistics",
    "bag": "bag of node labels",
    "raw": "raw features",
    "propagated": "propagated features",
    "untrained": "untrained encoder",
    "calibrated": "untrained, calibrated",
    "ecfp4": "ECFP4 fingerprints",
    "ecfp4_counts": "ECFP4 counts",
    "descriptors": "RDKit descriptors",
    "wl": "WL kernel",
    "wl_oa": "WL-OA kernel",
    "descriptors+trained": "descriptors + trained",
    "trained": "trained encoder",
}
"""Row (kind of embedding that is scored) -> label."""
TRAINED_ROWS = ("descriptors+trained", "trained")
"""Rows that need training; the others are references."""


def compared(rows: Mapping[str, Sequence[FoldScores]]) -> dict[str, Any]:
    """Return one evaluator's entry in `result.json`: the mean of each row, and two gains of `trained`, if there is one.

    The gains are over `untrained` and over the best row that needs no training. `rows` has one score per row and seed.
    """
    references = {name: scores for name, scores in rows.items() if name not in TRAINED_ROWS}
    best, gains = best_row(references), {}
    if "trained" in rows:
        over = {"gain": rows["untrained"], "gain_over_best": rows[best]}
        gains = {name: vars(paired_gain(rows["trained"], scores)) for name, scores in over.items()}
    return {
        "metric": rows[best][0].metric,
        **{name: vars(summarise(scores)) for name, scores in rows.items()},
        **gains,
        "best_reference": best,
        "per_seed": [
            {name: vars(score) for name, score in zip(rows, of_seed, strict=True)}
            for of_seed in zip(*rows.values(), strict=True)
        ],
    }


def score_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the lines of a run's table of scores and a line on the protocol; `result` is read from `result.json`."""
    seeds, steps = len(next(iter(result["scores"].values()))["per_seed"]), result["config"]["steps"]
    when = f"at epoch {result['epochs']}" if steps is None else f"after {steps} steps"
    when = when if result["epochs"] else "without training"
    how = f"{protocol_line(result)}; mean over {seeds} seed{'s' if seeds > 1 else ''} {when}."
    return [*table_lines(result, ROWS), how]


def table_lines(result: Mapping[str, Any], rows: Mapping[str, str]) -> list[str]:
    """Return the lines of the table of scores: for each evaluator, the `rows` (row -> label), then the gains."""
    on_folds, lines, metric = "folds" in result, list[str](), None
    for evaluator, scores in result["scores"].items():
        if evaluator == "instance":
            lines += _copy_lines(scores, rows)
            continue
        if scores["metric"] != metric:
            metric = scores["metric"]
            head = f"{'':40}{METRICS[metric]:>12}{'± seeds':>10}{'± folds' if on_folds else '':>10}"
            lines.append(head.rstrip())
        for name, label in rows.items():
            if (row := scores.get(name)) is None:
                continue
            folds = f"{row['std_folds']:10.2f}" if on_folds else ""
            lines.append(f"{f'{evaluator}, {label}':40}{row['mean']:12.2f}{deviation(row):>10}{folds}")
        gains = {"untrained": "gain", scores["best_reference"]: "gain_over_best"}
        for name, key in gains.items() if "trained" in scores else ():
            label = f"{evaluator}, gain over {rows[name]}"
            lines.append(f"{label:40}{scores[key]['mean']:+12.2f}{deviation(scores[key]):>10}")
        further = [score.get("trained", {}).get("figures", {}) for score in scores["per_seed"]]
        for name in further[0]:
            mean = sum(each[name] for each in further) / len(further)
            lines.append(f"{f'{evaluator}, trained, {name}':40}{mean:12.2f}")
    return lines


def _copy_lines(scores: Mapping[str, Any], rows: Mapping[str, str]) -> list[str]:
    """Return the lines of the table of scores by `instance`, and what they say about the rows."""
    lines = [f"{'':40}{METRICS[scores['metric']]:>12}{'± seeds':>10}{'effective rank':>16}"]
    for name, label in rows.items():
        if (row := scores.get(name)) is not None:
            figures = f"{row['mean']:12.2f}{deviation(row):>10}{mean_rank(scores, name):16.1f}"
            lines.append(f"{f'instance, {label}':40}{figures}")
    return [*lines, AGREEMENT]


def mean_rank(scores: Mapping[str, Any], row: str) -> float:
    """Return the mean effective rank over seeds of a row scored by `instance`."""
    ranks = [each[row]["figures"]["effective_rank"] for each in scores["per_seed"]]
    return float(sum(ranks) / len(ranks))


def deviation(summary: Mapping[str, Any]) -> str:
    """Return the standard deviation over seeds as text, or `-` for a single seed."""
    return f"{summary['std_seeds']:.2f}" if len(summary["seeds"]) > 1 else "-"


AGREEMENT = (
    "recall@1 does not tell which row to use: on ten labelled sets, its best row was the most accurate in 2, by chance "
    "2.5 (docs/studies/without_labels.md); an effective rank near 1 means a collapsed embedding."
)
"""Printed below the scores of `instance`; the figures are those of `docs/studies/without_labels.md`."""
SPLITS = {
    "random_splits": "20 random splits into 10, 10 and 80 %, C by validation",
    "public_split": "the public split, C by validation",
    "nmi": "k-means with as many clusters as classes",
    "ari": "k-means with as many clusters as classes",
}
"""Evaluator of nodes -> its protocol in words."""
_CHOSEN = {"knn": "k", "retrieval": "scale"}
"""Evaluator on folds -> what the inner folds choose, if it is not C."""


def protocol_line(result: Mapping[str, Any], split_chooses: str = "C") -> str:
    """Return the evaluation protocol in one line; the validation part selects `split_chooses`, such as `epoch`."""
    parts = []
    if copies := result.get("copies"):
        used = "did not use" if copies["unused_in_training"] else "used too"
        drawn_by = f"{', '.join(copies['augmentations'])}, which training {used}"
        count, graphs = copies["copied"], copies["graphs"]
        source = f"all {graphs}" if count == graphs else f"{count} of {graphs}"
        parts = [f"copies of {source} graphs by {drawn_by}, found by cosine"]
    if groups := result.get("group_split"):
        train, valid, test = groups.values()
        sizes = f"{train} training graphs, settings by {valid} for validation, retrieval among {test} test graphs"
        parts.append(f"split by {result.get('split_by', 'group')}: {sizes}")
    if "split" in result:
        train, valid, test = result["split"].values()
        parts.append(f"split: {train} training graphs, {split_chooses} by {valid} for validation, scored on {test}")
    if "folds" not in result:
        return "; ".join(parts)
    if result["inner_folds"] is None:
        return f"{result['folds']} stratified folds, {split_chooses} by the next fold"
    parts += dict.fromkeys(SPLITS[name] for name in result["scores"] if name in SPLITS)
    apart = {"instance", "retrieval"} if groups else {"instance"}
    if on_folds := [name for name in result["scores"] if name not in SPLITS.keys() | apart]:
        chosen = " and ".join(dict.fromkeys(_CHOSEN.get(name, "C") for name in on_folds))
        parts.append(f"{result['folds']} stratified folds, {chosen} by an inner {result['inner_folds']}-fold grid")
    return "; ".join(parts)


def protocol(folds: int, inner_folds: int | None, benchmark: Benchmark | None) -> dict[str, Any]:
    """Return the protocol's entries for `result.json`: the numbers of folds, or the sizes of the benchmark's parts."""
    if benchmark is None:
        return {"folds": folds, "inner_folds": inner_folds}
    return {"split": {part: len(graphs) for part, graphs in benchmark.split.items()}}


def unit(metric: str) -> str:
    """Return the text to print after a value of `metric`: `%` for accuracy, else the metric's printed name."""
    return "%" if metric == "accuracy" else METRICS[metric]


@functools.cache  # every cell of a sweep calls it, and the commit of the loaded code does not change
def _commit() -> str | None:
    """Return the git commit of this package, plus `-dirty` if tracked files are modified; None outside a checkout."""
    tracked = ("ls-files", "--error-unmatch", Path(__file__).name)
    found = ""
    for words in (tracked, ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")):
        command = ["git", "-C", str(Path(__file__).parent), *words]
        try:
            found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return None
    return found


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor()
