"""Encoder and projector: what contrastive training optimises."""

from __future__ import annotations

import inspect
from typing import Literal, get_args

from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.errors import InputError

Head = Literal["mlp", "linear"]


class ContrastiveModel(nn.Module):
    """An encoder, kept after training, and a projector, dropped.

    Any PyG encoder of whole graphs with the call `(x, edge_index, batch=...)` fits. If it has parameters named `size`
    or `edge_attr`, it gets the number of graphs and the edge attributes too.

    Args:
        encoder: gives embeddings h `[B, H]`; its `out_channels` is H.
        projection: D, width of the projection; H by default, as in GraphCL.
        head: the projector: `mlp` (Linear, ReLU, Linear) or `linear` (one layer, as in MoCo v1).
        out_channels: H, where the encoder has no such attribute.

    Raises:
        InputError: the width of the embeddings is unknown, or (when called) the encoder gives no row for each graph.
    """

    def __init__(
        self,
        encoder: nn.Module,
        projection: int | None = None,
        head: Head = "mlp",
        out_channels: int | None = None,
    ) -> None:
        super().__init__()
        width = out_channels or getattr(encoder, "out_channels", None)
        if width is None:
            raise InputError(f"{type(encoder).__name__} has no `out_channels`; pass `out_channels=` its output width.")
        if head not in get_args(Head):
            raise InputError(f"`head` must be 'mlp' or 'linear', got {head!r}.")
        self.encoder, self.projection = encoder, projection or width
        hidden = [nn.Linear(width, width), nn.ReLU()] if head == "mlp" else []
        self.projector = nn.Sequential(*hidden, nn.Linear(width, self.projection))
        for layer in self.projector:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        accepted = inspect.signature(encoder.forward).parameters
        self._optional = [name for name in ("size", "edge_attr") if name in accepted]

    def encode(self, batch: Batch) -> Tensor:
        """Embeddings h `[B, H]` of the graphs of a batch."""
        known = {"size": batch.num_graphs, "edge_attr": batch.get("edge_attr")}
        optional = {name: known[name] for name in self._optional}
        h: Tensor = self.encoder(batch.x, batch.edge_index, batch=batch.batch, **optional)
        if h.dim() != 2 or h.size(0) != batch.num_graphs:
            raise InputError(
                f"{type(self.encoder).__name__} gives {list(h.shape)} for {batch.num_graphs} graphs, not a row for "
                f"each; wrap it in a module that pools its nodes, such as with `global_add_pool`."
            )
        return h

    def forward(self, batch: Batch) -> Tensor:
        """Projections z `[B, D]`."""
        z: Tensor = self.projector(self.encode(batch))
        return z
