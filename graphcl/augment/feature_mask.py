"""Masking of feature columns, and GRACE's view (Zhu et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import Ratio
from graphcl.augment.decision import Decision
from graphcl.augment.transform import Augmentation
from graphcl.errors import InputError
from graphcl.graphs.batching import Layout
from graphcl.graphs.segment import nonzero, pick
from graphcl.registry import augmentations


@augmentations.register("feature_mask")
class FeatureMask(Augmentation):
    r"""Set random columns of each graph's node features to zero, each with probability `ratio`.

    $$\tilde x_v = x_v \circ m_g, \qquad m_{gk} \sim \mathrm{Bernoulli}(1 - p)$$

    where v is a node of graph g, k a column and p is `ratio`. All nodes of a graph lose the same columns.

    Args:
        ratio: probability p of masking a column, in [0, 1).

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> graph = FakeDataset(num_graphs=1, avg_num_nodes=20)[0]
        >>> masked = FeatureMask(ratio=0.5)(graph)
        >>> bool(((masked.x == graph.x) | (masked.x == 0)).all())
        True

    References:
        Zhu et al., "Deep Graph Contrastive Representation Learning", 2020, Section 3.2.2 (arXiv 2006.04131).
    """

    def __init__(self, ratio: Ratio = 0.2) -> None:
        self.ratio = ratio

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Return a decision with the features after masking."""
        x = batch.get("x")
        if x is None or not x.is_floating_point():
            found = "none" if x is None else x.dtype
            raise InputError(f"feature_mask needs floating-point node features `x`, got {found}; use edge_drop.")
        layout = Layout.of(batch)
        x = x if x.dim() > 1 else x[:, None]
        keep = torch.rand(layout.num_graphs, x.size(1), generator=generator, device=x.device) >= self.ratio
        if graphs is None:
            nodes, graph = torch.arange(layout.num_nodes, device=x.device), layout.batch
        else:
            nodes = nonzero(pick(graphs, layout.batch))
            x, graph = pick(x, nodes), pick(layout.batch, nodes)
        return Decision(masked=nodes, features=(x * pick(keep, graph)).view(-1, *batch.x.shape[1:]))
