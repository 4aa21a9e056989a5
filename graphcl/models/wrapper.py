"""Define encoders around another encoder, with standardised inputs or a projector, and the model of two of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import ProjectorName, Role
from graphcl.errors import InputError
from graphcl.graphs.columns import Scale, standardise
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.interface import call, optional_arguments, width_of
from graphcl.models.perceptron import make_projector


class Wrapper(nn.Module):
    """Encoder that passes on to another one what that takes; subclasses change the inputs or the embeddings.

    Args:
        encoder: the encoder; called as `ContrastiveModel` documents.
        out_channels: width of the embeddings; default: that of `encoder`.
    """

    def __init__(self, encoder: nn.Module, out_channels: int | None = None) -> None:
        super().__init__()
        self.encoder, self.out_channels = encoder, cast(int, out_channels or width_of(encoder))
        self._optional = optional_arguments(encoder, ("size", "edge_attr", "edge_weight"))
        self.supports_edge_attr, self.supports_edge_weight = (
            name in self._optional for name in ("edge_attr", "edge_weight")
        )

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        *,
        size: int | None = None,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the embeddings h `[B, H]` of B graphs; arguments as for `GraphEncoder.forward`."""
        x, edge_attr = self._inputs(x, edge_attr)
        uses, of_edges = {"batch": True} | self._optional, {"edge_attr": edge_attr, "edge_weight": edge_weight}
        return self._output(call(self.encoder, x, edge_index, uses, batch=batch, size=size, **of_edges))

    def _inputs(self, x: Tensor, edge_attr: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return `x` and `edge_attr` as the encoder receives them."""
        return x, edge_attr

    def _output(self, h: Tensor) -> Tensor:
        """Return the embeddings, given those of the encoder."""
        return h


class Standardised(Wrapper):
    """Encoder that standardises the columns of `x` and `edge_attr`, and passes them on to another encoder.

    Args:
        encoder: the encoder, trained on standardised columns; called as `ContrastiveModel` documents.
        scales: mean and deviation of each column, of `x` and, if the encoder uses them, of `edge_attr`.
    """

    scale_of_x: Tensor | None
    scale_of_edge_attr: Tensor | None

    def __init__(self, encoder: nn.Module, scales: Mapping[str, Scale]) -> None:
        super().__init__(encoder)
        for name in ("x", "edge_attr"):
            scale = torch.tensor(scales[name], dtype=torch.float64) if name in scales else None
            self.register_buffer(f"scale_of_{name}", scale)

    def with_nodes(
        self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, edge_attr: Tensor | None = None, **more: Any
    ) -> tuple[Tensor, Tensor]:
        """Return graph embeddings `[B, H]` and node embeddings `[N, H]`; arguments as for `GraphEncoder.forward`."""
        x, more["edge_attr"] = self._inputs(x, edge_attr)
        encoder: Any = self.encoder
        uses = {"batch": True} | optional_arguments(encoder, more, "with_nodes")
        rows: tuple[Tensor, Tensor] = call(encoder.with_nodes, x, edge_index, uses, batch=batch, **more)
        return rows

    def _inputs(self, x: Tensor, edge_attr: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if self.scale_of_x is not None:
            x = standardise(x, self.scale_of_x)
        if self.scale_of_edge_attr is not None and edge_attr is not None:
            edge_attr = standardise(edge_attr, self.scale_of_edge_attr)
        return x, edge_attr


class Tower(Wrapper):
    """A graph encoder and its projector, as one encoder whose embeddings are the projections `[B, D]`.

    Embeddings of two encoders are comparable only after their projectors, so a tower keeps its projector.

    Args:
        encoder: module that returns embeddings `[B, H]` and has the attribute `out_channels`, H.
        projection: D, width of the projections; default: H.
        projector: form of the projector, see `make_projector`.
    """

    def __init__(self, encoder: nn.Module, projection: int | None = None, projector: ProjectorName = "mlp") -> None:
        super().__init__(encoder, projection)
        self.projector = make_projector(cast(int, width_of(encoder)), self.out_channels, projector)

    def _output(self, h: Tensor) -> Tensor:
        z: Tensor = self.projector(h)
        return z


class TwoTowers(ContrastiveModel):
    """A `ContrastiveModel` of queries, with a second model of targets that may have other node and edge columns.

    Args:
        query: tower of the first view.
        target: tower of the second view, of the same width D.

    Attributes:
        target: model of the targets.

    Raises:
        InputError: the widths differ.

    Example:
        >>> from graphcl.models.gin import GIN
        >>> model = TwoTowers(Tower(GIN(7, hidden_channels=16), 8), Tower(GIN(3, hidden_channels=32), 8))
        >>> model.width, model.role("target").width
        (8, 8)
    """

    target: ContrastiveModel

    def __init__(self, query: Tower, target: Tower) -> None:
        if query.out_channels != target.out_channels:
            both = f"{query.out_channels} and {target.out_channels}"
            raise InputError(f"both towers need the same width, got {both}; pass the same `projection`.")
        super().__init__(query, projector="none")
        self.target = ContrastiveModel(target, projector="none")

    def encode(self, batch: Batch, edge_weight: Tensor | None = None) -> Tensor:
        """Return the embeddings `[B, D]`; of a batch whose attribute `role` is "target", by the model of targets."""
        if batch.get("role") == "target":
            return self.target.encode(batch, edge_weight)
        return super().encode(batch, edge_weight)

    def role(self, role: Role) -> ContrastiveModel:
        """Return the model of queries or of targets."""
        return self if role == "query" else self.target
