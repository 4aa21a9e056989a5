"""Split a data set into training, validation and test parts: by fold, by group, or with few labels."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.config import Config
from graphcl.datasets.dataset import Benchmark, GraphDataset
from graphcl.datasets.groups import GroupNumbers
from graphcl.errors import InputError
from graphcl.evaluate.folds import outer_folds
from graphcl.evaluate.needs import need_of
from graphcl.evaluate.on_split import PARTS, check_groups_apart, group_split
from graphcl.models.contrastive import Role

_PART_NAMES = {"val": "valid", "validation": "valid", **{part: part for part in PARTS}}


def fold_splits(dataset: GraphDataset, seed: int, folds: int = 10) -> Iterator[GraphDataset]:
    """Yield one copy of the data set for each fold, split into training, validation and test graphs.

    Copy k has fold k as the test part, the next fold as the validation part, and the other folds as the training part.
    The folds are stratified and shuffled by the seed, as in `graphcl.evaluate.svm`; there are at most as many as graphs
    in the smallest class. The metric is the accuracy. The copies share the graphs in memory.

    Raises:
        InputError: the graphs have no classes, `folds` is below 3, or a class has fewer than 3 graphs.
    """
    if not dataset.labelled:
        raise InputError(f"{dataset.name} has no class labels to split by.")
    parts = [torch.from_numpy(held) for _, held in outer_folds(dataset.y.numpy(), seed, folds)]
    if len(parts) < 3:
        raise InputError(
            f"{dataset.name} needs 3 folds and 3 graphs of every class, for training, validation and test."
        )
    for k, test in enumerate(parts):
        valid = (k + 1) % len(parts)
        train = torch.cat([part for j, part in enumerate(parts) if j not in (k, valid)]).sort().values
        split = {"train": train, "valid": parts[valid], "test": test}
        found, found._data = copy.copy(dataset), copy.copy(dataset._data)
        found._data.y = dataset.y[:, None].float()  # as in a benchmark's data set
        found.benchmark, found._data_list = Benchmark(split, "classification", "acc", 1), None
        yield found


def whole_split(split: GraphDataset) -> GraphDataset:
    """Return a copy of a data set with a split whose training part holds all graphs."""
    assert split.benchmark is not None
    found = copy.copy(split)
    found.benchmark = dataclasses.replace(
        split.benchmark, split={**split.benchmark.split, "train": torch.arange(len(split))}
    )
    return found


def with_label_rate(dataset: GraphDataset, rate: float, seed: int) -> GraphDataset:
    """Return a copy of the data set with a random subset of its training part, to simulate few labels.

    The subset has the fraction `rate` of the training graphs of each class, rounded, and at least one graph. For
    regression or several tasks, it has this fraction of all training graphs. The other parts do not change.
    """
    benchmark = dataset.benchmark
    assert benchmark is not None
    train, generator = benchmark.split["train"], torch.Generator().manual_seed(seed)
    single = benchmark.eval_metric == "acc" and benchmark.num_tasks == 1
    classes = dataset.y[train, 0] if single else torch.zeros(len(train))
    kept = []
    for value in classes.unique():
        members = train[classes == value]
        count = max(1, round(rate * len(members)))
        kept.append(members[torch.randperm(len(members), generator=generator)[:count]])
    split = {**benchmark.split, "train": torch.cat(kept).sort().values}
    found = copy.copy(dataset)
    found.benchmark = dataclasses.replace(benchmark, split=split)
    return found


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
        names = [_part(each, graph) for graph, each in enumerate(part)]
        parts = {name: np.flatnonzero([each == name for each in names]) for name in PARTS}
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
            found = f"the {name} part of the split has {len(rows)} graphs, but no two of a group or pair"
            raise InputError(f"{dataset.name}: {found}; list more pairs, or name the parts in the attribute `part`.")
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


def training_graphs(config: Config, dataset: GraphDataset, role: Role = "query") -> Tensor | None:
    """Return the graphs of a role to train on, those of `training_rows`; None for all."""
    rows, n = training_rows(config, dataset), len(dataset)
    if rows is None:
        return None
    return rows[rows >= n] - n if role == "target" and dataset.targets is not None else rows[rows < n]


def training_rows(config: Config, dataset: GraphDataset) -> Tensor | None:
    """Return the graphs, and targets, to train on: the training part if groups are scored, else None for all.

    With `pair_share`, they are those of a random fraction of the groups or components, which is the same for all seeds.
    """
    parts = _scored_parts(config, dataset)
    groups = dataset.components
    if (parts is None and config.pair_share == 1) or groups is None:
        return None
    rows = torch.arange(len(groups)) if parts is None else torch.from_numpy(parts["train"])
    if config.pair_share < 1:
        known = groups[rows][groups[rows] >= 0].unique()
        count, order = round(config.pair_share * len(known)), torch.Generator().manual_seed(0)
        if count < 2:
            raise InputError(
                f"`pair_share` {config.pair_share:g} of {len(known)} training groups is {count}; pass a larger one."
            )
        rows = rows[torch.isin(groups[rows], known[torch.randperm(len(known), generator=order)][:count])]
    return rows


def run_parts(config: Config, dataset: GraphDataset) -> dict[str, np.ndarray] | None:
    """Return `grouped_parts` with the `training_rows` of a run as the training part; None unless groups are scored."""
    parts, rows = _scored_parts(config, dataset), training_rows(config, dataset)
    return parts if parts is None or rows is None else {**parts, "train": rows.numpy()}


def _scored_parts(config: Config, dataset: GraphDataset) -> dict[str, np.ndarray] | None:
    """Return `grouped_parts` if an evaluator of the run scores groups."""
    return grouped_parts(dataset) if any(need_of(name, dataset.rows, {"groups"}) for name in config.eval) else None


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
    """Return an attribute with one value for each row, None where a data set lacks it; or None if all lack it."""
    sets = [dataset] if dataset.targets is None else [dataset, dataset.targets]
    found = [_attribute(each, name) for each in sets]
    if all(each is None for each in found):
        return None
    return [value for each, values in zip(sets, found, strict=True) for value in values or [None] * len(each)]


def _attribute(dataset: GraphDataset, name: str) -> list[Any] | None:
    """Return an attribute with one value for each graph, or None."""
    values = dataset._data.get(name)
    if isinstance(values, Tensor):
        values = values.flatten().tolist()
    if not isinstance(values, list) or len(values) != (dataset.slices or {})["edge_index"].numel() - 1:
        return None
    return values if dataset._indices is None else [values[i] for i in dataset.indices()]


def _part(value: object, graph: int) -> str:
    """Return the name of a part for the `part` of a graph."""
    name = PARTS[value] if isinstance(value, int) and 0 <= value < 3 else _PART_NAMES.get(str(value))
    if name is None:
        raise InputError(f"`part` of graph {graph} must be train, valid or test, or 0, 1 or 2, got {value!r}.")
    return name
