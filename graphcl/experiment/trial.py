"""Define a trial: one seed of a task, which `Trial.run` trains, embeds and scores."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from graphcl.augment import Augmentation
from graphcl.config import Config, build_augmentation
from graphcl.config.resolve import complete_spec, warn_of_unused
from graphcl.distributed.launch import Ranks
from graphcl.distributed.modules import synchronise
from graphcl.distributed.ranks import across
from graphcl.errors import InputError, warn
from graphcl.experiment.output import Output, SeedResult
from graphcl.experiment.scoring import RowBatches, RowScores, sampled
from graphcl.graphs.columns import warn_of_scales
from graphcl.loaders.loader import make_loader
from graphcl.loaders.samplers import WHOLE
from graphcl.losses import Loss
from graphcl.methods import Method
from graphcl.methods.method import explain_single_row
from graphcl.models.batchnorm import has_batchnorm
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.interface import OwnEncoders
from graphcl.registry import encoders, methods
from graphcl.tasks.encoder import arguments_of, has_numbers
from graphcl.tasks.task import EMBED_BATCH, Task
from graphcl.training.captured import check_capture
from graphcl.training.epoch import Epoch
from graphcl.training.loop import embed, train
from graphcl.training.randomness import seeded
from graphcl.training.settings import TrainingSettings
from graphcl.training.state import NonFiniteLossError, Training

_RANK_SEEDS = 2**41
"""Difference between the seeds of rank r and rank r + 1."""


class Trial:
    """One seed of a task: its model, method and batches, each built once.

    Args:
        task: what is trained and scored, with the settings and the data.
        seed: seed of the weights, the order of the graphs, the views and the folds.
        device: device of the model.
        encoder: module to copy, or function from the number of columns to a module, or a pair of these with separate
            towers; default: the encoder in the settings.
        ranks: ranks that train together; default: this process alone.
        checked: whether `task.check` has passed.

    Attributes:
        task: the task, with standardised columns if a setting asks for them.
        config: settings of the task.
        model: the model, which `run` trains in place.
        method: the method, with the model and the loss.
        views: augmentations of the first and the second view.
        batches: loader of the training batches.
        graphs: loader of all graphs, in order.

    Raises:
        InputError: the settings do not fit together or to the data.
    """

    def __init__(
        self,
        task: Task,
        seed: int,
        device: torch.device,
        encoder: OwnEncoders = None,
        ranks: Ranks | None = None,
        checked: bool = False,
    ) -> None:
        self.config, self.seed, self.device, self.encoder = task.config, seed, device, encoder
        self.ranks = ranks or Ranks()
        if not checked:
            task.check(self.ranks.size)
        self.model = task.make_model(seed, encoder).to(device)
        self.task = task = prepared(task, self.model)
        self.method = make_method(task, self.model, seed)
        task.check_method(self.method)
        if self.config.sync_batchnorm:
            synchronise(self.method)
        self.views = make_augmentations(self.config)
        # a method that divides the nodes itself takes whole batches
        self.shard = WHOLE if self.method.divides_nodes else (self.ranks.rank, self.ranks.size)
        order = torch.Generator().manual_seed(2 * seed)  # equal on all ranks; views of different graphs differ
        self.generator = torch.Generator(device).manual_seed(2 * seed + 1 + self.shard[0] * _RANK_SEEDS)
        self.batches: Any = task.training_loader(order, device, self.shard)
        self.graphs: Any = make_loader(task.dataset, EMBED_BATCH, device=device, like=self.batches)

    def run(self, rows: Collection[str] | None = None, output: Output | None = None) -> SeedResult:
        """Train, embed and score, and return the result.

        Args:
            rows: names of the rows to score; empty on ranks that only train; default: all that are registered.
            output: hooks for logs, progress and checkpoints; default: none.

        Raises:
            InputError: training failed.
        """
        output, task, model, graphs = output or Output(), self.task, self.model, self.graphs
        part = sampled(task, self.seed)  # all graphs, unless nothing but copies scores them
        of_part = graphs if part is task else make_loader(part.dataset, EMBED_BATCH, device=self.device)
        scored = RowBatches(part, of_part, self.seed, self.device)
        scores = RowScores(part, model, scored, self.seed, rows, output)
        output.on_embeddings("before", self, scores.add_references())

        def after_epoch(epoch: Epoch) -> None:
            output.on_epoch(epoch)
            scores.score_epoch(epoch)
            task.after_epoch(epoch, model, scored if part is task else graphs, self.batches)

        with output.training(), self._random_numbers():
            history = train(
                self.method,
                self.batches,
                *self.views,
                generator=self.generator,
                callbacks=[after_epoch],
                checkpoints=output.checkpoints,
                on_step=output.on_step,
                score=scores.validation if self.config.best_epoch else None,
                **self.config.training(),
            )
        if self.config.precise_bn:
            model.load_state_dict(task.calibrated(model, self.seed, graphs).state_dict())
        embedded, y = embed(model, scored)
        h = embedded[: task.dataset.num_rows]
        if part is not task:
            h, y = embed(model, graphs)
        output.on_embeddings("after", self, h)
        result = scores.score(embedded, lambda encoder: trained_by(encoder, part, self.seed, self.device))
        output.on_scores(result)
        return SeedResult(model, history, h, task.labels(y), result, scores.epoch_scores, output.clock.seconds)

    def try_step(self) -> None:
        """Take one step on two graphs by a copy of the method, to find unfit settings before files are written.

        Settings without effect on the data or the model are warned of.

        Raises:
            InputError: loss, method, views, encoder and data set do not fit, or the features contain NaN.
        """
        config, task, method = self.config, self.task, copy.deepcopy(self.method)  # its state may not be in state_dict
        settings = TrainingSettings.of({**config.training(), "capture": False, "non_finite": "stop"})
        if config.capture:
            check_capture(method, settings, self.device)
        generator = torch.Generator(self.device).manual_seed(0)
        training = Training(method, [task.sample()], *make_augmentations(config), generator, settings)
        with seeded(0), explain_single_row():
            try:
                for view1, view2, _ in training.views():
                    task.check_views(view1, view2)
                    training.step(view1, view2, torch.arange(view1.num_graphs, device=self.device))
            except NonFiniteLossError:
                what = "the untrained encoder gives NaN or infinity"
                raise InputError(f"{what}; look for them in the features of {task.dataset.name}.") from None
            except RuntimeError as error:
                if self.encoder in (None, (None, None)) or has_numbers(task.dataset):
                    raise
                raise InputError(
                    f"the encoder does not accept the `x` of {task.dataset.name}, which holds categories ({error}); "
                    "add a torch.nn.Embedding for each column, or pass features='degree'."
                ) from None
        facts = {
            "BatchNorm": has_batchnorm(method),
            "BatchNorm of the model": has_batchnorm(self.model),
            "ranks": self.ranks.size > 1,
            "degrees": "degree" in task.dataset.features,
            "batches": task.has_batches,
        }
        warn_of_unused(config, facts, features=task.dataset.features)

    @contextmanager
    def _random_numbers(self) -> Iterator[None]:
        """Let losses see the batches of all ranks, and torch's global generators start from the seed."""
        forked = torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else [])
        with across(self.ranks.process_group), forked:
            torch.manual_seed(self.seed + self.shard[0] * _RANK_SEEDS)  # for dropout
            try:
                yield
            except RuntimeError as error:
                if not torch.are_deterministic_algorithms_enabled() or "deterministic" not in str(error):
                    raise
                operation = str(error).partition(".")[0]
                raise InputError(f"{operation}; choose another loss or method, or drop --deterministic.") from None


def trained_by(encoder: str, task: Task, seed: int, device: torch.device) -> Tensor:
    """Return the embeddings by another encoder that is trained with the settings of a task."""
    spec = complete_spec({"name": encoder}, encoders)
    config = task.config.model_copy(update={"encoder": spec, "target_encoder": spec, "init": None})
    return Trial(type(task)(config, task.dataset), seed, device).run(rows=()).h


def prepared(task: Task, model: ContrastiveModel) -> Task:
    """Return the task with standardised columns if a setting asks for it, and fit a model that needs that."""
    task = task.standardised(model)
    if not model.fitted:
        device = next(model.parameters()).device
        loaders = (make_loader(side, EMBED_BATCH, device=device) for side in task.dataset.sides)
        model.fit(chain(*loaders), task.training_groups)
    return task


def make_method(task: Task, model: ContrastiveModel, seed: int = 0) -> Method:
    """Return the method that trains `model`, on its device, without changing torch's global generator.

    `seed` is that of the method's initial weights.

    Raises:
        InputError: the method does not accept the loss.
    """
    config = task.config
    arguments = arguments_of(config.method)
    wanted = methods.arguments(config.method["name"]).required
    if task.takes_labels:
        arguments["labels"] = "ids"
    if "num_graphs" in wanted:
        arguments["num_graphs"] = task.num_ids
    for name, view in (("first", config.views.first), ("second", config.views.second)):
        if name in wanted:
            arguments[name] = build_augmentation(view)
    with seeded(seed):
        method: Method = methods[config.method["name"]](model, Loss(**config.loss), **arguments)
    return method.to(next(model.parameters()).device)


def make_augmentations(config: Config) -> tuple[Augmentation, Augmentation]:
    """Return the augmentations of the first and the second view."""
    return build_augmentation(config.views.first), build_augmentation(config.views.second)


def warn_of_columns(task: Task) -> None:
    """Warn if columns of numbers differ in scale, judging by the first graphs, or if no column can be standardised."""
    config, dataset = task.config, task.dataset
    if task.rows != "graphs" or dataset.scales:
        return
    scales = dataset.column_scales(torch.arange(min(len(dataset), 10_000)))
    if config.standardise_columns:
        if all(value == 1 for _, deviation in scales.values() for value in deviation):
            warn(f"`standardise_columns` has no effect: {dataset.name} has no column of numbers other than 0 and 1.")
        return
    for key, scale in scales.items():
        if key == "x" or "edge_dim" in encoders.arguments(config.encoder["name"]).required:
            warn_of_scales(scale, f"`{key}` of {dataset.name}")
