"""ResGCN, the encoder of GraphCL's semi-supervised experiments (Chen et al. 2019; You et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import batch_norm

from graphcl.arguments import Channels, Layers
from graphcl.models.aggregate import CSRAdjacency, SegmentIndex, tracing
from graphcl.models.batchnorm import Parts
from graphcl.models.encoder import Aggregate, GraphEncoder, Readout
from graphcl.models.perceptron import initialise
from graphcl.registry import encoders


class _GraphNorm(nn.BatchNorm1d):
    """BatchNorm of rows of graphs; a batch of one graph, which has no variance, takes the running statistics."""

    def forward(self, rows: Tensor) -> Tensor:
        if rows.size(0) > 1:
            return super().forward(rows)
        return batch_norm(rows, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


@encoders.register("resgcn")
class ResGCN(GraphEncoder):
    r"""Graph convolutions with BatchNorm before each layer, between a linear layer on nodes and one on graphs.

    $$x^{(0)} = \mathrm{ReLU}(\mathrm{BN}(x) W_0), \qquad x^{(l)} = \mathrm{ReLU}(\hat A \, \mathrm{BN}(x^{(l-1)}) W_l
    + b_l), \qquad h_G = \mathrm{BN}(\mathrm{ReLU}(\mathrm{BN}(\textstyle\sum_{v \in G} x_v^{(L)}) W + b))$$

    where $\hat A = D^{-1/2} (A + I) D^{-1/2}$ with the degrees D of A + I. All weights are Xavier-initialised. A graph
    without nodes has h = 0.

    Args:
        in_channels: F, width of the node features.
        hidden_channels: H, width of each layer and of the embeddings.
        num_layers: L, number of graph convolutions; the paper counts the two linear layers too, so its five are 3.
        readout: `sum`, `mean` or `max` over a graph's nodes.

    Example:
        >>> import torch
        >>> encoder = ResGCN(7, hidden_channels=16)
        >>> encoder(torch.randn(4, 7), torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([0, 0, 1, 1])).shape
        torch.Size([2, 16])

    References:
        Chen et al., "Are Powerful Graph Neural Nets Necessary? A Dissection on Graph Classification", 2019 (arXiv
        1905.04579). You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020 (arXiv 2010.13902).

    Differs: the encoder is named after residual connections, which released GraphCL leaves off, as here. It replaces
    self-loops of the data by those of A + I; here they count in addition.
    """

    supports_parts = False
    """Whether two views may be encoded in one pass: not if BatchNorm follows the readout."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: Channels = 128,
        num_layers: Layers = 3,
        readout: Readout = "sum",
    ) -> None:
        super().__init__(in_channels, readout)
        self.out_channels = hidden_channels
        width = [hidden_channels] * num_layers
        self.features = nn.Sequential(nn.BatchNorm1d(in_channels), nn.Linear(in_channels, hidden_channels, bias=False))
        self.norms = nn.ModuleList(map(nn.BatchNorm1d, width))
        self.convs = nn.ModuleList(nn.Linear(size, size) for size in width)
        of_graphs = (_GraphNorm(hidden_channels), nn.Linear(hidden_channels, hidden_channels), nn.ReLU())
        self.graphs = nn.Sequential(*of_graphs, _GraphNorm(hidden_channels))
        initialise(self)

    def aggregation(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None, weight: Tensor | None) -> Aggregate:
        """Return a function that multiplies rows by the normalised adjacency matrix."""
        with_self: Aggregate
        if weight is None and not tracing():
            with_self = CSRAdjacency.of(edge_index, x.size(0))
        else:
            with_self = super().aggregation(x, edge_index, None, weight)
        scale = with_self(None, x.new_ones(x.size(0), 1)).clamp(min=1e-12).rsqrt()
        return lambda layer, nodes: scale * with_self(layer, scale * nodes)

    def levels(self, x: Tensor, aggregate: Aggregate, parts: Parts) -> Iterator[Tensor]:
        """Yield the node representations `[N, H]` of the last layer."""
        nodes = self.features(x).relu()
        conv: Any
        for norm, conv in zip(self.norms, self.convs, strict=True):
            nodes = (aggregate(conv, norm(nodes) @ conv.weight.t()) + conv.bias).relu()
        yield nodes

    def pool(self, nodes: Tensor, graphs: SegmentIndex) -> Tensor:
        """Return the embeddings `[B, H]` of graphs with these node representations."""
        h = self.graphs(super().pool(nodes, graphs))
        return h * (graphs.ptr[1:] > graphs.ptr[:-1])[:, None]
