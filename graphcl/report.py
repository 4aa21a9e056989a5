"""The run folder and the lines on the screen."""

from __future__ import annotations

import csv
import functools
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphcl import native
from graphcl.config import Config, to_yaml
from graphcl.datasets.dataset import Benchmark
from graphcl.errors import InputError
from graphcl.evaluate import METRICS, FoldScores, paired_gain, summarise
from graphcl.files import write_text, write_whole
from graphcl.saved import EncoderDescription, Weights, save_encoder
from graphcl.train import Epoch


class RunFolder:
    """A new folder that keeps a run: `config.yaml`, `metrics.jsonl`, `metrics.csv`, `encoder.pt`, `embeddings.npz` and
    `result.json`.

    And `report.npz`, what `report.html` needs besides those.

    Each file appears whole or not at all, and what a finished seed gave is there before the next one starts.

    Args:
        config: the settings, written at once.

    Raises:
        InputError: the folder exists already, or cannot be made.
    """

    def __init__(self, config: Config) -> None:
        self.path = new_folder(config.out, _name(config))
        self._columns: list[str] = []
        self._weights: Weights = {}
        self._embeddings: dict[int, np.ndarray] = {}
        write_text(self.path / "config.yaml", to_yaml(config))

    def add_epoch(self, seed: int, epoch: Epoch) -> None:
        """Append a line to `metrics.jsonl` and to `metrics.csv`, whose columns are those of the run's first epoch."""
        row = {"seed": seed, "epoch": epoch.epoch, **epoch.figures()}
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        with (self.path / "metrics.csv").open("a", newline="") as file:
            writer = csv.DictWriter(file, self._columns or list(row), restval="", extrasaction="ignore")
            if not self._columns:
                self._columns = list(row)
                writer.writeheader()
            writer.writerow(row)

    def add_seed(
        self,
        seed: int,
        encoder: torch.nn.Module,
        description: EncoderDescription,
        h: torch.Tensor,
        y: torch.Tensor | None,
    ) -> None:
        """Keep a seed's encoder and embeddings.

        `encoder.pt` holds the encoders of all seeds so far, see `graphcl.load_encoder`; `embeddings.npz` holds
        `h [seeds, n, H]`, `seeds` and, where there are labels, `y [n]`.
        """
        self._weights[seed] = {key: value.cpu() for key, value in encoder.state_dict().items()}
        self._embeddings[seed] = h.numpy()
        arrays: dict[str, Any] = {"h": np.stack(list(self._embeddings.values())), "seeds": list(self._embeddings)}
        if y is not None:
            arrays["y"] = y.numpy()
        write_whole(self.path / "encoder.pt", lambda file: save_encoder(file, description, self._weights))
        write_whole(self.path / "embeddings.npz", lambda file: np.savez(file, **arrays))

    def add_moments(self, **moments: Mapping[str, np.ndarray]) -> None:
        """Keep histograms and maps as `MOMENT_NAME` in `report.npz`, see `graphcl.experiment.look`."""
        arrays: dict[str, Any] = {f"{at}_{name}": each for at, found in moments.items() for name, each in found.items()}
        write_whole(self.path / "report.npz", lambda file: np.savez_compressed(file, **arrays))

    def add_result(self, result: Mapping[str, Any]) -> None:
        """Write `result.json`, in place of that of fewer seeds."""
        write_text(self.path / "result.json", json.dumps(result, indent=2))


def _name(config: Config) -> str:
    return f"{Path(config.dataset).stem}-{config.loss['name']}"


def free_folder(out: str | None, name: str) -> Path:
    """The folder `out`, or the next free `runs/NAME-N`; not made yet.

    Raises:
        InputError: `out` exists already.
    """
    if out is not None:
        path = Path(out)
        if path.exists():
            raise InputError(f"{path} exists already, and nothing is ever overwritten; pass another folder with --out.")
        return path
    number = 1
    while (path := Path("runs") / f"{name}-{number}").exists():
        number += 1
    return path


def new_folder(out: str | None, name: str) -> Path:
    """`free_folder`, made.

    Raises:
        InputError: it exists already, or cannot be made.
    """
    path = free_folder(out, name)
    try:
        path.mkdir(parents=True)
    except FileExistsError:  # another run was faster
        path = free_folder(out, name)
        path.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path}: {error.strerror}; pass another with --out.") from None
    return path


def check_folder(config: Config) -> None:
    """Refuse an output folder that exists, before any work is done."""
    free_folder(config.out, _name(config))


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
