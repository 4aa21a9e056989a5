"""Keep the scores of an unfinished diagnosis, one file for each control and seed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch

from graphcl.diagnose.scored import Scored
from graphcl.evaluate import FoldScores
from graphcl.system.arrays import read_torch_file, write_torch_file
from graphcl.system.files import digest


def kept_scores(
    folder: Path | None, name: str, seed: int, compute: Callable[[int], dict[str, Scored]]
) -> dict[str, Scored]:
    """Return the scores of the rows under a control by a seed: from `folder`, or by `compute`, then kept there."""
    if folder is None:
        return compute(seed)
    file = folder / f"{digest([name, seed])}.pt"
    if file.exists():
        rows = read_torch_file(file, "the scores of a diagnosis are plain numbers")
        return {
            row: Scored(FoldScores.of(json.loads(score)), *(tuple(each.numpy() for each in part) for part in parts))
            for row, (score, *parts) in rows.items()
        }
    scores = compute(seed)
    arrays = {row: [[*map(torch.from_numpy, each)] for each in (s.tested, s.values)] for row, s in scores.items()}
    write_torch_file(file, {row: [json.dumps(vars(s.score)), *arrays[row]] for row, s in scores.items()})
    return scores
