"""The task of nodes: contrast and score the nodes of one graph or a few, in batches by sampled neighbours if wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from graphcl.arguments import named_arguments
from graphcl.config import Config
from graphcl.datasets.dataset import GraphDataset
from graphcl.errors import InputError
from graphcl.extensions.nodes.datasets import NodeDataset
from graphcl.extensions.nodes.models import NodeModel, NodeRows
from graphcl.loaders.samplers import WHOLE, EpochBatches, Shard
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
            neighbour_sampler()
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

    @property
    def has_batches(self) -> bool:
        """Whether an epoch has several batches, of which `batch_size` is the size."""
        return len(self.dataset) > 1 or bool(self.neighbours)

    def refusal(self, evaluator: str) -> tuple[str, str]:
        """Return why an evaluator does not fit, and the rows whose usual evaluator does."""
        return "has no train_mask, val_mask and test_mask", "nodes"


class NeighbourLoader:
    """Loader of random nodes and their sampled neighbours, by PyG's `NeighborLoader` on the CPU.

    Every node is drawn once per epoch. A batch is one subgraph, which has the attribute `num_seeds`: its first rows are
    the drawn nodes, the others are sampled neighbours. `NodeModel` returns the rows of the drawn nodes only. The
    neighbours are drawn by torch's global generator. For the other arguments, see `ResidentLoader`.

    Args:
        dataset: graph, or a few.
        neighbours: number of neighbours to sample for each node, one number per layer of the encoder.
        batch_size: number of nodes drawn for a batch, >= 1.

    Raises:
        InputError: neither pyg-lib nor torch-sparse is installed.
    """

    @named_arguments
    def __init__(
        self,
        dataset: NodeDataset,
        neighbours: Sequence[int],
        batch_size: int,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self._keys, self._device = dataset[0].keys(), device
        whole = Batch.from_data_list(list(dataset))
        graph = Data(**{key: whole[key] for key in self._keys})
        self._sampled = neighbour_sampler()(graph, list(neighbours))
        self.batch_sampler = EpochBatches(graph.x.size(0), batch_size, True, generator)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Batch]:
        for nodes in self.batch_sampler.draw():
            yield self.batch(nodes)

    def batch(self, nodes: Tensor) -> Batch:
        """Return a subgraph of the nodes with the indices `nodes [K]` and sampled neighbours."""
        part = self._sampled(nodes)
        batch = Batch.from_data_list([Data(**{key: part[key] for key in self._keys})]).to(self._device)
        batch.num_seeds = nodes.numel()
        return batch


def neighbour_sampler() -> Any:
    """Return PyG's `NeighborLoader`.

    Raises:
        InputError: neither pyg-lib nor torch-sparse, its compiled parts, can be imported.
    """
    from torch_geometric import loader, typing  # imported here, as they import pandas

    if not (typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE):
        raise InputError(
            "`neighbours` needs pyg-lib or torch-sparse, which sample for PyG's NeighborLoader; install one of them "
            "(see PyG's installation page), or leave `neighbours` out to encode the whole graph."
        )
    return loader.NeighborLoader
