"""The base of encoders that call another encoder."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from graphcl.models.interface import call, optional_arguments, width_of


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
            each in self._optional for each in ("edge_attr", "edge_weight")
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
        x, known = self._inputs(x, size=size, edge_attr=edge_attr, edge_weight=edge_weight)
        uses = {"batch": True} | self._optional
        return self._output(call(self.encoder, x, edge_index, uses, batch=batch, **known))

    def _inputs(self, x: Tensor, **known: Any) -> tuple[Tensor, dict[str, Any]]:
        """Return `x` and the other arguments, as the encoder receives them."""
        return x, known

    def _output(self, h: Tensor) -> Tensor:
        """Return the embeddings of this encoder, given those of the other one."""
        return h
