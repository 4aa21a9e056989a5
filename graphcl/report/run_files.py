"""Read the files of a run folder, for its report."""

from __future__ import annotations

from collections.abc import Mapping
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
    """The content of `config.yaml`, `metrics.jsonl`, `result.json`, `embeddings.npz` and `report.npz`.

    If a file is missing, its attribute is empty. `snapshots` maps `before` and `after` to arrays of `report_arrays`.
    """

    config: Mapping[str, Any]
    metrics: list[dict[str, Any]]
    result: Mapping[str, Any]
    embeddings: Mapping[str, np.ndarray]
    snapshots: Mapping[str, Mapping[str, np.ndarray]]


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
    # the folder of a transfer has a config.yaml too, but without these settings
    if missing := [key for key in ("loss", "views") if key not in config]:
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
        )
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}.") from None
