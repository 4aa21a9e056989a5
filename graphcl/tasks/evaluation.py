"""Find out how the rows of a task are scored: the parts and places of its graphs, evaluators that fit, folds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from graphcl.config.resolve import warn_of_unused
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.relation import GroupNumbers
from graphcl.errors import InputError
from graphcl.evaluate import usable_folds
from graphcl.evaluate.needs import is_by_copies, takes, usual
from graphcl.evaluate.on_split import PARTS, check_groups_apart, check_metric, group_split
from graphcl.registry import encoders, evaluators

if TYPE_CHECKING:
    from graphcl.tasks.task import Task

_ON_FOLDS = ("folds", "inner_folds", "scale")
"""Settings of evaluators that score by labels on folds."""
_PART_NAMES = {"val": "valid", "validation": "valid", **{part: part for part in PARTS}}


def with_usable_evaluation(task: Task, copies: bool = False) -> Task:
    """Return the task with at most as many folds as the smallest class has graphs, with a warning.

    `copies` is whether augmented copies can be drawn, for evaluators that need them.

    Raises:
        InputError: an evaluator does not fit the data set.
    """
    config, dataset = task.config, task.dataset
    for name in config.eval:
        if is_by_copies(name) and not (copies and task.rows == "graphs"):
            raise InputError(f"`eval` {name} scores whole graphs in graphcl run only; drop it.")
    if not config.eval or not (dataset.scored or task.offers - {"copies"}):
        return task
    needs = {name: task.need_of(name) for name in config.eval}
    for name in (name for name, need in needs.items() if need is None):
        why, fitting = task.refusal(name)
        raise InputError(f"`eval` {name} does not fit {dataset.name}, which {why}; pass --eval {usual(fitting)}.")
    _check_forms(task)
    if "groups" in needs.values():
        task.places("evaluation.within")  # raises if the graphs lack the attribute
    if "targets" in needs.values() and dataset.benchmark is not None:
        check_metric(dataset.benchmark.eval_metric, dataset.y, dataset.benchmark.split)
    facts = {
        setting: any(need == "labels" and takes(name, setting) for name, need in needs.items()) for setting in _ON_FOLDS
    }
    alone = all(map(is_by_copies, config.eval)) and "copies" in task.offers
    warn_of_unused(config, {**facts, "place": "groups" in needs.values(), "sample": alone})
    if not facts["folds"]:
        return task
    folds, inner = usable_folds(dataset.y, config.evaluation.folds, config.evaluation.inner_folds)
    evaluation = config.evaluation.model_copy(update={"folds": folds, "inner_folds": inner})
    return task.with_settings(config.model_copy(update={"evaluation": evaluation}))


def _check_forms(task: Task) -> None:
    """Raise InputError if the encoder's rows are not dense, and an evaluator does not score their form."""
    encoder = task.config.encoder["name"]
    form = encoders.fact(encoder, "form")
    if form == "dense":
        return
    if task.config.evaluation.scale:
        raise InputError(f"`evaluation.scale` centres columns, but rows of encoder {encoder} are {form}; leave it out.")
    fitting = [name for name in evaluators if form in evaluators.fact(name, "forms").split() and task.need_of(name)]
    for name in task.config.eval:
        if form not in evaluators.fact(name, "forms").split():
            other = f"pass --eval {' or '.join(fitting)}" if fitting else "no evaluator fits both; use graphcl embed"
            raise InputError(f"`eval` {name} needs dense rows, but those of encoder {encoder} are {form}; {other}.")


def grouped_parts(dataset: GraphDataset) -> dict[str, np.ndarray] | None:
    """Return the rows of the parts `train`, `valid` and `test` of a data set with groups or pairs; None without both.

    Connected components of pairs count as groups. Rows are the graphs, then those of `dataset.targets`.

    The parts are those of the graph attribute `part` (train, valid or test; or 0, 1 or 2) if the graphs have it, else
    those of the benchmark, else random ones, see `graphcl.evaluate.on_split.group_split`. They are the same for every
    run and seed. No group is on two parts, and where the graphs have the attribute `project`, no project.

    Raises:
        InputError: a `part` is unknown or has no two graphs of a group, a group or project is on two parts, or there
            are too few groups.
    """
    groups = dataset.components
    if groups is None:
        return None
    part, project = attribute(dataset, "part"), attribute(dataset, "project")
    projects = None if project is None else GroupNumbers()(project, dataset.name).numpy()
    if part is not None:
        two = dataset.targets is not None  # whose rows without a pair are in no part
        names = [None if two and value is None else _part(value, graph) for graph, value in enumerate(part)]
        parts = {name: np.flatnonzero(np.array(names) == name) for name in PARTS}
        if empty := [name for name, rows in parts.items() if not len(rows)]:
            raise InputError(
                f"no graph of {dataset.name} has the `part` {empty[0]}; name train, valid and test graphs."
            )
    elif dataset.benchmark is not None:
        parts = {name: rows.numpy() for name, rows in dataset.benchmark.split.items()}
    else:
        parts = group_split(groups, projects)
    check_groups_apart(parts, groups)
    for name, rows in parts.items():
        members = groups.numpy()[rows]
        if not (np.unique(members[members >= 0], return_counts=True)[1] > 1).any():
            problem = f"the {name} part of the split has {len(rows)} graphs, but no two of a group or pair"
            raise InputError(f"{dataset.name}: {problem}; list more pairs, or name the parts in the attribute `part`.")
    if projects is not None:
        check_groups_apart(parts, projects, "project")
    return parts


def split_column(dataset: GraphDataset) -> str:
    """Return what decides `grouped_parts`: `part`, `benchmark`, `project` or `group`."""
    if _attribute(dataset, "part") is not None:
        return "part"
    if dataset.benchmark is not None:
        return "benchmark"
    return "group" if _attribute(dataset, "project") is None else "project"


def places(dataset: GraphDataset, name: str | None, setting: str) -> Tensor | None:
    """Return the number of each row's value of the attribute `name`, -1 for none; None if `name` is None.

    Raises:
        InputError: the graphs lack the attribute, which `setting` names.
    """
    if name is None:
        return None
    if (values := attribute(dataset, name)) is None:
        raise InputError(f"`{setting}` {name}: the graphs of {dataset.name} have no such attribute; set it in each.")
    return GroupNumbers()(values, dataset.name)


def attribute(dataset: GraphDataset, name: str) -> list[Any] | None:
    """Return an attribute with one value for each row; None if the graphs lack it.

    Where one side of pairs lacks it, a row has the value of the first row that it is paired with, or None.
    """
    columns = [_attribute(side, name) for side in dataset.sides]
    if all(side is None for side in columns):
        return None
    rows = [
        value for side, values in zip(dataset.sides, columns, strict=True) for value in values or [None] * len(side)
    ]
    if None in columns and dataset.relation is not None:
        nodes = dataset.relation.nodes.tolist()
        for one, two in zip(*(nodes if columns[0] is None else nodes[::-1]), strict=True):
            rows[one] = rows[two] if rows[one] is None else rows[one]
    return rows


def _attribute(dataset: GraphDataset, name: str) -> list[Any] | None:
    """Return an attribute with one value for each graph, or None."""
    values = dataset._data.get(name)
    if isinstance(values, Tensor):
        values = values.flatten().tolist()
    if not isinstance(values, list) or len(values) != (dataset.slices or {})["edge_index"].numel() - 1:
        return None
    return values if dataset._indices is None else [values[i] for i in dataset.indices()]


def _part(value: object, graph: int) -> str:
    """Return train, valid or test for the value of a graph's attribute `part`."""
    name = PARTS[value] if isinstance(value, int) and 0 <= value < 3 else _PART_NAMES.get(str(value))
    if name is None:
        raise InputError(f"`part` of graph {graph} must be train, valid or test, or 0, 1 or 2, got {value!r}.")
    return name
