"""The tasks whose positives are other graphs: drawn members of groups, and listed pairs of one or two data sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.config import Config
from graphcl.config.resolve import FACTS
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.relation import Relation, relation_of_groups
from graphcl.errors import InputError
from graphcl.graphs.columns import Scale
from graphcl.loaders.loader import make_loader
from graphcl.loaders.mining import mine_hard_negatives
from graphcl.loaders.samplers import WHOLE, EpochBatches, EpochPairs, ListedPairs, Shard, segments
from graphcl.methods import Method
from graphcl.models.batchnorm import calibrate
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.interface import OwnEncoders, accepts
from graphcl.models.saved import EncoderDescription, read_saved
from graphcl.models.wrapper import Tower, TwoTowers
from graphcl.registry import tasks
from graphcl.tasks.encoder import describe_encoder, encoder_maker, has_numbers, load_initial
from graphcl.tasks.task import CALIBRATION_SEED, EMBED_BATCH, Task, both
from graphcl.training.epoch import Epoch
from graphcl.training.loop import embed
from graphcl.training.randomness import seeded


@tasks.register("groups")
class Groups(Task):
    """Contrast two drawn members of every group."""

    place = 60

    @classmethod
    def claims(cls, config: Config, dataset: GraphDataset) -> bool:
        """Return whether the positives are members of groups, drawn anew in each epoch."""
        return config.positives == "group"

    def check_batches(self, ranks: int) -> None:
        """Raise InputError if the graphs have no groups, or there are no batches for so many ranks."""
        if self.dataset.groups is None:
            raise InputError(
                f"`positives` group needs graphs with a `group`, which {self.dataset.name} lacks; set it in each "
                "graph, or name a column of a table by --group."
            )
        super().check_batches(ranks)

    def _sampler(self, size: int, generator: torch.Generator, shard: Shard) -> EpochBatches:
        groups, config = self.dataset.groups, self.config
        assert groups is not None
        return EpochPairs(groups, size, True, generator, config.shuffle_window, shard, config.singles)

    @property
    def num_ids(self) -> int:
        """Number of groups of the training part that give pairs."""
        graphs, groups = self.training_graphs, self.dataset.groups
        assert groups is not None
        return segments(groups if graphs is None else groups[graphs], self.config.singles)[1].numel()


@tasks.register("pairs")
class Pairs(Task):
    """Contrast the queries and the targets of listed pairs, graphs of one data set or of two.

    One encoder serves both, or each has its own (`towers` separate). Groups become the list of all their pairs if a
    setting needs a list. Rows are the queries, then the targets of a second data set.
    """

    place = 50

    @classmethod
    def claims(cls, config: Config, dataset: GraphDataset) -> bool:
        """Return whether there is a list of pairs, or a setting needs one of all pairs of the groups."""
        of_groups = config.positives == "group" and dataset.rows == "graphs" and dataset.groups is not None
        return dataset.relation is not None or (of_groups and not FACTS["drawn"](config, None))

    @cached_property
    def relation(self) -> Relation:
        """The pairs to train on."""
        return self.dataset.relation or relation_of_groups(cast(Tensor, self.dataset.groups))

    @property
    def targets(self) -> GraphDataset | None:
        """Data set of the targets; None if it is that of the queries."""
        return self.dataset.targets

    @property
    def training_targets(self) -> Tensor | None:
        """Graphs of the data set of the targets to train on; None for all."""
        rows, n = self.training_rows, len(self.dataset)
        if rows is None:
            return None
        return rows[rows >= n] - n if self.targets is not None else rows[rows < n]

    def check_method(self, method: Method) -> None:
        """Raise InputError if the method does not use the weights or the negatives of the pairs."""
        mined = self.relation.negatives is not None or self.config.hard_negatives > 0
        method.check_pairs(True, self.relation.weight is not None, mined)

    def _sampler(self, size: int, generator: torch.Generator, shard: Shard) -> EpochBatches:
        place, ratio = self.places("batch_by"), self.config.batch_share
        return ListedPairs(self.relation, size, True, generator, shard, place, ratio, self.takes_labels)

    def training_loader(self, generator: torch.Generator, device: torch.device, shard: Shard = WHOLE) -> Any:
        """Return the loader of the training batches, of queries and targets."""
        sampler = self.sampler(self.config.batch_size, generator, shard)
        return make_loader(self.dataset, device=device, batch_sampler=sampler, targets=self.targets)

    def others(self, device: torch.device) -> Iterable[Batch]:
        """Return a loader of the targets of a second data set."""
        return () if self.targets is None else _Targets(make_loader(self.targets, EMBED_BATCH, device=device))

    def sample(self) -> Any:
        """Return two graphs; of two data sets, two queries and two targets."""
        queries = super().sample()
        return queries if self.targets is None else (queries, Batch.from_data_list(self.targets.sample()))

    @property
    def num_ids(self) -> int:
        """Number of components of the pairs."""
        return int(self.relation.component.max()) + 1

    def make_model(self, seed: int = 0, encoder: OwnEncoders = None, trained: bool = True) -> ContrastiveModel:
        """Return a model on the CPU before training, of one encoder or of two; see `Task.make_model`."""
        config = self.config
        if config.towers == "shared":
            return super().make_model(seed, encoder, trained)
        encoders = both(encoder)
        make = encoder_maker(config.encoder, self.dataset, encoders[0])
        make_target = encoder_maker(config.target_encoder, self.targets or self.dataset, encoders[1], "target_encoder")
        with seeded(seed):
            query, target = make(), make_target()
            first = Tower(query, config.projection, config.projector)
            second = Tower(target, first.out_channels, config.projector)
            if config.init is not None and trained:
                load_initial(config.init, first, encoders[0])
                if read_saved(config.init)[0].target is not None:
                    load_initial(config.init, second, encoders[1], "target")
            return TwoTowers(first, second)

    def check_encoder(self, encoder: nn.Module) -> None:
        """Raise InputError if one encoder is to encode queries and targets that have other columns."""
        if self.targets is None:
            return
        for key, used, of in (
            ("x", True, _columns),
            ("edge_attr", accepts(encoder, "edge_attr"), lambda side: f"{side.num_edge_features or 'no'} columns"),
        ):
            if used and of(self.dataset) != of(self.targets):
                raise InputError(
                    f"one encoder takes graphs with the same columns, but `{key}` of the queries has "
                    f"{of(self.dataset)}, that of the targets {of(self.targets)}; pass --towers separate."
                )

    def standardised(self, model: ContrastiveModel) -> Task:
        """Return the task on graphs with standardised columns, those of targets for their encoder."""
        if not self.config.standardise_columns or self.dataset.scales:
            return self
        scales = self.column_scales(model)
        dataset = self.dataset.standardised(scales)
        if self.targets is not None:
            dataset.targets = self.targets.standardised(self._target_scales(model) if _two(model) else scales)
        return self.on(dataset)

    def _target_scales(self, model: ContrastiveModel) -> dict[str, Scale]:
        """Return the scales of the columns of targets that have an encoder of their own."""
        return self._scales(self.targets or self.dataset, model.role("target"), self.training_targets)

    def calibrated(self, model: ContrastiveModel, seed: int = 0, like: object = None) -> ContrastiveModel:
        """Return a copy of `model` with new BatchNorm statistics, see `Task.calibrated`.

        Each of two encoders gets the statistics of its role; one encoder those of queries and targets.
        """
        order = torch.Generator().manual_seed(CALIBRATION_SEED + seed)
        targets = partial(self._equal_batches, self.targets or self.dataset, self.training_targets, order=order)
        queries = self._equal_batches(self.dataset, self.training_graphs, model, order, like)
        if _two(model):
            calibrated = cast(TwoTowers, calibrate(model, queries))
            calibrated.target = calibrate(model.role("target"), targets(model=model))
            return calibrated
        return calibrate(model, queries if self.targets is None else chain(queries, targets(model=model)))

    def after_epoch(self, epoch: Epoch, model: ContrastiveModel, whole: Iterable[Batch], batches: Any) -> None:
        """Mine negatives for the next epochs, see `mine_hard_negatives`; with `batch_by`, from the query's place."""
        config = self.config
        if not config.hard_negatives or epoch.epoch % config.mine_every:
            return
        rows = model.features(embed(model, whole)[0][: self.dataset.num_rows])  # without augmented copies
        n, sampler = len(self.dataset), batches.batch_sampler
        targets = rows if self.targets is None else rows[n:]
        count, margin, within = config.hard_negatives, config.mine_margin, self.places("batch_by")
        sampler.relation = mine_hard_negatives(
            rows[:n], targets, sampler.relation, count, relative_margin=margin, within=within
        )

    def queries(self, rows: Any) -> Any:
        """Return the rows of the queries."""
        return rows[: len(self.dataset)]

    def labels(self, y: Tensor | None) -> Any:
        """Return the labels of the queries."""
        return y if self.targets is None else self.dataset._data.get("y")

    @property
    def facts(self) -> set[str]:
        """Needs of reference rows that the data set meets; `columns` if queries and targets have as many."""
        same = self.targets is None or self.dataset.num_features == self.targets.num_features
        return super().facts - (set() if same else {"columns"})

    @property
    def offers(self) -> set[str]:
        """What rows can be scored by; of two data sets, neither labels nor copies."""
        return super().offers - (set() if self.targets is None else {"labels", "copies"})

    def together(self) -> dict[str, Any]:
        """Return the listed pairs and the rows that are searched, of two data sets both ways; or the groups."""
        relation = self.dataset.relation
        if relation is None:
            return super().together()
        back = {} if self.targets is None else {"queries": torch.arange(len(self.dataset))}
        return {"pairs": relation.nodes, "targets": relation.targets, **back}

    def refusal(self, evaluator: str) -> tuple[str, str]:
        """Return why an evaluator does not fit, and the need whose usual evaluator does."""
        if self.targets is None:
            return super().refusal(evaluator)
        return f"is searched for graphs of {self.targets.name}", "groups"

    def describe(self) -> str | None:
        """Return a line with the numbers of pairs and of graphs."""
        relation = self.dataset.relation
        if relation is None:
            return super().describe()
        return f"pairs: {len(relation.query)} of {relation.num_nodes} graphs"

    def description(self, model: ContrastiveModel, encoder: OwnEncoders = None) -> EncoderDescription:
        """Return the description that is saved with the weights; of separate towers, also of the targets' encoder."""
        description = super().description(model, encoder)
        if not _two(model):
            return description
        targets, named = self.targets or self.dataset, both(encoder)[1] is None
        scales = self._target_scales(model)
        target = describe_encoder(self.config, self.config.target_encoder, targets, model.role("target"), scales, named)
        return description.model_copy(update={"target": target})


class _Targets:
    """Loader of targets, whose batches have the attribute `role`."""

    def __init__(self, loader: Iterable[Batch]) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._loader:
            batch.role = "target"
            yield batch


def _two(model: ContrastiveModel) -> bool:
    """Return whether targets have an encoder of their own."""
    return model.role("target") is not model


def _columns(side: GraphDataset) -> str:
    return f"{side.num_features} columns of {'numbers' if has_numbers(side) else 'categories'}"
