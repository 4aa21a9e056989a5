"""Draw augmented copies of graphs, by which rows are scored without labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment import Augmentation, Compose, Identity, OneOf
from graphcl.config import build_augmentation
from graphcl.evaluate import FoldScores
from graphcl.evaluate.folds import embedding
from graphcl.evaluate.graphs.retrieval import standardised
from graphcl.evaluate.needs import is_by_copies
from graphcl.loaders.loader import make_loader
from graphcl.registry import augmentations
from graphcl.tasks.task import Task
from graphcl.training.diagnostics import effective_rank

COPIES = 2000
"""Largest number of copies, over all augmentations, and of graphs for the effective rank."""
_SEED = 2**40 + 2**21
"""Added to a run's seed, so that copies and training use different random numbers."""


class RowBatches:
    """Loader of all rows: graphs in the order of the data set, then targets, or copies if an evaluator needs them.

    Copies have no `y`, and follow by one augmentation after the other. Every iteration draws the same copies, so that
    all rows embed the same.

    Args:
        task: the graphs and the evaluators.
        graphs: loader of all graphs.
        seed: seed of the run.
        device: device of the batches.
    """

    def __init__(self, task: Task, graphs: Any, seed: int, device: torch.device | str) -> None:
        self.graphs, self._others = graphs, task.others(torch.device(device))
        self._seed, self._device = _SEED + seed, torch.device(device)
        self._queries: Any = ()
        self._drawn_by: dict[str, Augmentation] = {}
        if "copies" in task.offers and any(map(is_by_copies, task.config.eval)):
            self._queries = make_loader(task.dataset, graphs.batch_sampler.batch_size, device=device, like=graphs)
            self._queries.batch_sampler.restrict_to(copied_graphs(task, seed)[1])
            self._drawn_by = copying(task)[0]

    def __iter__(self) -> Iterator[Batch]:
        yield from chain(self.graphs, self._others)
        generator = torch.Generator(self._device).manual_seed(self._seed)
        for augmentation in self._drawn_by.values():
            for batch in self._queries:
                if "y" in batch:
                    del batch.y  # labels are those of the graphs
                yield augmentation(batch.to(self._device), generator)


def sampled(task: Task, seed: int) -> Task:
    """Return the task of the graphs that are scored: a random sample where nothing but copies scores them, else all."""
    size, config, dataset = task.config.evaluation.sample, task.config, task.dataset
    only_copies = bool(config.eval) and all(map(is_by_copies, config.eval)) and "copies" in task.offers
    if not only_copies or len(dataset) <= size:
        return task
    drawn = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(_SEED + seed))[:size]
    return task.on(dataset[drawn.sort().values])


def copying(task: Task) -> tuple[dict[str, Augmentation], bool]:
    """Return the augmentations that draw copies, by name, and whether training used none of them.

    They are those of this package, at their default strength, that neither view has, alone or as a member; if none is
    left, all. `feature_mask` is left out where it cannot change `x` in part: on categories and on a single column.
    """
    dataset, views = task.dataset, task.config.views
    fits = dataset.num_features > 1 and dataset[0].x.is_floating_point()
    drawing = {
        name: target()
        for name, target in augmentations.registered("graphcl").items()
        if isinstance(target, type) and target not in (Identity, Compose, OneOf) and (name != "feature_mask" or fits)
    }
    made = (build_augmentation(view) for view in (views.first, views.second))
    used = {type(member) for view in made for member in _members(view)}
    unused = {name: augmentation for name, augmentation in drawing.items() if type(augmentation) not in used}
    return unused or drawing, bool(unused)


def copied_graphs(task: Task, seed: int) -> tuple[Tensor, Tensor]:
    """Return the indices of the graphs for the effective rank, and those of the graphs to copy, both random."""
    drawn = torch.randperm(len(task.dataset), generator=torch.Generator().manual_seed(_SEED + seed))[:COPIES]
    return drawn, drawn[: COPIES // len(copying(task)[0])].sort().values


def copy_arguments(task: Task, h: Tensor, seed: int) -> dict[str, Tensor]:
    """Return the copies in embeddings `h [n + m, H]`, and the index of each copy's graph."""
    queries = copied_graphs(task, seed)[1]
    return {"copies": h[len(task.dataset) :], "source": queries.repeat(len(copying(task)[0]))}


def rank_of_graphs(task: Task, h: Tensor, seed: int, score: FoldScores) -> FoldScores:
    """Return `score` with the figure `effective_rank`, of the standardised columns of at most `COPIES` graphs."""
    rows = embedding(h[copied_graphs(task, seed)[0]])
    rank = float(effective_rank(torch.from_numpy(standardised(rows, rows))))
    return dataclasses.replace(score, figures={**score.figures, "effective_rank": rank})


def describe_copies(task: Task) -> dict[str, Any]:
    """Return how copies are drawn, for `result.json`: augmentations, numbers of copied graphs and of graphs."""
    drawn_by, unused = copying(task)
    count = len(copied_graphs(task, 0)[1])
    return {"augmentations": list(drawn_by), "unused_in_training": unused, "copied": count, "graphs": len(task.dataset)}


def _members(view: Any) -> Iterator[Augmentation]:
    """Yield the augmentations that a view is made of."""
    members = getattr(view, "members", None)
    if members is None:
        yield view
    for member in members or ():
        yield from _members(member)
