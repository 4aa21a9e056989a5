"""Compute and score the rows of a trial, see `graphcl.references.rows`, by the evaluators of its settings.

Without labels, rows are scored by augmented copies of the graphs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain, product
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment import Augmentation, Compose, Identity, OneOf
from graphcl.config import build_augmentation
from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.evaluate import FoldScores, Kernel
from graphcl.evaluate.folds import embedding
from graphcl.evaluate.graphs.retrieval import standardised
from graphcl.evaluate.needs import is_by_copies, takes
from graphcl.experiment.output import Output, Scores
from graphcl.loaders.loader import make_loader
from graphcl.models.contrastive import ContrastiveModel, Embeddings
from graphcl.references.rows import Inputs, Row, compute_rows, has_form_for, is_scored_by, row_labels
from graphcl.registry import augmentations, evaluators
from graphcl.tasks.task import Task
from graphcl.training.diagnostics import effective_rank
from graphcl.training.epoch import Epoch
from graphcl.training.loop import embed

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


class RowScores:
    """The rows of one seed and their scores: references are computed before training, the others after it.

    Args:
        task: what is scored.
        model: the model, which is trained in place.
        batches: loader of all rows.
        seed: seed of the shuffle for calibration and of the folds.
        names: rows to score; None for all. Without labels and groups, only `untrained` is computed, for the report.
        output: hooks of the trial.

    Attributes:
        epoch_scores: epoch -> evaluator -> score of the encoder at that epoch, every `score_every` epochs.
    """

    def __init__(
        self,
        task: Task,
        model: ContrastiveModel,
        batches: RowBatches,
        seed: int,
        names: Collection[str] | None,
        output: Output,
    ) -> None:
        wanted = set(row_labels() if names is None else names)
        self._names = wanted if task.is_scored else wanted & {"untrained"}
        self._task, self._model, self._batches, self._seed, self._output = task, model, batches, seed, output
        self._calibrate = functools.partial(task.calibrated, model, seed, batches.graphs)
        self._rows: dict[str, Row] = {}
        self.epoch_scores: dict[int, dict[str, FoldScores]] = {}

    def add_references(self) -> Any:
        """Compute the rows that need no training; return those of the untrained encoder, None if not wanted."""
        task, model, config = self._task, self._model, self._task.config
        self._inputs = Inputs(
            task.dataset, self._batches, model, self._calibrate, task.scored_parts, config.max_degree, task.facts
        )
        if config.init is not None:
            untrained = task.make_model(self._seed, trained=False).to(next(model.parameters()).device)
            self._inputs = dataclasses.replace(self._inputs, untrained=untrained)
        self._rows = self._computed(self._inputs)
        rows: Any = self._rows.get("untrained")
        return None if rows is None else rows[: task.dataset.num_rows]

    def score_epoch(self, epoch: Epoch) -> None:
        """Score the encoder after an epoch, if `score_every` asks for it."""
        config = self._task.config
        if config.score_every and epoch.epoch % config.score_every == 0:
            # ranks that score nothing embed too, as calibration may need all ranks
            h, _ = embed(self._calibrate() if config.precise_bn else self._model, self._batches)
            if "trained" in self._names:
                scores = score_rows(self._task, {"trained": h}, self._seed, self._output)
                self.epoch_scores[epoch.epoch] = {name: rows["trained"] for name, rows in scores.items()}

    def validation(self) -> float:
        """Return the score of the encoder on the validation part, by the first evaluator of groups."""
        task = self._task
        h, _ = embed(self._calibrate() if task.config.precise_bn else self._model, self._batches)
        name = next(name for name in task.config.eval if task.need_of(name) == "groups")
        value = score(task, name, h, self._seed).inner[0] if ranks.rank() == 0 else None
        return cast(float, ranks.broadcast_object(value))

    def score(self, h: Tensor, train_other: Callable[[str], Tensor]) -> Scores:
        """Return the scores of all rows, with embeddings `h` of the graphs and copies by the trained encoder.

        `train_other` is that of `Inputs`.
        """
        self._rows |= self._computed(dataclasses.replace(self._inputs, trained=h, train_other=train_other))
        return score_rows(self._task, self._rows, self._seed, self._output)

    def _computed(self, inputs: Inputs) -> dict[str, Row]:
        kinds = {evaluators.fact(name, "task") for name in self._task.config.eval}
        return compute_rows(inputs, self._names - self._rows.keys(), kinds)


def score_rows(task: Task, rows: Mapping[str, Row], seed: int, output: Output) -> Scores:
    """Score each of the `rows` with every evaluator; return evaluator -> row -> score, {} if none fits.

    Embeddings have a row for each of the n graphs (or nodes), and may have m more for copies; an evaluator that needs
    copies scores these only.
    """
    scores: Scores = {name: {} for name in (task.config.eval if rows and task.is_scored else ())}
    for name, (row, h) in product(scores, rows.items()):
        copied = isinstance(h, Tensor) and len(h) > task.dataset.num_rows
        fits = is_scored_by(row, evaluators.fact(name, "task")) and has_form_for(name, h)
        if not fits or (is_by_copies(name) and not copied):
            continue
        on_fold = None if output.on_fold is None else functools.partial(output.on_fold, f"{name}, {row}")
        keeps = row == "trained" and takes(name, "on_predicted")
        on_rows = {"on_predicted": functools.partial(output.on_predicted, name)} if keeps else {}
        scores[name][row] = score(task, name, h, seed, output.workers, on_fold, **on_rows)
    return scores


def score(
    task: Task,
    name: str,
    h: Any,
    seed: int = 0,
    workers: int | None = None,
    on_fold: Callable[[int, int], object] | None = None,
    **on_rows: Any,
) -> FoldScores:
    """Return the score of a row `h`, an embedding or a `Kernel`, by the evaluator `name` and the protocol of the task.

    `on_rows` are `on_test` and `on_predicted` of evaluators.

    Raises:
        InputError: the evaluator returns something else than `FoldScores`.
    """
    need = task.need_of(name)
    if isinstance(h, Kernel) and need == "groups" and not on_rows:
        return dataclasses.replace(_score_kernel(name, h, task), seed=seed)
    arguments = {"seed": seed, "workers": workers, "on_fold": on_fold, **on_rows, **task.config.evaluation.model_dump()}
    arguments |= copy_arguments(task, h, seed) if need == "copies" else task.truth(name)
    by_folds = need == "labels" and takes(name, "folds")
    count = task.config.evaluation.folds * task.config.evaluation.inner_folds if by_folds else 1
    if on_fold is not None:  # show the row before its first fold ends
        on_fold(0, count)
    rows = h if isinstance(h, Kernel) else h[: task.dataset.num_rows]
    if isinstance(rows, Embeddings):
        rows = rows.matrix()
    scores = evaluators[name](rows, **{key: value for key, value in arguments.items() if takes(name, key)})
    if on_fold is not None:
        on_fold(count, count)
    if not isinstance(scores, FoldScores):
        raise InputError(f"evaluator `{name}` must return FoldScores, got {type(scores).__name__}.")
    return rank_of_graphs(task, h, seed, scores) if need == "copies" else scores


@functools.lru_cache(maxsize=8)
def _score_kernel(name: str, kernel: Kernel, task: Task) -> FoldScores:
    """Return the score of a kernel by groups or pairs, which is equal for all seeds."""
    return evaluators[name](kernel, **{key: value for key, value in task.truth(name).items() if takes(name, key)})


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
