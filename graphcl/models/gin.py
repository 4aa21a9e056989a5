"""GIN and GINE encoders (Xu et al. 2019; Hu et al. 2020) that pool every layer, as in GraphCL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import Channels, Layers
from graphcl.errors import InputError
from graphcl.models import compiled, triton_gin
from graphcl.models.aggregate import CSRAdjacency, SegmentIndex, tracing
from graphcl.models.batchnorm import Parts, normalise
from graphcl.models.encoder import OF_GRAPHS, Aggregate, GraphEncoder
from graphcl.models.perceptron import Perceptron, has_hooks, initialise
from graphcl.registry import encoders

GINReadout = Annotated[Literal["sum", "mean", "max", "log_sum"], OF_GRAPHS]
"""A `Readout`, or `log_sum`: log(1 + sum), where the sum is over the rows before BatchNorm."""


class _Conv(nn.Module):
    """Weights of one layer, named as in PyG's `GINConv` and `GINEConv`, so that state dicts can be exchanged."""

    def __init__(self, in_channels: int, hidden_channels: int, edge_dim: int | None = None) -> None:
        super().__init__()
        self.nn = Perceptron(in_channels, hidden_channels, hidden_channels, rectified=True)
        self.lin = nn.Linear(edge_dim, in_channels) if edge_dim is not None else None


class _GINBase(GraphEncoder):
    """Encoder that pools every layer; each layer is aggregation -> perceptron -> ReLU -> BatchNorm."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        readout: GINReadout,
        edge_dim: int | None = None,
    ) -> None:
        super().__init__(in_channels, readout)
        widths = [in_channels] + [hidden_channels] * (num_layers - 1)
        self.convs = nn.ModuleList(_Conv(width, hidden_channels, edge_dim) for width in widths)
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden_channels) for _ in widths)
        if readout == "log_sum":
            self.norms[-1].requires_grad_(False)  # unused, which DistributedDataParallel would refuse
        self.out_channels = hidden_channels * num_layers
        initialise(self)

    def levels(self, x: Tensor, aggregate: Aggregate, parts: Parts) -> Iterator[Tensor]:
        """Yield the node representations `[N, H]` of each layer; before BatchNorm for the readout `log_sum`."""
        conv: Any
        for conv, norm in zip(self.convs, self.norms, strict=True):
            raw = conv.nn(aggregate(conv, x))
            x = normalise(norm, raw, parts)
            yield raw if self.readout == "log_sum" else x

    def _scaled(self, sums: Tensor, graphs: SegmentIndex) -> Tensor:
        if self.readout == "log_sum":
            return sums.abs().log1p().copysign(sums)  # only sums of the input can be negative
        return super()._scaled(sums, graphs)


@encoders.register("gin")
class GIN(_GINBase):
    r"""Graph isomorphism network, as GraphCL uses it on TU data sets.

    $$x_v^{(l)} = \mathrm{BN}(\mathrm{ReLU}(\mathrm{MLP}^{(l)}(x_v^{(l-1)} + \sum_{u \to v} x_u^{(l-1)}))), \qquad
    h_G = \big\Vert_{l=1}^{L} \sum_{v \in G} x_v^{(l)}$$

    where $x_v^{(l)}$ is the representation of node v in layer l of L, $x_v^{(0)}$ its features, and $h_G$ the embedding
    of graph G. $\Vert$ concatenates. Perceptrons have two layers of width `hidden_channels` and are Xavier-initialised.
    GIN's epsilon is 0. In float32 and without edge weights, all layers run in compiled loops on the CPU
    (`graphcl.models.compiled`) and in Triton kernels on CUDA (`graphcl.models.triton_gin`).

    Args:
        in_channels: F, width of the node features.
        hidden_channels: H, width of each layer; embeddings have L * H columns.
        num_layers: L, number of layers.
        readout: `sum`, `mean` or `max` over a graph's nodes; or `log_sum`, log(1 + sum) of the rows before BatchNorm,
            which keeps the number of nodes and compresses large graphs.

    Example:
        >>> import torch
        >>> encoder = GIN(7, hidden_channels=32, num_layers=3)
        >>> encoder(torch.randn(4, 7), torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([0, 0, 1, 1])).shape
        torch.Size([2, 96])

    References:
        Xu et al., "How Powerful are Graph Neural Networks?", ICLR 2019, Eq. 4.1 and 4.2 (arXiv 1810.00826).
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: Channels = 32,
        num_layers: Layers = 3,
        readout: GINReadout = "sum",
    ) -> None:
        super().__init__(in_channels, hidden_channels, num_layers, readout)

    @property
    def one_pass(self) -> bool:  # type: ignore[override]
        """Whether one pass over two small views is faster on the CPU: not with the compiled layers."""
        return not compiled.compiled()

    def aggregation(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None, weight: Tensor | None) -> Aggregate:
        """Return a function that sums rows over neighbours, without storing messages if there is no `weight`."""
        if weight is None and not tracing():
            return CSRAdjacency.of(edge_index, x.size(0))
        return super().aggregation(x, edge_index, edge_attr, weight)

    def embed(self, x: Tensor, aggregate: Aggregate, graphs: SegmentIndex, parts: Parts) -> Tensor:
        """Return the embeddings `[B, H]`; use the compiled layers if they support the input."""
        sums = None
        if isinstance(aggregate, CSRAdjacency) and self.readout != "max":
            raw, modules = self.readout == "log_sum", ([conv.nn for conv in self.convs], list(self.norms))
            if x.is_cuda and not raw:
                sums = triton_gin.fused_sums(x, aggregate, graphs, *modules, parts)
            elif parts is None:
                sums = compiled.fused_sums([(x, aggregate, graphs)], *modules, raw)
        return super().embed(x, aggregate, graphs, parts) if sums is None else self._scaled(sums, graphs)

    def embed_views(self, views: Sequence[Batch]) -> Tensor | None:
        """Return the embeddings of the graphs of all views from one call of the compiled layers, see `GraphEncoder`."""
        if type(self) is not GIN or self.readout == "max" or not compiled.compiled() or tracing() or has_hooks(self):
            return None
        prepared: list[compiled.View] = []
        for view in views:
            weight = self._messages.factor(view.get("edge_weight"))
            if weight is not None or view.x.is_cuda:
                return None
            graphs, adjacency = self._prepare(view.x, view.edge_index, view.batch, view.num_graphs, None, None)
            prepared.append((view.x, cast(CSRAdjacency, adjacency), graphs))
        modules = [conv.nn for conv in self.convs], list(self.norms)
        sums = compiled.fused_sums(prepared, *modules, self.readout == "log_sum")
        if sums is None or self.readout == "sum":
            return sums
        sizes = [graphs.ptr.numel() - 1 for _, _, graphs in prepared]
        return torch.cat([self._scaled(part, view[2]) for part, view in zip(sums.split(sizes), prepared, strict=True)])


@encoders.register("gine")
class GINE(_GINBase):
    r"""GIN with edge attributes: the message from u to v is ReLU(x_u + W e_uv + b) instead of x_u.

    Here x_u is the row of node u, e_uv the attributes of the edge, and W and b are learnt in each layer.

    Args:
        in_channels: F, width of the node features.
        edge_dim: D, width of the edge attributes.
        hidden_channels: H, width of each layer; embeddings have L * H columns.
        num_layers: L, number of layers.
        readout: as in `GIN`.

    References:
        Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020 (arXiv 1905.12265).
    """

    supports_edge_attr = True

    def __init__(
        self,
        in_channels: int,
        edge_dim: int,
        hidden_channels: Channels = 32,
        num_layers: Layers = 3,
        readout: GINReadout = "sum",
    ) -> None:
        super().__init__(in_channels, hidden_channels, num_layers, readout, edge_dim)

    def aggregation(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None, weight: Tensor | None) -> Aggregate:
        """Return a function that sums the messages to each node; `edge_attr` may be `[E]` or `[E, D]`."""
        assert edge_attr is not None
        if edge_attr.dim() not in (1, 2):
            raise InputError(f"GINE takes `edge_attr` of shape [E] or [E, D], got {list(edge_attr.shape)}.")
        attributes = edge_attr if edge_attr.dim() == 2 else edge_attr[:, None]
        return super().aggregation(x, edge_index, attributes.to(x.dtype), weight)

    def message(self, layer: Any, rows: Tensor, edge_attr: Tensor | None) -> Tensor:
        """Return the messages ReLU(x_u + W e_uv + b) `[E, H]`; `rows` holds x_u, `edge_attr` e_uv."""
        return (rows + layer.lin(edge_attr)).relu()
