"""Run a diagnosis: score rows on the graphs as they are and under controls."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphcl.config import Config
from graphcl.datasets.dataset import GraphDataset
from graphcl.errors import InputError
from graphcl.evaluate import FoldScores, Kernel
from graphcl.evaluate.needs import takes
from graphcl.experiment.runtime import setup_runtime
from graphcl.experiment.scoring import RowBatches, score
from graphcl.experiment.trial import Trial, trained_by
from graphcl.extensions.diagnosis.answers import AS_IS, NONE, Answers, Scored, Seeds, answer, reads_attribute
from graphcl.extensions.diagnosis.controls import CONTROLS, controlled
from graphcl.graphs.wl import graph_numbers, numbered
from graphcl.references.rows import Inputs, compute_rows, has_form_for, is_trained
from graphcl.references.wl import first_colours
from graphcl.registry import evaluators, references
from graphcl.system.arrays import read_torch_file, write_torch_file
from graphcl.system.files import digest
from graphcl.tasks.task import Task, make_task

ENCODERS = ("untrained", "calibrated", "trained")
"""Rows that are left out where graphs differ in size only."""
SEARCH_ROWS = ("bag", "wl", "wl_oa")
"""Rows that runs score by groups only, as kernels take long; here they are scored on folds too."""
DEPTH = 10
"""Depth of the colours by which graphs are compared; features and edges, not attributes of edges."""


@dataclass(frozen=True)
class Copies:
    """Numbers `[n]` that graphs share which the WL test does not tell apart.

    Attributes:
        number: number of each graph.
        ceiling: largest accuracy in percent of any function that is equal on copies; None without classes.
        conflicting: fraction of the graphs that have a copy of another class.
    """

    number: np.ndarray
    ceiling: float | None = None
    conflicting: float = 0.0

    @property
    def repeated(self) -> float:
        """Fraction of the graphs that have a copy."""
        return float(np.mean(np.bincount(self.number)[self.number] > 1))

    def in_training(self, tested: tuple[np.ndarray, ...], train: np.ndarray | None = None) -> np.ndarray:
        """Return a mask `[n]` of the test graphs with a copy among the training graphs.

        The training graphs of a fold are those of all others, or `train`.
        """
        mask, size = np.zeros(len(self.number), bool), self.number.max() + 1
        for graphs in tested:
            others = np.delete(self.number, graphs) if train is None else self.number[train]
            mask[graphs] = np.bincount(others, minlength=size)[self.number[graphs]] > 0
        return mask


def count_copies(dataset: GraphDataset) -> Copies:
    """Return which graphs of a data set, and of its targets, are copies of each other; classes without targets only."""
    labels, edge_index, graph = first_colours(dataset, torch.arange(dataset.num_rows))
    colours, count = labels, 0
    for colours in numbered(labels, edge_index, DEPTH):
        if colours.max() + 1 == count:
            break
        count = colours.max() + 1
    number = graph_numbers(colours, graph)
    y = _classes(dataset)
    if y is None:
        return Copies(number)
    table = np.zeros((number.max() + 1, dataset.num_classes), np.int64)
    np.add.at(table, (number, y), 1)
    conflicting = table[(table > 0).sum(1) > 1].sum() / len(number)
    return Copies(number, 100 * float(table.max(1).sum() / len(number)), float(conflicting))


@dataclass
class Diagnosis:
    """Results of a diagnosis.

    Attributes:
        dataset: the data set, after the draw of graphs.
        total: number of graphs before the draw.
        copies: which graphs are copies of each other.
        table: control -> row -> scores of the seeds; empty without labels and groups.
        answers: the answers; None without labels and groups.
        unchanged: controls that change nothing.
    """

    dataset: GraphDataset
    total: int
    copies: Copies
    table: dict[str, dict[str, Seeds]] = field(default_factory=dict)
    answers: Answers | None = None
    unchanged: tuple[str, ...] = ()


def diagnose(
    config: Config,
    dataset: GraphDataset,
    rows: Sequence[str],
    controls: Sequence[str] = tuple(CONTROLS),
    most: int = 1500,
    folder: Path | None = None,
) -> Diagnosis:
    """Score the rows under all controls and return the answers.

    Args:
        config: settings of the trained row and of the evaluation; the first evaluator scores. Without one, copies are
            counted, and nothing is scored.
        dataset: the graphs.
        rows: rows to score, see `graphcl.references`; those without information are scored too.
        controls: controls to apply, keys of `graphcl.extensions.diagnosis.controls.CONTROLS`.
        most: largest number of graphs; of more that are scored by class, as many are drawn at random.
        folder: folder that keeps finished scores, also those of an earlier call; None to keep none.
    """
    check_inputs(config, dataset, rows)
    rows, total, device = list(dict.fromkeys([*NONE, *rows])), len(dataset), setup_runtime(config)
    task = make_task(config, dataset)
    if not task.is_scored:
        return Diagnosis(dataset, total, count_copies(dataset))
    dataset = drawn(dataset, most) if _parts(task) is None else dataset
    diagnosis = Diagnosis(dataset, total, count_copies(dataset))
    diagnosis.unchanged = tuple(name for name in controls if controlled(name, dataset) is None)
    changed = [name for name in controls if name not in diagnosis.unchanged]
    diagnosis.table = _table(config, dataset, changed, rows, device, folder)
    parts = _parts(make_task(config, dataset))
    train, unit = (None, None) if parts is None else (parts["train"], _units(dataset))
    first_row = next(iter(diagnosis.table[AS_IS].values()))
    copied = np.array([diagnosis.copies.in_training(scored.tested, train) for scored in first_row])
    diagnosis.answers = answer(diagnosis.table, copied, unit, _classes(dataset))
    return diagnosis


def _table(
    config: Config,
    dataset: GraphDataset,
    controls: Sequence[str],
    rows: Sequence[str],
    device: torch.device,
    folder: Path | None,
) -> dict[str, dict[str, Seeds]]:
    """Return control -> row -> scores of the seeds, with a progress bar; finished scores are kept in `folder`."""
    from tqdm import tqdm

    results: dict[str, dict[str, list[Scored]]] = {name: {} for name in (AS_IS, *controls)}
    form = "{n_fmt}/{total_fmt} {bar} {desc}, {elapsed}, {remaining} left"
    hidden, total = not sys.stderr.isatty(), len(results) * len(config.seeds)
    with tqdm(total=total, bar_format=form, disable=hidden, leave=False, initial=-1) as bar:
        for name, seed in itertools.product(results, config.seeds):
            bar.update()
            bar.set_description_str(f"{name}, seed {seed}")
            file = None if folder is None else folder / f"{digest([name, seed])}.pt"
            if file is not None and file.exists():
                scores = _read_scores(file)
            else:
                graphs: Any = dataset if name == AS_IS else controlled(name, dataset, seed)
                scores = score_rows(make_task(config, graphs), seed, _changed_by(name, rows), device)
                if file is not None:
                    _write_scores(file, scores)
            for row, scored in scores.items():
                results[name].setdefault(row, []).append(scored)
    return {name: dict(of_rows) for name, of_rows in results.items()}


def _changed_by(control: str, rows: Sequence[str]) -> list[str]:
    """Return the rows that a control can change."""
    left_out = ENCODERS if control == "sizes only" else ()
    return [row for row in rows if control == AS_IS or (row not in left_out and not reads_attribute(row))]


def _write_scores(file: Path, scores: Mapping[str, Scored]) -> None:
    arrays = {row: [[*map(torch.from_numpy, part)] for part in (s.tested, s.values)] for row, s in scores.items()}
    write_torch_file(file, {row: [json.dumps(vars(s.score)), *arrays[row]] for row, s in scores.items()})


def _read_scores(file: Path) -> dict[str, Scored]:
    rows = read_torch_file(file, "the scores of a diagnosis are plain numbers")
    return {
        row: Scored(FoldScores.of(json.loads(score)), *(tuple(values.numpy() for values in part) for part in parts))
        for row, (score, *parts) in rows.items()
    }


def score_rows(task: Task, seed: int, names: Sequence[str], device: torch.device) -> dict[str, Scored]:
    """Return the scores of those of the rows `names` that fit, by the first evaluator."""
    evaluator, parts = task.config.eval[0], _parts(task)
    trial = Trial(task, seed, device)
    task, model = trial.task, trial.model
    batches = RowBatches(task, trial.graphs, seed, device)
    calibrate = functools.partial(task.calibrated, model, seed)
    inputs = Inputs(task.dataset, batches, model, calibrate, parts, task.config.max_degree, task.facts)
    kind, trained = evaluators.fact(evaluator, "task"), set(filter(is_trained, names))
    on_folds = {*names}.intersection(SEARCH_ROWS)
    rows = compute_rows(inputs, {*names} - trained - on_folds, {kind})
    rows |= compute_rows(inputs, on_folds, {kind, "search", "groups"})
    if trained:
        other = functools.partial(trained_by, task=task, seed=seed, device=device)
        inputs = dataclasses.replace(inputs, trained=trial.run(rows=()).h, train_other=other)
        rows |= compute_rows(inputs, trained, {kind})
    scores = {}
    for name in names:
        row: Any = rows.get(name)
        if row is None or not has_form_for(evaluator, row):
            continue
        if isinstance(row, Kernel) and parts is None:  # an SVM is fitted for each setting
            row = dataclasses.replace(row, settings=row.settings[:: 2 if len(row.settings) > 2 else 1])
        tested, values = list[np.ndarray](), list[np.ndarray]()

        def keep(graphs: np.ndarray, of_fold: np.ndarray, tested: Any = tested, values: Any = values) -> None:
            tested.append(graphs)
            values.append(of_fold)

        result = score(task, evaluator, row, seed, on_test=keep)
        scores[name] = Scored(result, tuple(tested), tuple(values))
    return scores


def drawn(dataset: GraphDataset, most: int, seed: int = 0) -> GraphDataset:
    """Return at most about `most` graphs, drawn at random from each class; all if they lack classes or have pairs."""
    if len(dataset) <= most or not dataset.labelled or dataset.benchmark is not None or dataset.relation is not None:
        return dataset
    generator, chosen = np.random.default_rng(seed), []
    y = np.asarray(dataset.y).reshape(-1)
    for value in np.unique(y):
        members = np.flatnonzero(y == value)
        chosen.append(generator.permutation(members)[: max(2, round(most * len(members) / len(y)))])
    return dataset.copy(torch.from_numpy(np.sort(np.concatenate(chosen))))


def check_inputs(config: Config, dataset: GraphDataset, rows: Sequence[str]) -> None:
    """Raise InputError if a row is unknown, or if the graphs, or how they are scored, cannot be diagnosed."""
    for name in rows:
        _ = references[name]  # raises if it is unknown
    if dataset.rows != "graphs":
        raise InputError(f"diagnose takes whole graphs, but {dataset.name} is one graph with labelled nodes.")
    if config.eval and dataset.benchmark is not None:
        raise InputError(f"diagnose scores on folds or by groups, but {dataset.name} has a split of its own; drop it.")
    if config.eval and not takes(config.eval[0], "on_test"):
        fitting = " or ".join(name for name in evaluators if takes(name, "on_test"))
        raise InputError(
            f"diagnose needs the value of every test graph, which `eval` {config.eval[0]} does not give; pass --eval "
            f"{fitting}."
        )


def _classes(dataset: GraphDataset) -> np.ndarray | None:
    """Return the class of each graph `[n]`; None without classes, or if the graphs are searched for among targets."""
    return np.asarray(dataset.y).reshape(-1) if dataset.labelled and dataset.targets is None else None


def _units(dataset: GraphDataset) -> np.ndarray:
    """Return what stays together in a bootstrap: groups, and graphs without one alone."""
    group = dataset.components
    assert group is not None
    numbers = group.numpy()
    return np.where(numbers >= 0, numbers, numbers.max() + 1 + np.arange(len(numbers)))


def _parts(task: Task) -> Mapping[str, np.ndarray] | None:
    """Return the parts of the split by group; None if the first evaluator scores folds."""
    return task.parts if task.need_of(task.config.eval[0]) == "groups" else None
