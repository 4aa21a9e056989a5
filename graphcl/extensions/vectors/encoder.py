"""Define the encoder of vectors, a perceptron."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.arguments import Channels, Layers
from graphcl.errors import InputError
from graphcl.models.deep_sets import DeepSets
from graphcl.registry import encoders


@encoders.register("perceptron")
class VectorPerceptron(DeepSets):
    r"""Perceptron of vectors, the usual encoder of targets that are vectors.

    $$h = W_L \, \sigma(\dots \sigma(W_1 [v, m]))$$

    where v is the vector, $\sigma$ is ReLU and m, with `missing`, is 1 for each missing cell of v, which v has as 0. A
    projector follows: with `num_layers=1` and the projector `linear`, the tower is linear. A graph of several nodes
    counts as the sum of its rows.

    Args:
        in_channels: F, number of columns.
        hidden_channels: H, width of each layer and of the embeddings.
        num_layers: L, number of layers.
        missing: whether NaN in a vector is a missing cell. A run sets it if the vectors have any.

    Raises:
        InputError: when called: `x` has another width.

    Example:
        >>> encoder = VectorPerceptron(3, hidden_channels=8, missing=True)
        >>> vectors, edges = torch.tensor([[1.0, torch.nan, 2.0], [0.0, 3.0, 1.0]]), torch.zeros(2, 0).long()
        >>> encoder(vectors, edges, torch.arange(2)).isfinite().all()
        tensor(True)
    """

    def __init__(
        self, in_channels: int, hidden_channels: Channels = 512, num_layers: Layers = 1, missing: bool = False
    ) -> None:
        super().__init__((1 + missing) * in_channels, hidden_channels, num_layers, "sum")
        self.missing = missing

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, *, size: int | None = None) -> Tensor:
        """Return the embeddings h `[B, H]` of B vectors `x [B, F]`; arguments as for `GraphEncoder.forward`."""
        if (1 + self.missing) * x.size(-1) != self.in_channels:
            columns = self.in_channels // (1 + self.missing)
            raise InputError(f"encoder `perceptron` takes vectors of {columns} numbers, got {list(x.shape)}.")
        if self.missing:
            x = torch.cat([x.nan_to_num(), x.isnan().to(x.dtype)], dim=1)
        return super().forward(x, edge_index, batch, size=size)
