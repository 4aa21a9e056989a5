"""Read the files of a run folder, for its report."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.config.files import read_yaml
from graphcl.errors import InputError
from graphcl.system.arrays import read_arrays
from graphcl.system.files import MAX_METRICS, parse_json, read_json, read_text

EDGES = np.linspace(-1, 1, 41)
"""Edges of the 40 histogram bins for cosines."""


@dataclass(frozen=True)
class Run:
    """The content of the files of a run, or of a transfer, whose settings have a `mode`.

    If a file is missing, its attribute is empty. `snapshots` maps `before` and `after` to arrays of `report_arrays`;
    `predictions` are the rows of `predictions.csv`, and `left_out` the number of rows of `invalid.csv`.
    """

    config: Mapping[str, Any]
    metrics: list[dict[str, Any]]
    result: Mapping[str, Any]
    embeddings: Mapping[str, np.ndarray]
    snapshots: Mapping[str, Mapping[str, np.ndarray]]
    predictions: Sequence[Mapping[str, str]] = ()
    left_out: int = 0


def read_run(folder: Path) -> Run:
    """Read and return the content of a run folder.

    Raises:
        InputError: `folder` is not a run folder, or a file in it cannot be read.
    """
    wanted = "pass one with a config.yaml, such as runs/MUTAG-adnce-1"
    if not (folder / "config.yaml").is_file():
        sweep = "; use graphcl sweep for a sweep" if (folder / "sweep.yaml").is_file() else ""
        raise InputError(f"{folder} is not a run folder; {wanted}{sweep}.")
    config = read_yaml(folder / "config.yaml")
    wanted_keys = ("encoder",) if config.get("mode") in ("probe", "finetune") else ("loss", "views")
    if missing := [key for key in wanted_keys if key not in config]:
        raise InputError(f"{folder} is not a run folder, its config.yaml has no `{missing[0]}`; {wanted}.")
    lines, result, embeddings, arrays = (
        folder / name for name in ("metrics.jsonl", "result.json", "embeddings.npz", "report.npz")
    )
    snapshots: dict[str, dict[str, np.ndarray]] = {}
    try:
        text = read_text(lines, MAX_METRICS) if lines.exists() else ""
        for key, values in (read_arrays(arrays) if arrays.exists() else {}).items():
            when, _, name = key.partition("_")
            snapshots.setdefault(when, {})[name] = values
        return Run(
            config,
            [parse_json(line, str(lines)) for line in text.splitlines()],
            read_json(result) if result.exists() else {},
            read_arrays(embeddings) if embeddings.exists() else {},
            snapshots,
            _table(folder / "predictions.csv"),
            len(_table(folder / "invalid.csv")),
        )
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}.") from None


def _table(file: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file; none without the file."""
    if not file.exists():
        return []
    return list(csv.DictReader(io.StringIO(read_text(file, MAX_METRICS), newline="")))
