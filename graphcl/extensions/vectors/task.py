"""The task of pairs whose targets are vectors: a tower of graphs, and one of vectors."""

from __future__ import annotations

import copy
from typing import cast

from torch import nn

from graphcl.config import Config
from graphcl.datasets.dataset import GraphDataset
from graphcl.errors import InputError
from graphcl.extensions.vectors.source import VectorDataset
from graphcl.graphs.columns import Scale
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.interface import OwnEncoders
from graphcl.models.saved import EncoderDescription
from graphcl.registry import tasks
from graphcl.tasks.pairs import Pairs
from graphcl.tasks.task import Task, both


@tasks.register("vectors")
class Vectors(Pairs):
    """Contrast graphs with the vectors that a list pairs them with.

    The columns of vectors are standardised by the training part, whatever `standardise_columns` says of graphs.
    """

    place = 40

    def __init__(self, config: Config, dataset: GraphDataset) -> None:
        spec, targets = config.target_encoder, cast(GraphDataset, dataset.targets)
        if "missing" in spec and bool(targets._data.x.isnan().any()):
            config = config.model_copy(update={"target_encoder": {**spec, "missing": True}})
        super().__init__(config, dataset)

    @classmethod
    def claims(cls, config: Config, dataset: GraphDataset) -> bool:
        """Return whether the targets are vectors."""
        return isinstance(dataset.targets, VectorDataset)

    def make_model(self, seed: int = 0, encoder: OwnEncoders = None, trained: bool = True) -> ContrastiveModel:
        """Return a model of two towers; a module for graphs does not serve vectors too. See `Task.make_model`."""
        return super().make_model(seed, _of_roles(encoder), trained)

    def check_encoder(self, encoder: nn.Module) -> None:
        """Raise InputError, as one encoder cannot take graphs and vectors."""
        raise InputError(f"`towers` shared does not fit {self.dataset.targets}; leave it out.")

    def standardised(self, model: ContrastiveModel) -> Task:
        """Return the task on standardised vectors, and on standardised columns of graphs if a setting asks for them."""
        task = super().standardised(model)
        dataset = copy.copy(task.dataset)
        assert dataset.targets is not None
        if not dataset.targets.scales:
            dataset.targets = dataset.targets.standardised(self._target_scales(model))
        return self.on(dataset)

    def _target_scales(self, model: ContrastiveModel) -> dict[str, Scale]:
        assert self.targets is not None
        return dict(self.targets.scales or self.targets.column_scales(self.training_targets))

    @property
    def facts(self) -> set[str]:
        """Needs of reference rows that the data set meets: `vectors`, and `query.KEY` of the attributes of graphs."""
        return {"vectors", *(f"query.{key}" for key in self.dataset.slices or ())}

    def refusal(self, evaluator: str) -> tuple[str, str]:
        """Return why an evaluator does not fit, and the need whose usual evaluator does."""
        return "is searched for vectors", "groups"

    def describe(self) -> str | None:
        """Return a line with the numbers of pairs, graphs and vectors."""
        return f"pairs: {len(self.relation.query)} of {len(self.dataset)} graphs and {self.dataset.targets}"

    def description(self, model: ContrastiveModel, encoder: OwnEncoders = None) -> EncoderDescription:
        """Return the description that is saved with the weights of both towers."""
        return super().description(model, _of_roles(encoder))


def _of_roles(encoder: OwnEncoders) -> OwnEncoders:
    """Return the user's own encoders of graphs and vectors; one that was given for both is that of graphs."""
    query, target = both(encoder)
    return query, None if target is query else target
