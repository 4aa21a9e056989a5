"""Split a data set for fine-tuning: into training, validation and test graphs by fold, or with few labels."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

import torch

from graphcl.datasets.dataset import Benchmark, GraphDataset
from graphcl.errors import InputError
from graphcl.evaluate.folds import outer_folds


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
