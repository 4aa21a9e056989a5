"""The task of nodes: contrast and score the nodes of one graph or a few."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch_geometric.data import Batch

from graphcl.config import Config
from graphcl.datasets.dataset import GraphDataset
from graphcl.errors import InputError
from graphcl.extensions.nodes.loader import NeighbourLoader, import_neighbor_loader
from graphcl.extensions.nodes.models import NodeModel, NodeRows
from graphcl.loaders.order import WHOLE, Shard
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods, tasks
from graphcl.tasks.task import Task


@tasks.register("nodes")
class Nodes(Task):
    """Contrast two views of every node."""

    rows = contrasts = "nodes"
    usual_method, place = "grace", 10

    @classmethod
    def claims(cls, config: Config, dataset: GraphDataset) -> bool:
        """Return whether the data set is one of nodes."""
        return dataset.rows == "nodes"

    @property
    def neighbours(self) -> list[int]:
        """Numbers of neighbours to sample; none for all."""
        settings: Any = self.config
        numbers: list[int] = settings.neighbours
        return numbers

    def check_batches(self, ranks: int) -> None:
        """Raise InputError if the neighbours cannot be sampled, or the method does not divide nodes among ranks."""
        if self.neighbours:
            import_neighbor_loader()
        name = self.config.method["name"]
        if ranks > 1 and not getattr(methods[name], "divides_nodes", False):
            raise InputError(
                f"method `{name}` takes O(N) time for N nodes, which {ranks} ranks would not shorten; start one "
                "process."
            )

    def training_loader(self, generator: torch.Generator, device: torch.device, shard: Shard = WHOLE) -> Any:
        """Return the loader of whole graphs, or of nodes and their sampled neighbours."""
        if not self.neighbours:
            return super().training_loader(generator, device, shard)
        return NeighbourLoader(self.dataset, self.neighbours, self.config.batch_size, generator, device)

    def check_views(self, view1: Batch, view2: Batch) -> None:
        """Raise InputError if a view of `sample` does not keep every node, in order."""
        nodes = self.dataset.sample()[0].node_id
        for name, view in (("first", view1), ("second", view2)):
            if not torch.equal(view.node_id, nodes):
                raise InputError(
                    f"`views.{name}` removes nodes, so that row i of both views is not the same node; use edge_drop, "
                    "feature_mask, attribute_mask, edge_perturb or drop_and_mask."
                )

    @staticmethod
    def model_of(encoder: nn.Module, projection: int | None = None, projector: Any = "mlp") -> ContrastiveModel:
        """Return the model that contrasts nodes."""
        return NodeModel(encoder, projection, projector)

    @staticmethod
    def embedder(encoder: nn.Module) -> nn.Module:
        """Return the module whose rows are those of nodes."""
        return NodeRows(encoder)

    def without_labels(self) -> dict[str, Any]:
        """Return the settings to update: one seed by default."""
        return {} if "seeds" in self.config.model_fields_set else {"seeds": [0]}

    @property
    def has_batches(self) -> bool:
        """Whether an epoch has several batches, of which `batch_size` is the size."""
        return len(self.dataset) > 1 or bool(self.neighbours)

    @property
    def offers(self) -> set[str]:
        """What rows can be scored by; copies are of graphs."""
        return super().offers - {"copies"}

    def refusal(self, evaluator: str) -> tuple[str, str]:
        """Return why an evaluator does not fit, and the rows whose usual evaluator does."""
        return "has no train_mask, val_mask and test_mask", "nodes"
