"""Deep Sets: an encoder that sees the nodes of a graph and not its edges (Zaheer et al. 2017)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from graphcl.arguments import Channels, Layers
from graphcl.errors import InputError
from graphcl.models.aggregate import SegmentIndex, count_graphs, segment_sum
from graphcl.models.perceptron import initialise
from graphcl.registry import encoders


@encoders.register("deep_sets")
class DeepSets(nn.Module):
    r"""Deep Sets: a perceptron of a graph's bag of nodes, the encoder to compare with to see what edges add.

    $$h_G = \rho(b_G), \qquad b_G = \operatorname{sign}(c) \log(1 + |c|), \qquad c = \sum_{v \in G} x_v$$

    where $x_v$ are the features of node v, and $\rho$ is a perceptron with ReLU after each layer but the last. With
    one-hot labels, c is the histogram of labels. The logarithm compresses large graphs and keeps their size. Edges are
    ignored. A graph without nodes has h = 0.

    Args:
        in_channels: F, width of the node features.
        hidden_channels: H, width of each layer and of the embeddings.
        num_layers: number of layers of the perceptron.
        readout: b_G: `log_sum` as above, or the `sum` c, or the `mean` over nodes, which loses the size.

    Raises:
        InputError: when called: `x` has another width.

    Example:
        >>> encoder = DeepSets(7, hidden_channels=32)
        >>> edges, one = torch.tensor([[0, 1], [1, 0]]), torch.randn(4, 7)
        >>> torch.equal(encoder(one, edges), encoder(one, edges[:, :0]))
        True

    Differs: the paper also applies a perceptron to each node before the sum; here it is the identity. For one-hot
    labels it would only add a linear layer to the histogram.

    Reference: Zaheer et al., "Deep Sets", NeurIPS 2017, theorem 2 (arXiv 1703.06114).
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: Channels = 256,
        num_layers: Layers = 2,
        readout: Literal["log_sum", "sum", "mean"] = "log_sum",
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.readout = in_channels, hidden_channels, readout
        widths = [in_channels] + [hidden_channels] * (num_layers - 1)
        layers = [module for width in widths for module in (nn.Linear(width, hidden_channels), nn.ReLU())]
        self.mlp = initialise(nn.Sequential(*layers[:-1]))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, *, size: int | None = None) -> Tensor:
        """Return the embeddings h `[B, H]` of B graphs; arguments as for `GraphEncoder.forward`."""
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise InputError(f"DeepSets takes `x` of shape [N, {self.in_channels}], got {list(x.shape)}.")
        if batch is None:
            batch, size = torch.zeros(x.size(0), dtype=torch.long, device=x.device), 1
        graphs = SegmentIndex.of(batch.long(), count_graphs(batch) if size is None else size)
        bags, counts = segment_sum(x, graphs), (graphs.ptr[1:] - graphs.ptr[:-1])[:, None]
        if self.readout == "mean":
            bags = bags / counts.clamp(min=1)
        elif self.readout == "log_sum":
            bags = bags.sign() * bags.abs().log1p()
        return self.mlp(bags) * (counts > 0)
