"""Define the task of a run, what it trains on and scores, and the usual one: two views of every graph.

A task is chosen once, by `make_task`, when the settings meet the data. From then on it is asked for the parts of the
data, the batches, the model, the rows, and which evaluators and reference rows fit, so that nobody asks for its kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.config import Config
from graphcl.config.resolve import warn_of_unused
from graphcl.config.settings import Evaluation
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.relation import describe_groups
from graphcl.errors import InputError
from graphcl.evaluate.needs import is_by_copies, need_of, usual
from graphcl.graphs.columns import Scale
from graphcl.loaders.loader import make_loader
from graphcl.loaders.samplers import WHOLE, EpochBatches, Shard
from graphcl.methods import Method
from graphcl.models.batchnorm import calibrate
from graphcl.models.contrastive import ContrastiveModel, model_of
from graphcl.models.interface import OwnEncoder, OwnEncoders, accepts
from graphcl.models.saved import EncoderDescription
from graphcl.models.wrapper import Tower
from graphcl.registry import encoders, evaluators, losses, methods, tasks
from graphcl.tasks.encoder import describe_encoder, encoder_maker, load_initial
from graphcl.tasks.evaluation import grouped_parts, places, split_column
from graphcl.training.epoch import Epoch
from graphcl.training.randomness import seeded

EMBED_BATCH = 1024
"""Graphs in a batch when embedding."""
CALIBRATION_SEED = 2**40 + 2**20
"""Added to a run's seed, so that calibration and training shuffle with different random numbers."""


def make_task(config: Config, dataset: GraphDataset) -> Task:
    """Return the task of these settings on this data set: the first kind that claims them, by its attribute `place`."""
    kinds: Iterable[Any] = sorted(tasks.values(), key=lambda kind: kind.place)
    task: Task = next(kind for kind in kinds if kind.claims(config, dataset))(config, dataset)
    return task


def kind_of(rows: str) -> type[Task]:
    """Return the usual kind of task of such rows, such as `graphs`."""
    kinds: Iterable[Any] = tasks.values()
    kind: type[Task] = max((kind for kind in kinds if kind.rows == rows), key=lambda kind: kind.place)
    return kind


def model_for(encoder: nn.Module, dataset: GraphDataset) -> ContrastiveModel:
    """Return the model of a trained encoder that embeds the rows of a data set."""
    return kind_of(dataset.rows).model_of(encoder, projector="none")


@tasks.register("graphs")
class Task:
    """Contrast two views of every graph, and score rows of graphs. Other tasks override what differs.

    Args:
        config: settings of the run.
        dataset: the graphs.

    Attributes:
        rows: what a row of an embedding stands for, such as `graphs`; rows and evaluators are chosen by it.
        contrasts: what the method must contrast, in words.
        usual_method: method to advise.
        place: kinds are asked whether they claim the settings in this order, those of extensions before 50.
    """

    rows: ClassVar[str] = "graphs"
    contrasts: ClassVar[str] = "whole graphs"
    usual_method: ClassVar[str] = "two_views"
    place: ClassVar[int] = 99

    def __init__(self, config: Config, dataset: GraphDataset) -> None:
        self.config, self.dataset = config, dataset

    @classmethod
    def claims(cls, config: Config, dataset: GraphDataset) -> bool:
        """Return whether this kind of task is that of the settings and the data set; the kinds are asked in order."""
        return True

    def on(self, dataset: GraphDataset) -> Task:
        """Return the same task on another data set, such as a standardised copy."""
        return type(self)(self.config, dataset)

    def with_settings(self, config: Config) -> Task:
        """Return the same task with other settings; this one if they are equal."""
        return self if config == self.config else type(self)(config, self.dataset)

    # What is trained on

    @cached_property
    def parts(self) -> Mapping[str, np.ndarray] | None:
        """Rows of the parts `train`, `valid` and `test`, see `grouped_parts`; None if no evaluator scores groups."""
        by_groups = any(need_of(name, self.rows, {"groups"}) for name in self.config.eval)
        return grouped_parts(self.dataset) if by_groups else None

    @cached_property
    def training_rows(self) -> Tensor | None:
        """Rows to train on: the training part if groups are scored, else None for all.

        With `pair_share` below 1, only the rows of a random fraction of the groups, or of the components of pairs; the
        same for all seeds.

        Raises:
            InputError: the fraction holds fewer than two groups.
        """
        groups, ratio = self.dataset.components, self.config.pair_share
        if (self.parts is None and ratio == 1) or groups is None:
            return None
        rows = torch.arange(len(groups)) if self.parts is None else torch.from_numpy(self.parts["train"])
        if ratio < 1:
            numbers = groups[rows][groups[rows] >= 0].unique()
            count, order = round(ratio * len(numbers)), torch.Generator().manual_seed(0)
            if count < 2:
                raise InputError(
                    f"`pair_share` {ratio:g} of {len(numbers)} training groups is {count}; pass a larger one."
                )
            rows = rows[torch.isin(groups[rows], numbers[torch.randperm(len(numbers), generator=order)][:count])]
        return rows

    @property
    def training_graphs(self) -> Tensor | None:
        """Graphs of the data set to train on; None for all."""
        rows = self.training_rows
        return None if rows is None else rows[rows < len(self.dataset)]

    @property
    def scored_parts(self) -> Mapping[str, np.ndarray] | None:
        """`parts` with `training_rows` as the training part."""
        rows = self.training_rows
        return self.parts if self.parts is None or rows is None else {**self.parts, "train": rows.numpy()}

    def places(self, setting: str) -> Tensor | None:
        """Return the number of each row's value of the attribute that a setting names; None without one."""
        name = self.config.batch_by if setting == "batch_by" else self.config.evaluation.within
        return places(self.dataset, name, setting)

    def check(self, ranks: int = 1) -> None:
        """Raise InputError if the settings do not fit the data, or the batches do not fit the number of ranks."""
        name = self.config.method["name"]
        if len(self.dataset) == 1 and self.rows == "graphs":
            raise InputError(f"{self.dataset.name} holds 1 graph; contrasting graphs needs at least two.")
        rows = methods.facts(name).get("rows", "graphs")
        if rows != self.rows:
            raise InputError(
                f"method `{name}` contrasts {kind_of(rows).contrasts}, but the data set is one of {self.contrasts}; "
                f"use {self.usual_method}."
            )
        if ranks > 1 and encoders.fact(self.config.encoder["name"], "form") != "dense":
            raise InputError(f"encoder `{self.config.encoder['name']}` trains in one process, got {ranks} ranks.")
        self.check_batches(ranks)

    def check_batches(self, ranks: int) -> None:
        """Raise InputError if there are no training batches for so many ranks."""
        self.sampler(self.config.batch_size, torch.Generator(), (0, ranks))

    def check_method(self, method: Method) -> None:
        """Raise InputError if the method does not use what the pairs of the task hold."""

    def check_views(self, view1: Batch, view2: Batch) -> None:
        """Raise InputError if two views of `sample` cannot be contrasted; those of graphs always can."""

    # Batches

    def sampler(self, size: int, generator: torch.Generator, shard: Shard = WHOLE) -> EpochBatches:
        """Return the sampler of batches of `size` graphs or pairs that a run trains on."""
        sampler = self._sampler(size, generator, shard)
        if (graphs := self.training_graphs) is not None:
            sampler.restrict_to(graphs)
        return sampler

    def _sampler(self, size: int, generator: torch.Generator, shard: Shard) -> EpochBatches:
        return EpochBatches(len(self.dataset), size, True, generator, self.config.shuffle_window, shard)

    def training_loader(self, generator: torch.Generator, device: torch.device, shard: Shard = WHOLE) -> Any:
        """Return the loader of the training batches."""
        sampler = self.sampler(self.config.batch_size, generator, shard)
        return make_loader(self.dataset, device=device, batch_sampler=sampler)

    def others(self, device: torch.device) -> Iterable[Batch]:
        """Return a loader of the rows that follow those of `dataset`, such as targets; none by default."""
        return ()

    @property
    def has_batches(self) -> bool:
        """Whether an epoch has several batches, of which `batch_size` is the size."""
        return True

    def sample(self) -> Any:
        """Return one small batch, to try settings on."""
        return Batch.from_data_list(self.dataset.sample())

    # The model

    def make_model(self, seed: int = 0, encoder: OwnEncoders = None, trained: bool = True) -> ContrastiveModel:
        """Return a model on the CPU before training, without changing torch's global generator.

        Args:
            seed: seed of the initial weights.
            encoder: module to copy, or function from the number of columns to a module; default: the encoder in the
                settings. With separate towers, also a pair: that of the queries and that of the targets.
            trained: whether the encoder starts from the weights of the setting `init`, if there are any.

        Raises:
            InputError: the encoder does not fit the data set, or needs more memory than the machine has.
        """
        config, (own_encoder, _) = self.config, both(encoder)
        make = encoder_maker(config.encoder, self.dataset, own_encoder)
        with seeded(seed):
            module, projection, projector = make(), config.projection, config.projector
            self.check_encoder(module)
            if config.keep_projector:
                module = module if isinstance(module, Tower) else Tower(module, projection, projector)
                projection, projector = None, "none"
            if config.init is not None and trained:  # before the model, as the weights may change the encoder's width
                load_initial(config.init, module, own_encoder)
            return self.model_of(module, projection, projector)

    @staticmethod
    def model_of(encoder: nn.Module, projection: int | None = None, projector: Any = "mlp") -> ContrastiveModel:
        """Return the model of an encoder, whose embeddings are the rows."""
        return model_of(encoder, projection, projector)

    @staticmethod
    def embedder(encoder: nn.Module) -> nn.Module:
        """Return the module that computes the rows, of a trained encoder, as `graphcl export` writes it."""
        return encoder

    def check_encoder(self, encoder: nn.Module) -> None:
        """Raise InputError if the encoder does not fit all graphs of the task."""

    def column_scales(self, model: ContrastiveModel) -> dict[str, Scale]:
        """Return the scales to standardise the columns by that `model` uses: of all graphs that the run trains on.

        They are those of a data set that is standardised already, else empty unless `standardise_columns` is set.
        """
        return self._scales(self.dataset, model, self.training_graphs)

    def _scales(self, dataset: GraphDataset, model: ContrastiveModel, graphs: Tensor | None) -> dict[str, Scale]:
        if dataset.scales or not self.config.standardise_columns:
            return dict(dataset.scales)
        scales = dataset.column_scales(graphs)
        return {key: scale for key, scale in scales.items() if key == "x" or accepts(model.encoder, key)}

    def standardised(self, model: ContrastiveModel) -> Task:
        """Return the task on graphs with standardised columns, if a setting asks for them."""
        if not self.config.standardise_columns or self.dataset.scales:
            return self
        return self.on(self.dataset.standardised(self.column_scales(model)))

    @property
    def training_groups(self) -> Tensor:
        """Number of each row's group or component, -1 outside the training part."""
        groups, rows = self.dataset.components, self.training_rows
        assert groups is not None
        if rows is None:
            return groups
        return groups.where(torch.zeros(len(groups), dtype=torch.bool).index_fill(0, rows, True), -1)

    @property
    def num_ids(self) -> int:
        """Number of graphs, groups or components by which methods know the rows of a batch."""
        return len(self.dataset)

    @property
    def takes_labels(self) -> bool:
        """Whether the loss has several positives of each anchor, those with its label."""
        return "labels" in losses.arguments(self.config.loss["name"]).tensors

    def calibrated(self, model: ContrastiveModel, seed: int = 0, like: object = None) -> ContrastiveModel:
        """Return a copy of `model` with BatchNorm statistics recomputed over all graphs that the run trains on.

        The batches are shuffled. A loader `like` of the data set shares its tensors, see `make_loader`.
        """
        order = torch.Generator().manual_seed(CALIBRATION_SEED + seed)
        return calibrate(model, self._equal_batches(self.dataset, self.training_graphs, model, order, like))

    def _equal_batches(
        self,
        dataset: GraphDataset,
        graphs: Tensor | None,
        model: ContrastiveModel,
        order: torch.Generator,
        like: object = None,
    ) -> Any:
        """Return a loader of equally large batches: `calibrate` weights all equally, a small last one would distort."""
        n = len(dataset) if graphs is None else len(graphs)
        size = math.ceil(n / math.ceil(n / EMBED_BATCH))
        sampler = EpochBatches(len(dataset), size, True, order, self.config.shuffle_window)
        if graphs is not None:
            sampler.restrict_to(graphs)
        return make_loader(dataset, device=next(model.parameters()).device, like=like, batch_sampler=sampler)

    def after_epoch(self, epoch: Epoch, model: ContrastiveModel, whole: Iterable[Batch], batches: Any) -> None:
        """Change the batches of the next epochs, as by mined negatives; `whole` is a loader of all rows."""

    # Rows and scores

    def queries(self, rows: Any) -> Any:
        """Return those of all rows that stand for graphs or nodes of `dataset` itself, not for targets."""
        return rows[: self.dataset.num_rows]

    def labels(self, y: Tensor | None) -> Any:
        """Return what to save as `y`, of the labels `y` of all rows."""
        return y

    @property
    def facts(self) -> set[str]:
        """Needs of reference rows that the data set meets, see `graphcl.references.rows`."""
        numbers = all(side[0].x.is_floating_point() for side in self.dataset.sides)
        return {self.rows, "columns", *(["numbers"] if numbers else [])}

    @property
    def offers(self) -> set[str]:
        """What rows can be scored by, keys of `graphcl.evaluate.needs.NEEDS`."""
        dataset = self.dataset
        offered = {
            "labels": dataset.labelled and dataset.benchmark is None,
            "targets": dataset.benchmark is not None,
            "split": dataset.split is not None,
            "groups": dataset.groups is not None,
            "copies": True,
        }
        return {need for need, usable in offered.items() if usable}

    def need_of(self, evaluator: str) -> str | None:
        """Return what an evaluator scores these rows by; None if it does not fit."""
        return need_of(evaluator, self.rows, self.offers)

    @property
    def is_scored(self) -> bool:
        """Whether rows can be scored: by classes, a benchmark's targets, or as one of the evaluators can."""
        if not self.config.eval:
            return False
        return self.dataset.scored or any(self.need_of(name) for name in self.config.eval)

    def truth(self, evaluator: str) -> dict[str, Any]:
        """Return the arguments that tell an evaluator of labels or groups what is right."""
        need = self.need_of(evaluator)
        if need == "groups":
            by, place = self.together(), self.places("evaluation.within")
            return {**by, "place": place, "split": grouped_parts(self.dataset)}
        return {"y": self.dataset.y, **(self.dataset.protocol() if need != "labels" else {})}

    def together(self) -> dict[str, Any]:
        """Return which rows belong together, for evaluators of groups."""
        return {"group": self.dataset.groups}

    def refusal(self, evaluator: str) -> tuple[str, str]:
        """Return why an evaluator does not fit, and the need whose usual evaluator does."""
        dataset = self.dataset
        if dataset.benchmark is not None:
            return "is scored on its own split", "targets"
        if not dataset.labelled:
            return "has groups but no classes", "groups"
        rows = evaluators.fact(evaluator, "rows")
        return f"has no {'split of its own' if rows in ('', self.rows) else f'{rows} to score'}", "labels"

    def describe(self) -> str | None:
        """Return a line that describes the pairs or groups; None without."""
        if self.dataset.groups is None:
            return None
        unused = "; --positives group trains on them" if self.config.positives == "views" else ""
        return f"groups: {describe_groups(self.dataset.groups)}{unused}"

    def group_protocol(self) -> dict[str, Any]:
        """Return how groups are split for scoring, for `result.json`."""
        if "groups" not in {self.need_of(name) for name in self.config.eval} or self.scored_parts is None:
            return {}
        sizes = {part: len(rows) for part, rows in self.scored_parts.items()}
        return {"group_split": sizes, "split_by": split_column(self.dataset)}

    # Settings that meet the data

    def completed(self) -> Task:
        """Return the task with the settings adapted to the data set: seeds and evaluators without labels, and folds.

        Raises:
            InputError: an evaluator or a setting does not fit the data set.
        """
        config, dataset = self.config, self.dataset
        if config.target and not dataset.scored:
            raise InputError(
                f"`target` {', '.join(config.target)} holds several tasks, numbers or missing cells, which cannot "
                "be scored on folds; pass --split scaffold or random."
            )
        update = {"features": dataset.features, **({} if dataset.scored else self.without_labels())}
        return self.with_settings(config.model_copy(update=update))

    def without_labels(self) -> dict[str, Any]:
        """Return the settings that change without classes: with groups, nothing is scored unless asked for.

        Else there is one seed, scored by augmented copies. Groups are scored only on request, as only their training
        part is then trained on.

        Raises:
            InputError: an evaluator that needs classes is asked for.
        """
        config, dataset = self.config, self.dataset
        if dataset.groups is not None:
            return {} if "eval" in config.model_fields_set else {"eval": []}
        one = {} if "seeds" in config.model_fields_set else {"seeds": [0]}
        if not config.eval:
            return one
        if "eval" in config.model_fields_set and (wrong := [name for name in config.eval if not is_by_copies(name)]):
            fitting = usual("copies")
            raise InputError(
                f"`eval` {wrong[0]} does not fit {dataset.name}, which has no classes; pass --eval {fitting}."
            )
        update = {**one, "eval": [usual("copies")]}
        unused = dict.fromkeys(("folds", "inner_folds", "scale", "place"), False)
        warn_of_unused(config.model_copy(update=update), unused)
        return {**update, "evaluation": Evaluation(sample=config.evaluation.sample)}

    # What is saved

    def description(self, model: ContrastiveModel, encoder: OwnEncoders = None) -> EncoderDescription:
        """Return the description that is saved with the weights of `model`; `encoder` is that of `make_model`."""
        named = both(encoder)[0] is None
        scales = self.column_scales(model)
        return describe_encoder(self.config, self.config.encoder, self.dataset, model, scales, named)


def both(encoder: OwnEncoders) -> tuple[OwnEncoder | None, OwnEncoder | None]:
    """Return the user's own encoders of queries and targets."""
    return encoder if isinstance(encoder, tuple) else (encoder, encoder)
