"""Graph encoders made of a node encoder and a readout; PyG's GCN, GAT, GraphSAGE and PNA are registered."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GAT, GCN, PNA, Aggregation, GraphSAGE, MaxAggregation, MeanAggregation, SumAggregation

from graphcl.arguments import Channels, Count, Layers, named_arguments
from graphcl.errors import InputError, InputTypeError
from graphcl.models.aggregate import count_graphs
from graphcl.models.encoder import Readout
from graphcl.models.interface import accepts, call, check_signature, optional_arguments, width_of
from graphcl.registry import encoders

_AGGREGATIONS = {"sum": SumAggregation, "mean": MeanAggregation, "max": MaxAggregation}


class Pooled(nn.Module):
    r"""Graph encoder made of a node encoder and a readout.

    $$h_G = \mathrm{readout}_{v \in G}\; \mathrm{nodes}(x, \mathrm{edge\_index})_v$$

    where $h_G$ is the embedding of graph G. The node encoder can be one of PyG's basic models (`GCN`, `GIN`, `GAT`,
    `PNA`, `GraphSAGE`) or any module that is called as `(x, edge_index)` and returns `[N, H]`. It also receives
    `batch`, `batch_size`, `edge_attr` and `edge_weight` if it accepts them. A basic model whose layers have an optional
    `edge_dim` receives edge attributes only if `edge_dim` was given.

    Args:
        nodes: the node encoder.
        readout: `sum`, `mean` or `max`, or an aggregation of `torch_geometric.nn`.
        out_channels: H, width of the embeddings; the `out_channels` of `nodes` by default.

    Raises:
        InputError: the width is unknown or the readout invalid. When called: `nodes` does not return one row per node.
        InputTypeError: `nodes` does not accept `edge_index`. When called: `nodes` does not return a tensor.

    Example:
        >>> import torch
        >>> from torch_geometric.nn import GCN
        >>> encoder = Pooled(GCN(7, hidden_channels=32, num_layers=3), readout="mean")
        >>> encoder(torch.randn(4, 7), torch.tensor([[0, 1, 2], [1, 2, 3]]), batch=torch.tensor([0, 0, 1, 1])).shape
        torch.Size([2, 32])
    """

    @named_arguments
    def __init__(
        self, nodes: nn.Module, readout: Readout | Aggregation = "sum", out_channels: int | None = None
    ) -> None:
        super().__init__()
        check_signature(nodes, "edge_index")
        width = out_channels or width_of(nodes)
        if width is None:
            name = type(nodes).__name__
            raise InputError(f"{name} has no `out_channels`; pass it, as in Pooled({name}(...), out_channels=64).")
        pool = _AGGREGATIONS[readout]() if isinstance(readout, str) and readout in _AGGREGATIONS else readout
        if not isinstance(pool, Aggregation):
            names = "'sum', 'mean', 'max'"
            raise InputError(f"`readout` must be {names} or an Aggregation of torch_geometric.nn, got {readout!r}.")
        self.nodes, self.readout, self.out_channels = nodes, pool, width
        self.supports_edge_weight = accepts(nodes, "edge_weight")
        edge_dims = {module.edge_dim for module in nodes.modules() if hasattr(module, "edge_dim")}
        self.supports_edge_attr = accepts(nodes, "edge_attr") and edge_dims != {None}
        self._optional = optional_arguments(nodes, ["batch", "batch_size", "edge_weight", "edge_attr"])
        if not self.supports_edge_attr:
            self._optional.pop("edge_attr", None)

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
        return self.with_nodes(x, edge_index, batch, size=size, edge_attr=edge_attr, edge_weight=edge_weight)[0]

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
        if batch is None:
            batch, size = edge_index.new_zeros(x.size(0)), 1
        of_edges = {"edge_attr": edge_attr, "edge_weight": edge_weight}
        rows = call(self.nodes, x, edge_index, self._optional, batch=batch, batch_size=size, **of_edges)
        name = type(self.nodes).__name__
        if not isinstance(rows, Tensor):
            raise InputTypeError(f"{name} must return a tensor [N, H], one row per node, got {type(rows).__name__}.")
        if rows.dim() != 2 or rows.size(0) != x.size(0):
            raise InputError(
                f"{name} must return one row per node, got {list(rows.shape)} for {x.size(0)} nodes; a module that "
                f"returns one row per graph needs no `Pooled`."
            )
        return self.readout(rows, batch, dim_size=count_graphs(batch) if size is None else size), rows


@encoders.register("gcn")
def gcn(
    in_channels: int, *, hidden_channels: Channels = 32, num_layers: Layers = 3, readout: Readout = "sum"
) -> nn.Module:
    """Return a graph convolutional network (Kipf and Welling 2017), PyG's `GCN`."""
    return _pooled(GCN, in_channels, hidden_channels, num_layers, readout)


@encoders.register("gat")
def gat(
    in_channels: int,
    *,
    hidden_channels: Channels = 32,
    num_layers: Layers = 3,
    readout: Readout = "sum",
    heads: Count = 4,
) -> nn.Module:
    """Return a graph attention network (Velickovic et al. 2018), PyG's `GAT`; `heads` divides `hidden_channels`."""
    if hidden_channels % heads:
        raise InputError(f"`hidden_channels` must be a multiple of `heads`, got {hidden_channels} and {heads}.")
    return _pooled(GAT, in_channels, hidden_channels, num_layers, readout, heads=heads)


@encoders.register("sage")
def sage(
    in_channels: int, *, hidden_channels: Channels = 32, num_layers: Layers = 3, readout: Readout = "sum"
) -> nn.Module:
    """Return a GraphSAGE network (Hamilton et al. 2017), PyG's `GraphSAGE`, with mean aggregation."""
    return _pooled(GraphSAGE, in_channels, hidden_channels, num_layers, readout)


@encoders.register("pna")
def pna(
    in_channels: int, *, hidden_channels: Channels = 32, num_layers: Layers = 3, readout: Readout = "sum"
) -> nn.Module:
    """Return a principal neighbourhood aggregation network (Corso et al. 2020), PyG's `PNA`, without degree scalers."""
    degrees = torch.ones(2, dtype=torch.long)  # required, but not used by the scaler `identity`
    options = {"aggregators": ["mean", "min", "max", "std"], "scalers": ["identity"], "deg": degrees}
    return _pooled(PNA, in_channels, hidden_channels, num_layers, readout, **options)


def _pooled(
    model: Any, in_channels: int, hidden_channels: int, num_layers: int, readout: Readout, **options: Any
) -> nn.Module:
    """Return a pooled `model`; its embeddings have `num_layers * hidden_channels` columns, as in `gin`."""
    options |= {"norm": "batch_norm", "jk": "cat"}
    return Pooled(model(in_channels, hidden_channels, num_layers, hidden_channels * num_layers, **options), readout)
