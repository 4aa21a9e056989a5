"""Standardise the inputs of a trained encoder, as those of its training were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from graphcl.graphs.columns import Scale, standardise
from graphcl.models.interface import call, optional_arguments
from graphcl.models.wrapper import Wrapper


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
        for key in ("x", "edge_attr"):
            scale = torch.tensor(scales[key], dtype=torch.float64) if key in scales else None
            self.register_buffer(f"scale_of_{key}", scale)

    def with_nodes(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        *,
        size: int | None = None,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return graph embeddings `[B, H]` and node embeddings `[N, H]`; arguments as for `GraphEncoder.forward`."""
        x, known = self._inputs(x, size=size, edge_attr=edge_attr, edge_weight=edge_weight)
        uses = {"batch": True} | optional_arguments(self.encoder, known, "with_nodes")
        rows: tuple[Tensor, Tensor] = call(self.encoder.with_nodes, x, edge_index, uses, batch=batch, **known)  # type: ignore[arg-type]
        return rows

    def _inputs(self, x: Tensor, **known: Any) -> tuple[Tensor, dict[str, Any]]:
        """Return the standardised `x` and `edge_attr`, and the other arguments."""
        if self.scale_of_x is not None:
            x = standardise(x, self.scale_of_x)
        if self.scale_of_edge_attr is not None and known["edge_attr"] is not None:
            known["edge_attr"] = standardise(known["edge_attr"], self.scale_of_edge_attr)
        return x, known
