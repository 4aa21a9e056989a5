"""Define the model for contrasting the sparse rows of graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import ProjectorName
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.nodes import NodeModel
from graphcl.sparse.encoder import WLSparse
from graphcl.sparse.rows import SparseRows, shared_columns


class SparseModel(ContrastiveModel):
    """A `ContrastiveModel` without a projector, whose embeddings are the sparse rows of a `WLSparse` encoder.

    A loss receives the columns that two graphs of a batch share, see `shared_columns`.
    """

    sparse = True
    encoder: WLSparse

    def fit(self, batches: Iterable[Batch], group: Tensor) -> None:
        """Count the patterns of the training graphs, see `WLSparse.fit`."""
        self.encoder.fit(batches, group)
        self.width = self.projection = self.encoder.out_channels

    def encode(self, batch: Batch, edge_weight: Tensor | None = None) -> Any:
        """Return the embeddings of the graphs in `batch` as `SparseRows`; `edge_weight` is not supported."""
        known = {"size": batch.num_graphs, "edge_attr": batch.get("edge_attr")}
        rows: SparseRows = self.encoder.rows(batch.x, batch.edge_index, batch.batch, **known)
        return rows

    def encode_views(self, view1: Batch, view2: Batch) -> tuple[Tensor, Tensor]:
        """Return a dense matrix for each view, `[B, C]`, with the inner products of the rows of both."""
        rows = SparseRows.cat([self.encode(view1), self.encode(view2)])
        h1, h2 = shared_columns(rows).split([view1.num_graphs, view2.num_graphs])
        return h1, h2


def model_of(
    encoder: nn.Module, rows: str = "graphs", projection: int | None = None, projector: ProjectorName = "mlp"
) -> ContrastiveModel:
    """Return the model that contrasts graphs or nodes, the `rows`, by an encoder; a `WLSparse` has no projector."""
    if isinstance(encoder, WLSparse):
        return SparseModel(encoder, projector="none")
    return (NodeModel if rows == "nodes" else ContrastiveModel)(encoder, projection, projector)


def with_projector(encoder: nn.Module) -> ContrastiveModel:
    """Return the model of `encoder` and an untrained projector, in the training mode of `encoder`."""
    with torch.random.fork_rng(devices=[]):
        return model_of(encoder).train(encoder.training)
