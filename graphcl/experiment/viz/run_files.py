"""The files of a run's folder, as its report wants them; others may have written into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.config.files import read_yaml
from graphcl.errors import InputError
from graphcl.system.files import MOST_METRICS, parse_json, read_arrays, read_json, read_text

MOST_DRAWN = 100
"""Measures, scores or stages: far more than any run has."""


@dataclass(frozen=True)
class Run:
    """What a run's folder holds; empty where a file is missing.

    Args:
        config: the settings.
        metrics: a mapping an epoch.
        result: scores, seconds, versions.
        embeddings: `h`, `seeds` and, of labelled graphs, `y`.
        moments: histograms and maps before and after training, of the first seed.
    """

    config: Mapping[str, Any]
    metrics: list[dict[str, Any]]
    result: Mapping[str, Any]
    embeddings: Mapping[str, np.ndarray]
    moments: Mapping[str, np.ndarray]


def read_run(folder: Path) -> Run:
    """The files of a run's folder.

    Raises:
        InputError: not the folder of a run, or a file in it cannot be read.
    """
    wanted = "give the folder of a run, such as runs/MUTAG-adnce-1, which holds a config.yaml"
    if not (folder / "config.yaml").is_file():
        sweep = "; a sweep is drawn by python -m graphcl.sweep" if (folder / "sweep.yaml").is_file() else ""
        raise InputError(f"{folder} is not the folder of a run: {wanted}{sweep}.")
    config = read_yaml(folder / "config.yaml")
    if lacking := [key for key in ("loss", "views") if key not in config]:  # such as that of a transfer
        raise InputError(f"{folder} is not the folder of a run (its config.yaml has no `{lacking[0]}`): {wanted}.")
    file = folder / "metrics.jsonl"
    try:
        lines = read_text(file, MOST_METRICS).splitlines() if file.exists() else []
        metrics = [parse_json(line, str(file)) for line in lines]
        file = folder / "result.json"
        result = read_json(file) if file.exists() else {}
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from None
    embeddings, moments = (
        read_arrays(folder / name) if (folder / name).exists() else {} for name in ("embeddings.npz", "report.npz")
    )
    _check_amounts(folder, metrics, result, embeddings)
    return Run(config, metrics, result, embeddings, moments)


def _check_amounts(folder: Path, metrics: Any, result: Any, embeddings: Mapping[str, np.ndarray]) -> None:
    """Refuse what a drawing would grow with, and no run has so much of: each takes a picture, or a line in a legend."""
    drawn = [result.get(key, {}) for key in ("scores", "seconds")] if isinstance(result, dict) else [None]
    if not all(isinstance(each, dict) for each in (*metrics, *drawn)):
        raise InputError(f"{folder} is damaged: metrics.jsonl and result.json must hold mappings.")
    measures = {key for line in metrics for key in line}
    counts = {"measures": len(measures), "scores or stages": max(len(each or ()) for each in drawn)}
    if found := [f"{count} {what}" for what, count in counts.items() if count > MOST_DRAWN]:
        raise InputError(f"{folder} is damaged: it tells of {' and '.join(found)}.")
    y = embeddings.get("y", np.zeros(0))
    if y.dtype.kind in "iu" and y.size and not 0 <= int(y.min()) <= int(y.max()) < len(y):
        raise InputError(f"{folder} is damaged: embeddings.npz has classes from {y.min()} to {y.max()}.")
