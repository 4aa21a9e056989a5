"""Write what a seed of a run or a transfer leaves besides its scores: encoder, embeddings and test predictions."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from graphcl.arguments import Role
from graphcl.datasets.dataset import GraphDataset
from graphcl.evaluate.on_split import PARTS, task_names
from graphcl.evaluate.scores import NUMBERS
from graphcl.models.contrastive import Embeddings, arrays_of
from graphcl.models.saved import EncoderDescription, Weights, read_saved, save_encoder
from graphcl.system.arrays import id_arrays, read_arrays
from graphcl.system.files import MAX_METRICS, read_text, write_text, write_whole

EMBEDDINGS = "embeddings.npz"
"""File of `h [seeds, n, H]`, `seeds`, `y`, ids and `label_arrays`; of other `Embeddings` their `arrays`."""
OUTPUTS = "outputs.npz"
"""File of fine-tuned output layers: `weight [seeds, outputs, H]`, `bias [seeds, outputs]`, `seeds` and others."""
PREDICTIONS = "predictions.csv"
Predicted = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Evaluator -> test rows, and the predictions `[rows, tasks]` for them, see `graphcl.evaluate.on_split.OnPredicted`."""


def add_encoder(
    folder: Path, seed: int, finished: Collection[int], description: EncoderDescription, encoders: Sequence[nn.Module]
) -> None:
    """Add the weights of a seed to `encoder.pt`, which keeps those of the `finished` seeds; see `graphcl.load_encoder`.

    `encoders` is the encoder, and the encoder of targets if `description.target` describes one.
    """
    roles: tuple[Role, ...] = ("query", "target")
    weights: list[Weights] = []
    for role, encoder in zip(roles, encoders, strict=False):
        before = read_saved(folder, role)[1] if finished else {}
        kept = {number: state for number, state in before.items() if number in finished}
        weights.append(kept | {seed: encoder.state_dict()})
    save_encoder(folder / "encoder.pt", description, *weights)


def add_rows(
    folder: Path, seed: int, finished: Collection[int], h: Tensor | Embeddings, y: Tensor | None, dataset: GraphDataset
) -> None:
    """Add the embeddings `h [n, H]` of a seed to `embeddings.npz`, which keeps those of the `finished` seeds."""
    shared = id_arrays(dataset.ids) | (label_arrays(dataset) if dataset.rows == "graphs" else {})
    if y is not None:
        shared["y"] = y.numpy()
    arrays = arrays_of(h)
    of_seed = {"h": arrays.pop("h")}  # seeds differ in `h` only
    _add(folder / EMBEDDINGS, seed, finished, of_seed, shared | arrays)


def add_outputs(
    folder: Path, seed: int, finished: Collection[int], layer: Mapping[str, Any], dataset: GraphDataset
) -> None:
    """Add a fine-tuned output layer to `outputs.npz`, which keeps those of the `finished` seeds.

    `layer` holds `weight`, `bias`, and the numbers of `graphs` and `epochs` that the model was fine-tuned on.
    """
    _add(folder / OUTPUTS, seed, finished, layer, label_arrays(dataset))


def _add(
    path: Path, seed: int, finished: Collection[int], arrays: Mapping[str, Any], shared: Mapping[str, np.ndarray]
) -> None:
    before = read_arrays(path) if finished else {"seeds": np.empty(0, int)}
    places = {number: place for place, number in enumerate(before["seeds"].tolist()) if number in finished}
    joined: dict[str, Any] = {
        name: np.stack([*(before[name][place] for place in places.values()), values])
        if places
        else np.asarray(values)[None]  # without a copy
        for name, values in arrays.items()
    }
    joined |= {**shared, "seeds": [*places, seed]}
    write_whole(path, lambda file: np.savez(file, **joined))


def label_arrays(dataset: GraphDataset) -> dict[str, np.ndarray]:
    """Return what `graphcl.experiment.predict` needs of the labels of a run.

    `classes` are the class values that `y` holds indices into. Of a split, `part [n]` is 0, 1 or 2 for a graph in the
    training, validation or test part, else -1, and `tasks` are the names of the targets.
    """
    if (benchmark := dataset.benchmark) is None:
        return {} if dataset.classes is None else {"classes": np.array(dataset.classes.tolist())}
    part = np.full(len(dataset), -1, np.int8)
    for number, name in enumerate(PARTS):
        part[np.asarray(benchmark.split[name])] = number
    arrays = {"part": part, "tasks": np.array(task_names(benchmark.num_tasks, benchmark.tasks))}
    return {**arrays, "classes": np.array(benchmark.classes)} if benchmark.classes else arrays


def write_predictions(
    folder: Path, seed: int, predicted: Predicted, dataset: GraphDataset, finished: Collection[int] = ()
) -> None:
    """Add the predictions of a seed to `predictions.csv`; rows of seeds that are not `finished` are replaced.

    The columns are `seed`, `eval`, `id` and, of each target, `TARGET` (the measured value, empty where it is missing),
    `TARGET_predicted` and, of classes with a probability, `TARGET_p_CLASS`, see `with_target`.
    """
    if not predicted:
        return
    path, rows = folder / PREDICTIONS, list[list[str]]()
    if path.exists():
        before = csv.reader(io.StringIO(read_text(path, MAX_METRICS), newline=""))
        rows = [row for row in before if row[:1] == ["seed"] or (row[:1] and row[0] in set(map(str, finished)))]
    for name, (graphs, values) in predicted.items():
        columns = _columns(dataset, graphs, values)
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


def with_target(
    columns: Mapping[str, np.ndarray], task: str, outputs: np.ndarray, classes: np.ndarray, names: np.ndarray | None,
    certain: bool = False, measured: np.ndarray | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return `columns` and those of a target: `TASK`, numbers or classes, and `TASK_p_CLASS` unless they are `certain`.

    With the values `measured`, these are `TASK`, and the predicted ones `TASK_predicted`. The target gets `_` at its
    end if one of these names is taken, or is `id`, `seed` or `eval`.

    Args:
        columns: columns so far.
        task: name of the target.
        outputs: numbers `[n]`, or a probability for each class `[n, C]`.
        classes: numbers of the classes `[C]`; empty for numbers.
        names: class values that the numbers 0, 1, ... stand for; None: the numbers themselves.
        certain: whether outputs are no probabilities.
        measured: values of the target `[n]`.
    """
    values = classes if names is None else names[classes] if len(classes) else classes
    shown = [] if certain else [1] if len(values) == 2 else range(len(values))
    predicted = values[outputs.argmax(1)] if len(classes) else outputs
    while True:
        new = {task: predicted} if measured is None else {task: measured, f"{task}_predicted": predicted}
        new |= {f"{task}_p_{values[i]}": outputs[:, i] for i in shown}
        if not new.keys() & {*columns, "id", "seed", "eval"}:
            return {**columns, **new}
        task += "_"
