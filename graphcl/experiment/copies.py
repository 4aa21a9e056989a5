"""Draw augmented copies of graphs, by which rows are scored without labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment import Augmentation, Compose, Identity, OneOf
from graphcl.config import Config
from graphcl.datasets.dataset import GraphDataset
from graphcl.evaluate import FoldScores
from graphcl.evaluate.folds import embedding
from graphcl.evaluate.graphs.retrieval import standardised
from graphcl.evaluate.needs import is_by_copies
from graphcl.experiment.build import make_augmentations, restricted
from graphcl.loaders.loader import make_loader
from graphcl.registry import augmentations
from graphcl.training.diagnostics import effective_rank

COPIES = 2000
"""Largest number of copies, over all augmentations, and of graphs for the effective rank."""
_SEED = 2**40 + 2**21
"""Added to a run's seed, so that copies and training use different random numbers."""


@dataclass(frozen=True)
class WithCopies:
    """Loader of all graphs, then of targets, or of copies without `y` by one augmentation after the other.

    Every iteration draws the same copies, so that all rows embed the same.

    Attributes:
        graphs: loader of all graphs in the order of the data set.
        targets: loader of the graphs of `GraphDataset.targets`; their batches have the attribute `role`.
        queries: loader of the graphs to copy.
        drawn_by: augmentations that draw the copies; none by default.
        seed: seed of the run.
        device: device of the batches.
    """

    graphs: Any
    targets: Iterable[Batch] = ()
    queries: Iterable[Batch] = ()
    drawn_by: Collection[Augmentation] = ()
    seed: int = 0
    device: torch.device | str = "cpu"

    def __iter__(self) -> Iterator[Batch]:
        yield from self.graphs
        for batch in self.targets:
            batch.role = "target"
            yield batch
        generator = torch.Generator(self.device).manual_seed(_SEED + self.seed)
        for augmentation in self.drawn_by:
            for batch in self.queries:
                if "y" in batch:
                    del batch.y  # labels are those of the graphs
                yield augmentation(batch.to(self.device), generator)


def with_copies(config: Config, dataset: GraphDataset, graphs: Any, seed: int, device: torch.device) -> WithCopies:
    """Return a loader of all graphs, of targets, and of copies if an evaluator needs them.

    `graphs` is a loader of `make_loader`.
    """
    if dataset.targets is not None:
        return WithCopies(graphs, make_loader(dataset.targets, graphs.batch_sampler.batch_size, device=device))
    if not any(map(is_by_copies, config.eval)):
        return WithCopies(graphs)
    loader = make_loader(dataset, graphs.batch_sampler.batch_size, device=device, like=graphs)
    queries = restricted(loader, copied_graphs(config, dataset, seed)[1])
    return WithCopies(graphs, (), queries, tuple(copying(config, dataset)[0].values()), seed, device)


def sampled(config: Config, dataset: GraphDataset, seed: int) -> GraphDataset:
    """Return the graphs that are scored: a random sample where nothing but copies scores them, else all."""
    size = config.evaluation.sample
    whole = dataset.rows != "graphs" or dataset.targets is not None or len(dataset) <= size
    if whole or not config.eval or not all(map(is_by_copies, config.eval)):
        return dataset
    drawn = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(_SEED + seed))[:size]
    return cast(GraphDataset, dataset[drawn.sort().values])


def copying(config: Config, dataset: GraphDataset) -> tuple[dict[str, Augmentation], bool]:
    """Return the augmentations that draw copies, by name, and whether training used none of them.

    They are those of this package, at their default strength, that neither view has, alone or as a member; if none is
    left, all. `feature_mask` is left out where it cannot change `x` in part: on categories and on a single column.
    """
    fits = dataset.num_features > 1 and dataset[0].x.is_floating_point()
    known = {
        name: target()
        for name, target in augmentations.registered("graphcl").items()
        if isinstance(target, type) and target not in (Identity, Compose, OneOf) and (name != "feature_mask" or fits)
    }
    used = {type(each) for view in make_augmentations(config) for each in _members(view)}
    unused = {name: each for name, each in known.items() if type(each) not in used}
    return unused or known, bool(unused)


def copied_graphs(config: Config, dataset: GraphDataset, seed: int) -> tuple[Tensor, Tensor]:
    """Return the indices of the graphs for the effective rank, and those of the graphs to copy, both random."""
    drawn = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(_SEED + seed))[:COPIES]
    return drawn, drawn[: COPIES // len(copying(config, dataset)[0])].sort().values


def copy_arguments(config: Config, dataset: GraphDataset, h: Tensor, seed: int) -> dict[str, Tensor]:
    """Return the copies in embeddings `h [n + m, H]`, and the index of each copy's graph."""
    queries = copied_graphs(config, dataset, seed)[1]
    return {"copies": h[len(dataset) :], "source": queries.repeat(len(copying(config, dataset)[0]))}


def rank_of_graphs(config: Config, dataset: GraphDataset, h: Tensor, seed: int, score: FoldScores) -> FoldScores:
    """Return `score` with the figure `effective_rank`, of the standardised columns of at most `COPIES` graphs."""
    rows = embedding(h[copied_graphs(config, dataset, seed)[0]])
    rank = float(effective_rank(torch.from_numpy(standardised(rows, rows))))
    return dataclasses.replace(score, figures={**score.figures, "effective_rank": rank})


def describe_copies(config: Config, dataset: GraphDataset) -> dict[str, Any]:
    """Return how copies are drawn, for `result.json`: augmentations, numbers of copied graphs and of graphs."""
    drawn_by, unused = copying(config, dataset)
    count = len(copied_graphs(config, dataset, 0)[1])
    return {"augmentations": list(drawn_by), "unused_in_training": unused, "copied": count, "graphs": len(dataset)}


def _members(view: Any) -> Iterator[Augmentation]:
    """Yield the augmentations that a view is made of."""
    members = getattr(view, "members", None)
    if members is None:
        yield view
    for each in members or ():
        yield from _members(each)
