"""Run a diagnosis: score rows on the graphs as they are and under controls, with fewer graphs, and other settings."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphcl.config import Config
from graphcl.datasets.controls import CONTROLS, controlled
from graphcl.datasets.dataset import GraphDataset
from graphcl.diagnose.answers import AS_IS, NONE, Answers, answer, reads_attribute
from graphcl.diagnose.copies import Copies, count_copies
from graphcl.diagnose.kept import kept_scores
from graphcl.diagnose.scored import Scored, Seeds
from graphcl.errors import InputError
from graphcl.evaluate import Kernel
from graphcl.evaluate.needs import takes
from graphcl.experiment.copies import RowBatches
from graphcl.experiment.runtime import setup_runtime
from graphcl.experiment.scoring import score
from graphcl.experiment.trial import Trial, trained_by
from graphcl.references.rows import Inputs, has_form_for, is_scored_by, is_trained
from graphcl.registry import evaluators, references
from graphcl.tasks.task import make_task

ENCODERS = ("untrained", "calibrated", "trained")
"""Rows that are left out where graphs differ in size only."""
FRACTIONS = (0.125, 0.25, 0.5)
"""Fractions of the graphs, or of the training groups, of the curve."""
FACTORS = (0.5, 2.0)
"""Factors of the width and the temperature."""


@dataclass
class Diagnosis:
    """Results of a diagnosis.

    Attributes:
        dataset: the data set, after the draw of graphs.
        total: number of graphs before the draw.
        copies: which graphs are copies of each other.
        table: control -> row -> scores of the seeds; empty without labels and groups.
        curve: number of graphs that rows are computed from -> row -> scores.
        settings: changed setting of the trained row -> scores.
        answers: the answers; None without labels and groups.
        unchanged: controls that change nothing, or would make too many edges.
    """

    dataset: GraphDataset
    total: int
    copies: Copies
    table: dict[str, dict[str, Seeds]] = field(default_factory=dict)
    curve: dict[int, dict[str, Seeds]] = field(default_factory=dict)
    settings: dict[str, Seeds] = field(default_factory=dict)
    answers: Answers | None = None
    unchanged: tuple[str, ...] = ()


def diagnose(
    config: Config,
    dataset: GraphDataset,
    rows: Sequence[str],
    controls: Sequence[str] = tuple(CONTROLS),
    most: int = 1500,
    more: bool = True,
    folder: Path | None = None,
) -> Diagnosis:
    """Score the rows under all controls and return the answers.

    Args:
        config: settings of the trained row and of the evaluation; the first evaluator scores. Without one, copies are
            counted, and nothing is scored.
        dataset: the graphs.
        rows: rows to score, see `graphcl.references`; those without information are scored too.
        controls: controls to apply, keys of `graphcl.datasets.controls.CONTROLS`.
        most: largest number of graphs; of more that are scored by class, as many are drawn at random.
        more: whether to score fewer graphs, and other widths and temperatures, too.
        folder: folder that keeps finished scores, also those of an earlier call; None to keep none.
    """
    check_inputs(config, dataset, rows)
    rows, total, device = list(dict.fromkeys([*NONE, *rows])), len(dataset), setup_runtime(config)
    if not make_task(config, dataset).is_scored:
        return Diagnosis(dataset, total, count_copies(dataset))
    dataset = drawn(dataset, most) if _parts(config, dataset) is None else dataset
    found = Diagnosis(dataset, total, count_copies(dataset))
    found.unchanged = tuple(name for name in controls if controlled(name, dataset) is None)
    changed: dict[str, Callable[[int], Any]] = {
        name: functools.partial(controlled, name, dataset) for name in controls if name not in found.unchanged
    }
    changed = {AS_IS: lambda seed: dataset, **changed}
    subsets = list(_subsets(config, dataset)) if more else []
    settings = dict(_settings(config)) if more and "trained" in rows else {}
    with _bar(len(config.seeds) * (len(changed) + len(subsets) + len(settings))) as step:

        def scored(of: Config, name: str, make: Callable[[int], Any], names: Sequence[str]) -> dict[str, Seeds]:
            def compute(seed: int) -> dict[str, Scored]:
                return score_rows(of, make(seed), seed, names, device)

            by_row: dict[str, list[Scored]] = {}
            for seed in of.seeds:
                step(f"{name}, seed {seed}")
                for row, each in kept_scores(folder, name, seed, compute).items():
                    by_row.setdefault(row, []).append(each)
            return dict(by_row)

        for name, make in changed.items():
            used = [row for row in rows if name == AS_IS or not reads_attribute(row)]
            used = [row for row in used if name != "sizes only" or row not in ENCODERS]
            found.table[name] = scored(config, name, make, used)
        for count, subset in subsets:
            found.curve[count] = scored(config, f"{count} graphs", subset, rows)
        for name, other in settings.items():
            found.settings[name] = scored(other, name, changed[AS_IS], ["trained"])["trained"]
    parts = _parts(config, dataset)
    train, unit = (None, None) if parts is None else (parts["train"], _units(dataset))
    top = next(iter(found.table[AS_IS].values()))
    copied = np.array([found.copies.in_training(each.tested, train) for each in top])
    y = np.asarray(dataset.y).reshape(-1) if dataset.labelled and dataset.targets is None else None
    found.answers = answer(found.table, copied, unit, y)
    return found


def score_rows(
    config: Config, dataset: GraphDataset, seed: int, names: Sequence[str], device: torch.device
) -> dict[str, Scored]:
    """Return the scores of those of the rows `names` that fit, by the first evaluator."""
    evaluator = config.eval[0]
    kind = evaluators.fact(evaluator, "task")
    trial = Trial(make_task(config, dataset), seed, device)
    task, batches = trial.task, RowBatches(trial.task, trial.graphs, seed, device)
    calibrate = functools.partial(task.calibrated, trial.model, seed)
    parts = _parts(config, dataset)
    inputs = Inputs(task.dataset, batches, trial.model, calibrate, parts, config.max_degree, task.facts)
    has, found = {*inputs.has(), kind, "trained"}, {}
    for name in names:
        # in runs, these are rows of a search only, as kernels take long; here they are scored on folds too
        extra = {"search", "groups"} if name in ("bag", "wl", "wl_oa") else set[str]()
        needs = references.fact(name, "needs").split()
        if not (extra or is_scored_by(name, kind)) or not (has | extra).issuperset(needs):
            continue
        if is_trained(name) and inputs.trained is None:
            h = Trial(make_task(config, dataset), seed, device).run(rows=()).h
            other = functools.partial(trained_by, task=make_task(config, dataset), seed=seed, device=device)
            inputs = dataclasses.replace(inputs, trained=h, train_other=other)
        row: Any = references[name](inputs)
        if not has_form_for(evaluator, row):
            continue
        if isinstance(row, Kernel) and parts is None:  # an SVM is fitted for each setting
            row = dataclasses.replace(row, settings=row.settings[:: 2 if len(row.settings) > 2 else 1])
        tested: list[tuple[np.ndarray, np.ndarray]] = []

        def keep(rows: np.ndarray, values: np.ndarray, tested: Any = tested) -> None:
            tested.append((rows, values))

        scores = score(task, evaluator, row, seed, on_test=keep)
        found[name] = Scored(scores, tuple(rows for rows, _ in tested), tuple(values for _, values in tested))
    return found


def drawn(dataset: GraphDataset, most: int, seed: int = 0) -> GraphDataset:
    """Return at most about `most` graphs, drawn at random from each class; all if they lack classes or have pairs."""
    if len(dataset) <= most or not dataset.labelled or dataset.benchmark is not None or dataset.relation is not None:
        return dataset
    generator, kept = np.random.default_rng(seed), []
    y = np.asarray(dataset.y).reshape(-1)
    for value in np.unique(y):
        members = np.flatnonzero(y == value)
        kept.append(generator.permutation(members)[: max(2, round(most * len(members) / len(y)))])
    return dataset.copy(torch.from_numpy(np.sort(np.concatenate(kept))))


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


def _subsets(config: Config, dataset: GraphDataset) -> Iterator[tuple[int, Callable[[int], GraphDataset]]]:
    """Yield the numbers of graphs of the curve, each with the function from a seed to such a subset."""
    if dataset.labelled and dataset.groups is None and dataset.relation is None:
        for fraction in FRACTIONS:
            count = round(fraction * len(dataset))
            if count >= 50:
                yield count, functools.partial(drawn, dataset, count)


def _settings(config: Config) -> Iterator[tuple[str, Config]]:
    """Yield the settings with another width or temperature."""
    for part, key in (("encoder", "hidden_channels"), ("loss", "temperature")):
        spec = getattr(config, part)
        for factor in FACTORS if isinstance(spec.get(key), int | float) else ():
            value = type(spec[key])(spec[key] * factor)
            name = {"hidden_channels": "width"}.get(key, key)
            yield f"{name} {value:g}", config.model_copy(update={part: {**spec, key: value}})


def _units(dataset: GraphDataset) -> np.ndarray:
    """Return what stays together in a bootstrap: groups, and graphs without one alone."""
    group = dataset.components
    assert group is not None
    numbers = group.numpy()
    return np.where(numbers >= 0, numbers, numbers.max() + 1 + np.arange(len(numbers)))


def _parts(config: Config, dataset: GraphDataset) -> Mapping[str, np.ndarray] | None:
    """Return the parts of the split by group; None if the first evaluator scores folds."""
    task = make_task(config, dataset)
    return task.parts if task.need_of(config.eval[0]) == "groups" else None


@contextmanager
def _bar(total: int) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the step that starts, in a progress bar on a terminal."""
    from tqdm import tqdm

    form = "{n_fmt}/{total_fmt} {bar} {desc}, {elapsed}, {remaining} left"
    with tqdm(total=total, bar_format=form, disable=not sys.stderr.isatty(), leave=False, initial=-1) as bar:

        def step(text: str) -> None:
            bar.update()
            bar.set_description_str(text)

        yield step
