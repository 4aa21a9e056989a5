"""The model of two kinds of graphs: one encoder for queries and another for targets, into one space."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import ProjectorName
from graphcl.errors import InputError
from graphcl.models.contrastive import ContrastiveModel, Role
from graphcl.models.interface import width_of
from graphcl.models.projector import make_projector
from graphcl.models.wrapper import Wrapper


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
        projections: Tensor = self.projector(h)
        return projections


def make_tower(make: Callable[[], nn.Module], projection: int, projector: ProjectorName) -> Tower:
    """Return the tower of the encoder that `make` returns."""
    return Tower(make(), projection, projector)


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
