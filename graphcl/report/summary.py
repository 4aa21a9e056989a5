"""Summarise a run in text: environment, table of scores, evaluation protocol, and the card of its encoder."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import torch

from graphcl.datasets.dataset import Benchmark
from graphcl.evaluate import FoldScores, metric_name, paired_gain, summarise
from graphcl.evaluate.needs import is_by_copies, need_of, takes
from graphcl.evaluate.scores import interval_words
from graphcl.references.rows import row_labels
from graphcl.registry import evaluators

EDGES = np.linspace(-1, 1, 41)
"""Edges of the 40 bins of a run's histograms of cosines."""
PLUS_MINUS = "±: sample standard deviation, n - 1."
"""Meaning of ± below every table of scores."""
_FIGURES = 20
"""Largest number of further figures of an evaluator that are printed, as a benchmark may have 128 tasks."""


@functools.cache
def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("graphcl", "torch", "torch-geometric", "scikit-learn", "scipy", "numpy", "networkx", "ogb"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def environment(device: torch.device) -> dict[str, Any]:
    """Return the versions, the commit, the hardware and the command line of this process, for `result.json`."""
    return {
        "versions": {**_versions()},
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


@dataclass(frozen=True)
class ScoreTable:
    """The scores of one evaluator in `result.json`, which the printed table, the card and the report show.

    Attributes:
        evaluator: name of the evaluator.
        metric: metric of all scores.
        labels: row -> label, in the order of tables.
        rows: row -> score of each seed.
        best: name of the best row without training.
    """

    evaluator: str
    metric: str
    labels: Mapping[str, str]
    rows: Mapping[str, Sequence[FoldScores]]
    best: str

    def texts(self, row: str) -> tuple[str, str]:
        """Return the mean of a row and its sample standard deviation over seeds, `-` for a single seed."""
        summary = summarise(self.rows[row])
        return f"{summary.mean:.2f}", _spread(summary.std_seeds)

    def figures(self, row: str) -> dict[str, float]:
        """Return the further figures of a row that all seeds have, such as `effective_rank`: means over seeds."""
        seeds = [score.figures for score in self.rows.get(row, ())] or [{}]
        names = [name for name in seeds[0] if all(name in figures for figures in seeds)]
        return {name: sum(figures[name] for figures in seeds) / len(seeds) for name in names}

    def verdict(self) -> str:
        """Return a line on whether training beats the best row without it: a search with an interval of each.

        It does if the intervals do not overlap, which is stricter than a test of the difference at 5 %.
        """
        trained, other = self.figures("trained"), self.figures(self.best)
        wins = trained["mrr_low"] > other["mrr_high"]
        loses = trained["mrr_high"] < other["mrr_low"]
        what = "beats" if wins else "does worse than" if loses else "is not told apart from"
        return f"{self.evaluator}: training {what} the best row without training, {self.labels[self.best]}"


def score_tables(result: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> list[ScoreTable]:
    """Return the table of each evaluator in the content of `result.json`, of the rows in `labels`; default: of all."""
    tables = []
    for evaluator, scores in result.get("scores", {}).items():
        first = scores["per_seed"][0]
        names = {row: label for row, label in (labels or row_labels(first)).items() if row in first}
        rows = {row: [FoldScores.of(seed[row]) for seed in scores["per_seed"]] for row in names}
        tables.append(ScoreTable(evaluator, scores["metric"], names, rows, scores["best_reference"]))
    return tables


def score_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the lines of a run's table of scores and a line on the protocol; `result` is read from `result.json`."""
    seeds, steps = len(next(iter(result["scores"].values()))["per_seed"]), result["config"]["steps"]
    when = f"at epoch {result['epochs']}" if steps is None else f"after {steps} steps"
    if result["config"].get("best_epoch"):
        when = f"at the best of {result['epochs']} epochs by the validation part"
    when = when if result["epochs"] else "without training"
    how = f"{protocol_line(result)}; mean over {seeds} seed{'s' if seeds > 1 else ''} {when}."
    return [*table_lines(result), f"{how} {PLUS_MINUS}"]


def table_lines(result: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> list[str]:
    """Return the lines of the table of scores: for each evaluator, the rows, then the gains; see `score_tables`."""
    on_folds, lines, metric = "folds" in result, list[str](), None
    for table in score_tables(result, labels):
        name, by_copies = table.evaluator, is_by_copies(table.evaluator)
        if by_copies or table.metric != metric:
            last = f"{'effective rank':>16}" if by_copies else f"{'± folds':>10}" if on_folds else ""
            lines.append(f"{'':40}{metric_name(table.metric):>12}{'± seeds':>10}{last}")
        for row, label in table.labels.items():
            mean, spread = table.texts(row)
            std_folds = summarise(table.rows[row]).std_folds if on_folds else None
            last = "" if std_folds is None else f"{std_folds:10.2f}"
            last = f"{table.figures(row)['effective_rank']:16.1f}" if by_copies else last
            lines.append(f"{f'{name}, {label}':40}{mean:>12}{spread:>10}{last}")
        if by_copies:
            lines += filter(None, [evaluators.fact(name, "note")])
            continue
        metric, trained = table.metric, table.rows.get("trained", [])
        compared = dict.fromkeys(("untrained", table.best)) if trained else {}
        for row in compared:
            gain = paired_gain(trained, table.rows[row])
            label = f"{name}, gain over {table.labels[row]}"
            lines.append(f"{label:40}{gain.mean:+12.2f}{_spread(gain.std_seeds):>10}")
        means = table.figures("trained")
        interval = [means.pop(f"mrr_{key}") for key in ("low", "high", "units") if f"mrr_{key}" in means]
        backwards = [means.pop(f"mrr_back_{key}") for key in ("low", "high") if f"mrr_back_{key}" in means]
        lines += [f"{f'{name}, trained, {key}':40}{mean:12.2f}" for key, mean in [*means.items()][:_FIGURES]]
        if len(means) > _FIGURES:
            lines.append(f"{name}: {len(means) - _FIGURES} more figures are in result.json")
        if interval:
            low, high, units = interval
            over, note = interval_words(units)
            lines.append(f"{f'{name}, trained, 95 % over {over}':40}{low:12.2f} to {high:.2f}{note}")
        if backwards:
            lines.append(f"{f'{name}, trained, mrr_back, 95 %':40}{backwards[0]:12.2f} to {backwards[1]:.2f}")
        lines += [table.verdict()] if interval else []
    return lines


def card(result: Mapping[str, Any], graphs: str, encoder: str) -> str:
    """Return the text of `card.md`: what was trained on what, how it scores, what it is for and what it is not for.

    Args:
        result: content of `result.json`.
        graphs: description of the data set in one line.
        encoder: description of the encoder in one line.

    Reference: Mitchell et al., "Model Cards for Model Reporting", FAT* 2019 (arXiv 1810.03993).
    """
    config, tables = result["config"], []
    for table in score_tables(result):
        searched = [figures for figures in map(table.figures, table.rows) if "mrr_low" in figures]
        tables.append((table, "".join(interval_words(searched[0]["mrr_units"])) if searched else ""))
    positives = {"views": "two augmented views of each graph", "group": "two graphs of a group"}
    loss = [f"{key} {value}" for key, value in config["loss"].items() if key != "name" and value is not None]
    text = render(
        "card.md.jinja",
        result=result,
        config=config,
        graphs=graphs,
        encoder=encoder,
        tables=tables,
        metric_name=metric_name,
        protocol=protocol_line(result),
        plus_minus=PLUS_MINUS,
        positives=positives.get(config["positives"], f"the pairs in {config['positives']}"),
        views=" and ".join(dict.fromkeys(view["name"] for view in config["views"].values())),
        loss=config["loss"]["name"] + (f" ({', '.join(loss)})" if loss else ""),
    )
    return f"{text}\n"


def render(name: str, **values: Any) -> str:
    """Return the text of a template of this folder; a page escapes the `values`."""
    return _templates(name.endswith(".html.jinja")).get_template(name).render(**values)


@functools.cache  # it keeps compiled templates, which take most of the time of a short run's page
def _templates(autoescape: bool) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=autoescape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def protocol_line(result: Mapping[str, Any], split_chooses: str = "C") -> str:
    """Return the evaluation protocol in one line; the validation part selects `split_chooses`, such as `epoch`."""
    parts = []
    if "copies" in result:
        copies = result["copies"]
        used = "did not use" if copies["unused_in_training"] else "used too"
        drawn_by = f"{', '.join(copies['augmentations'])}, which training {used}"
        count, graphs = copies["copied"], copies["graphs"]
        source = f"all {graphs}" if count == graphs else f"{count} of {graphs}"
        among = f" among a sample of {graphs} of {copies['of']}" if "of" in copies else ""
        parts = [f"copies of {source} graphs by {drawn_by}, found by cosine{among}"]
    if "group_split" in result:
        train, valid, test = result["group_split"].values()
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
    has, special, chosen = {"labels"}, dict[str, None](), dict[str, None]()
    if "group_split" in result:
        has.add("groups")
    for name in result["scores"]:
        if evaluators.fact(name, "protocol"):
            special[evaluators.fact(name, "protocol")] = None
        elif name not in evaluators or takes(name, "folds"):
            by_labels = need_of(name, evaluators.fact(name, "rows"), has) == "labels"
            chosen |= dict.fromkeys([evaluators.fact(name, "chooses")] if by_labels else [])
    parts += special
    if chosen:
        how = f"{' and '.join(chosen)} by an inner {result['inner_folds']}-fold grid"
        parts.append(f"{result['folds']} stratified folds, {how}")
    return "; ".join(parts)


def protocol(folds: int, inner_folds: int | None, benchmark: Benchmark | None) -> dict[str, Any]:
    """Return the protocol's entries for `result.json`: the numbers of folds, or the sizes of the benchmark's parts."""
    if benchmark is None:
        return {"folds": folds, "inner_folds": inner_folds}
    return {"split": {part: len(graphs) for part, graphs in benchmark.split.items()}}


def unit(metric: str) -> str:
    """Return the text to print after a value of `metric`: `%` for accuracy, else the metric's printed name."""
    return "%" if metric == "accuracy" else metric_name(metric)


def _spread(deviation: float | None) -> str:
    return "-" if deviation is None else f"{deviation:.2f}"


@functools.cache  # every cell of a sweep calls it, and the commit of the loaded code does not change
def _commit() -> str | None:
    """Return the git commit of this package, plus `-dirty` if tracked files are modified; None outside a checkout."""
    tracked = ("ls-files", "--error-unmatch", Path(__file__).name)
    describe = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    try:
        for words in (tracked, describe):
            command = ["git", "-C", str(Path(__file__).parent), *words]
            done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    text = ""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return name[1].strip() if name else platform.processor()
