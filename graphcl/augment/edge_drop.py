"""Edge dropping (Zhu et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import Ratio
from graphcl.augment.decision import Decision
from graphcl.augment.transform import Augmentation
from graphcl.graphs.batching import Layout
from graphcl.graphs.segment import pick
from graphcl.registry import augmentations


@augmentations.register("edge_drop")
class EdgeDrop(Augmentation):
    r"""Remove each directed edge independently, with probability `ratio`; all nodes stay.

    $$\tilde A = A \circ R, \qquad R_{uv} \sim \mathrm{Bernoulli}(1 - p)$$

    where A is the adjacency matrix and p is `ratio`. The two directions of an edge are drawn independently, so a view
    of an undirected graph is directed. `edge_perturb` with `add=False` removes an exact number of undirected edges.

    Args:
        ratio: probability p of removing an edge, in [0, 1).

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> graph = FakeDataset(num_graphs=1, avg_num_nodes=20)[0]
        >>> EdgeDrop(ratio=0.5)(graph).num_nodes == graph.num_nodes
        True

    References:
        Zhu et al., "Deep Graph Contrastive Representation Learning", 2020, Section 3.2.2 (arXiv 2006.04131).
    """

    def __init__(self, ratio: Ratio = 0.2) -> None:
        self.ratio = ratio

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Return a decision with the drawn edges to keep."""
        layout = Layout.of(batch)
        keep = torch.rand(layout.num_edges, generator=generator, device=layout.ptr.device) >= self.ratio
        return Decision(keep_edge=keep if graphs is None else keep | ~pick(graphs, layout.edge_graph))
