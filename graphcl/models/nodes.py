"""The model for contrasting nodes: the rows of an encoder's nodes instead of those of graphs."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.models.contrastive import ContrastiveModel


class NodeModel(ContrastiveModel):
    """A `ContrastiveModel` whose embeddings are rows of nodes, `[N, H]`, so that methods contrast nodes.

    Both views of a batch must keep every node. The encoder has `with_nodes`, as `gin`, `node_gcn` and any `Pooled`
    have. Only the first `num_seeds` nodes get a row if the batch has that attribute, as those of
    `graphcl.loaders.neighbours.NeighbourLoader` have. For the arguments, see `ContrastiveModel`.
    """

    def encode(self, batch: Batch, edge_weight: Tensor | None = None) -> Tensor:
        """Return the embeddings `[N, H]` of the nodes of `batch`; `edge_weight` is not supported."""
        return self.encode_nodes(batch)[1][: batch.get("num_seeds")]

    def encode_views(self, view1: Batch, view2: Batch) -> tuple[Tensor, Tensor]:
        """Return the embeddings `[N, H]` of each view."""
        return self.encode(view1), self.encode(view2)


class NodeRows(nn.Module):
    """Encoder that returns the rows of nodes, `[N, H]`, instead of those of graphs."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder: Any = encoder

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Return the rows `[N, H]` of the nodes."""
        given = {"edge_attr": edge_attr, "edge_weight": edge_weight}
        more = {name: each for name, each in given.items() if each is not None}
        rows: Tensor = self.encoder.with_nodes(x, edge_index, **more)[1]
        return rows
