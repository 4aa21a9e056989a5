"""Node dropping (You et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import Ratio
from graphcl.augment.transform import Augmentation, Decision
from graphcl.graphs.batching import Layout
from graphcl.graphs.segment import random_subset, ratio_count, to_device
from graphcl.registry import augmentations


@augmentations.register("node_drop")
class NodeDrop(Augmentation):
    r"""Remove floor(ratio n) uniformly drawn nodes from each graph of n nodes, with their edges.

    The remaining nodes are renumbered 0, 1, ...; removed nodes do not stay as isolated nodes.

    Differs: the released GraphCL code also removes nodes that end up without an edge.

    Args:
        ratio: fraction of the nodes to remove, in [0, 1). At least one node stays.

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> graph = FakeDataset(num_graphs=1, avg_num_nodes=20)[0]
        >>> NodeDrop(ratio=0.5)(graph).num_nodes == graph.num_nodes - graph.num_nodes // 2
        True

    References:
        You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020, Section 3.1 (arXiv 2010.13902).
    """

    def __init__(self, ratio: Ratio = 0.2) -> None:
        self.ratio = ratio

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Return a decision with the drawn nodes to keep."""
        layout = Layout.of(batch)
        k = to_device(ratio_count(self.ratio, layout.host_nodes), layout.ptr.device)
        return Decision(
            keep_node=~random_subset(layout.ptr, k if graphs is None else k * graphs, generator, layout.batch)
        )
