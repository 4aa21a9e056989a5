"""Define the loader of nodes with sampled neighbours, for graphs that are too large to train on as a whole."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphcl.arguments import named_arguments
from graphcl.errors import InputError
from graphcl.extensions.nodes.datasets import NodeDataset
from graphcl.loaders.order import EpochBatches


def import_neighbor_loader() -> Any:
    """Return PyG's `NeighborLoader`.

    Raises:
        InputError: neither pyg-lib nor torch-sparse, its compiled parts, can be imported.
    """
    typing, loader = (importlib.import_module(f"torch_geometric.{name}") for name in ("typing", "loader"))
    if not (typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE):
        raise InputError(
            "`neighbours` needs pyg-lib or torch-sparse, which sample for PyG's NeighborLoader; install one of them "
            "(see PyG's installation page), or leave `neighbours` out to encode the whole graph."
        )
    return loader.NeighborLoader


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
        self._sampled = import_neighbor_loader()(graph, list(neighbours))
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
