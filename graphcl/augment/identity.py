"""The identity augmentation, which uses the original graphs as a view."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment.decision import Decision
from graphcl.augment.transform import Augmentation
from graphcl.registry import augmentations


@augmentations.register("identity")
class Identity(Augmentation):
    """Leave every graph unchanged.

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> graph = FakeDataset(num_graphs=1)[0]
        >>> Identity()(graph).num_nodes == graph.num_nodes
        True
    """

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Return a decision that changes nothing."""
        return Decision()
