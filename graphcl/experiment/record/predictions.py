"""Keep the predictions for the test part of a split: `predictions.csv` in the folder of a run or a transfer."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from graphcl.datasets.dataset import GraphDataset
from graphcl.evaluate.metrics import task_names
from graphcl.evaluate.scores import NUMBERS
from graphcl.experiment.predict import with_target
from graphcl.system.files import MAX_METRICS, read_text, write_text

FILE = "predictions.csv"
Predicted = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Evaluator -> test rows, and the predictions `[rows, tasks]` for them, see `graphcl.evaluate.on_split.OnPredicted`."""


def write_predictions(
    folder: Path, seed: int, found: Predicted, dataset: GraphDataset, finished: Collection[int] = ()
) -> None:
    """Add the predictions of a seed to `predictions.csv`; rows of seeds that are not `finished` are replaced.

    The columns are `seed`, `eval`, `id` and, of each target, `TARGET` (the measured value, empty where it is missing),
    `TARGET_predicted` and, of classes with a probability, `TARGET_p_CLASS`, see `with_target`.
    """
    if not found:
        return
    path, rows = folder / FILE, list[list[str]]()
    if path.exists():
        kept = csv.reader(io.StringIO(read_text(path, MAX_METRICS), newline=""))
        rows = [row for row in kept if row[:1] == ["seed"] or (row[:1] and row[0] in set(map(str, finished)))]
    for name, (graphs, predicted) in found.items():
        columns = _columns(dataset, graphs, predicted)
        rows = rows or [["seed", "eval", *columns]]
        cells = zip(*([_cell(value) for value in column.tolist()] for column in columns.values()), strict=True)
        rows += [[str(seed), name, *row] for row in cells]
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    write_text(path, text.getvalue())


def _columns(dataset: GraphDataset, graphs: np.ndarray, predicted: np.ndarray) -> dict[str, np.ndarray]:
    benchmark = dataset.benchmark
    assert benchmark is not None
    columns, classes = {"id": dataset.ids[graphs]}, benchmark.classes if dataset.classes is None else dataset.classes
    names = np.array(np.asarray(classes).tolist(), object) if len(classes) else None
    for task, truth, values in zip(
        task_names(benchmark.num_tasks, benchmark.tasks), dataset.y[graphs].numpy().T, predicted.T, strict=True
    ):
        measured = truth if names is None else np.array([None if np.isnan(y) else names[int(y)] for y in truth], object)
        outputs, numbers = values, np.empty(0, int)
        if benchmark.eval_metric == "acc":
            numbers = np.unique(values.astype(int))
            outputs = values[:, None] == numbers
        elif benchmark.eval_metric not in NUMBERS:
            outputs, numbers = np.stack([1 - values, values], axis=1), np.arange(2)
        columns = with_target(columns, task, outputs, numbers, names, benchmark.eval_metric == "acc", measured)
    return columns


def _cell(value: object) -> str:
    """Return a value as the text of a cell; a missing one is empty."""
    if isinstance(value, float):
        return "" if value != value else f"{value:.7g}"
    return "" if value is None else str(value)
