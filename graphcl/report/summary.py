"""Summarise a run: environment, table of scores, evaluation protocol."""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from graphcl.datasets.dataset import Benchmark
from graphcl.evaluate import metric_name
from graphcl.evaluate.needs import is_by_copies, need_of, takes
from graphcl.evaluate.scores import interval_words
from graphcl.references.rows import row_labels
from graphcl.registry import evaluators

_FIGURES = 20
"""Largest number of further figures of an evaluator that are printed, as a benchmark may have 128 tasks."""
PLUS_MINUS = "±: sample standard deviation, n - 1."
"""Meaning of ± below every table of scores."""


def environment(device: torch.device) -> dict[str, Any]:
    """Return the versions, the commit, the hardware and the command line of this process, for `result.json`."""
    versions = {"python": platform.python_version()}
    for package in ("graphcl", "torch", "torch-geometric", "scikit-learn", "scipy", "numpy", "networkx", "ogb"):
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


def score_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the lines of a run's table of scores and a line on the protocol; `result` is read from `result.json`."""
    seeds, steps = len(next(iter(result["scores"].values()))["per_seed"]), result["config"]["steps"]
    when = f"at epoch {result['epochs']}" if steps is None else f"after {steps} steps"
    when = when if result["epochs"] else "without training"
    how = f"{protocol_line(result)}; mean over {seeds} seed{'s' if seeds > 1 else ''} {when}."
    found = {row for scores in result["scores"].values() for row in scores["per_seed"][0]}
    return [*table_lines(result, row_labels(found)), f"{how} {PLUS_MINUS}"]


def table_lines(result: Mapping[str, Any], rows: Mapping[str, str]) -> list[str]:
    """Return the lines of the table of scores: for each evaluator, the `rows` (row -> label), then the gains."""
    on_folds, lines, metric = "folds" in result, list[str](), None
    for evaluator, scores in result["scores"].items():
        if is_by_copies(evaluator):
            lines += _copy_lines(evaluator, scores, rows)
            continue
        if scores["metric"] != metric:
            metric = scores["metric"]
            head = f"{'':40}{metric_name(metric):>12}{'± seeds':>10}{'± folds' if on_folds else '':>10}"
            lines.append(head.rstrip())
        for name, label in rows.items():
            if (row := scores.get(name)) is None:
                continue
            folds = f"{row['std_folds']:10.2f}" if on_folds and row["std_folds"] is not None else ""
            lines.append(f"{f'{evaluator}, {label}':40}{row['mean']:12.2f}{deviation(row):>10}{folds}")
        gains = {"untrained": "gain", scores["best_reference"]: "gain_over_best"}
        for name, key in gains.items() if "trained" in scores else ():
            label = f"{evaluator}, gain over {rows[name]}"
            lines.append(f"{label:40}{scores[key]['mean']:+12.2f}{deviation(scores[key]):>10}")
        further = [score.get("trained", {}).get("figures", {}) for score in scores["per_seed"]]
        means = {name: sum(each[name] for each in further) / len(further) for name in further[0]}
        ends = means.pop("mrr_low", None), means.pop("mrr_high", None)
        over, note = interval_words(means.pop("mrr_units", None))
        lines += [f"{f'{evaluator}, trained, {name}':40}{mean:12.2f}" for name, mean in [*means.items()][:_FIGURES]]
        if len(means) > _FIGURES:
            lines.append(f"{evaluator}: {len(means) - _FIGURES} more figures are in result.json")
        if None not in ends:
            lines.append(f"{f'{evaluator}, trained, 95 % over {over}':40}{ends[0]:12.2f} to {ends[1]:.2f}{note}")
    return lines


def _copy_lines(evaluator: str, scores: Mapping[str, Any], rows: Mapping[str, str]) -> list[str]:
    """Return the lines of the table of scores by copies, and what they say about the rows."""
    lines = [f"{'':40}{metric_name(scores['metric']):>12}{'± seeds':>10}{'effective rank':>16}"]
    for name, label in rows.items():
        if (row := scores.get(name)) is not None:
            figures = f"{row['mean']:12.2f}{deviation(row):>10}{mean_rank(scores, name):16.1f}"
            lines.append(f"{f'{evaluator}, {label}':40}{figures}")
    return [*lines, *filter(None, [evaluators.fact(evaluator, "note")])]


def mean_rank(scores: Mapping[str, Any], row: str) -> float:
    """Return the mean effective rank over seeds of a row scored by copies."""
    ranks = [each[row]["figures"]["effective_rank"] for each in scores["per_seed"]]
    return float(sum(ranks) / len(ranks))


def deviation(summary: Mapping[str, Any]) -> str:
    """Return the sample standard deviation over seeds as text, or `-` for a single seed."""
    return f"{summary['std_seeds']:.2f}" if len(summary["seeds"]) > 1 else "-"


def protocol_line(result: Mapping[str, Any], split_chooses: str = "C") -> str:
    """Return the evaluation protocol in one line; the validation part selects `split_chooses`, such as `epoch`."""
    parts = []
    if copies := result.get("copies"):
        used = "did not use" if copies["unused_in_training"] else "used too"
        drawn_by = f"{', '.join(copies['augmentations'])}, which training {used}"
        count, graphs = copies["copied"], copies["graphs"]
        source = f"all {graphs}" if count == graphs else f"{count} of {graphs}"
        among = f" among a sample of {graphs} of {copies['of']}" if "of" in copies else ""
        parts = [f"copies of {source} graphs by {drawn_by}, found by cosine{among}"]
    if groups := result.get("group_split"):
        train, valid, test = groups.values()
        sizes = f"{train} training graphs, settings by {valid} for validation, retrieval among {test} test graphs"
        parts.append(f"split by {result.get('split_by', 'group')}: {sizes}")
    rate = f" ({100 * result['label_rate']:g} % of the labels)" if "label_rate" in result else ""
    if "split" in result:
        train, valid, test = result["split"].values()
        parts.append(
            f"split: {train} training graphs{rate}, {split_chooses} by {valid} for validation, scored on {test}"
        )
    if "folds" not in result:
        return "; ".join(parts)
    if result["inner_folds"] is None:
        return f"{result['folds']} stratified folds{rate}, {split_chooses} by the next fold"
    parts += dict.fromkeys(filter(None, (evaluators.fact(name, "protocol") for name in result["scores"])))
    has = {"groups", "labels"} if groups else {"labels"}
    if on_folds := [name for name in result["scores"] if _is_on_folds(name, has)]:
        chosen = " and ".join(dict.fromkeys(evaluators.fact(name, "chooses") for name in on_folds))
        parts.append(f"{result['folds']} stratified folds, {chosen} by an inner {result['inner_folds']}-fold grid")
    return "; ".join(parts)


def _is_on_folds(name: str, has: Collection[str]) -> bool:
    """Return whether an evaluator scores folds, where data has labels and perhaps groups."""
    if evaluators.fact(name, "protocol") or (name in evaluators and not takes(name, "folds")):
        return False
    return need_of(name, evaluators.fact(name, "rows").split()[0], has) == "labels"


def protocol(folds: int, inner_folds: int | None, benchmark: Benchmark | None) -> dict[str, Any]:
    """Return the protocol's entries for `result.json`: the numbers of folds, or the sizes of the benchmark's parts."""
    if benchmark is None:
        return {"folds": folds, "inner_folds": inner_folds}
    return {"split": {part: len(graphs) for part, graphs in benchmark.split.items()}}


def unit(metric: str) -> str:
    """Return the text to print after a value of `metric`: `%` for accuracy, else the metric's printed name."""
    return "%" if metric == "accuracy" else metric_name(metric)


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
