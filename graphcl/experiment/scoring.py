"""Compute and score the rows of a trial, see `graphcl.references.rows`, by the evaluators of its settings."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch import Tensor

from graphcl.errors import InputError
from graphcl.evaluate import FoldScores, Kernel
from graphcl.evaluate.needs import is_by_copies, takes
from graphcl.experiment.copies import RowBatches, copy_arguments, rank_of_graphs
from graphcl.experiment.output import Output, Scores
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.embeddings import Embeddings
from graphcl.references.rows import Inputs, Row, compute_rows, has_form_for, is_scored_by, row_labels
from graphcl.registry import evaluators
from graphcl.tasks.task import Task
from graphcl.training.epoch import Epoch
from graphcl.training.loop import embed


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
    for name, (row, h) in itertools.product(scores, rows.items()):
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
