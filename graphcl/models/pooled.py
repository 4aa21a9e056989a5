"""An encoder of nodes as an encoder of graphs: any model of PyG, or one's own, with a readout behind it."""

from __future__ import annotations

import inspect
from typing import Any, Literal, get_args

from torch import Tensor, nn
from torch_geometric.nn import Aggregation, MaxAggregation, MeanAggregation, SumAggregation

from graphcl.errors import InputError, InputTypeError
from graphcl.models.contrastive import accepts, check_signature

Readout = Literal["sum", "mean", "max"]


class Pooled(nn.Module):
    r"""The nodes' rows of another module, pooled to one row for each graph.

    $$h_G = \mathrm{readout}_{v \in G}\; \mathrm{nodes}(x, \mathrm{edge\_index})_v$$

    PyG's basic models (`GCN`, `GIN`, `GAT`, `PNA`, `GraphSAGE`) fit as they are, and any module that is called as
    `(x, edge_index)` and returns `[N, H]`. It gets `batch`, `batch_size`, `edge_attr` and `edge_weight` too where it
    takes them; a basic model takes edge attributes where its layers do and were given an `edge_dim`.

    Args:
        nodes: the encoder of nodes.
        readout: `sum`, `mean` or `max`, or an aggregation of `torch_geometric.nn`.
        out_channels: width of the embeddings, where it is not the `out_channels` of `nodes`.

    Raises:
        InputError: the width is unknown, no such readout; when called: no row for each node.
        InputTypeError: `nodes` does not take `edge_index`; when called: it returns no tensor.

    Example:
        >>> import torch
        >>> from torch_geometric.nn import GCN
        >>> encoder = Pooled(GCN(7, hidden_channels=32, num_layers=3), readout="mean")
        >>> encoder(torch.randn(4, 7), torch.tensor([[0, 1, 2], [1, 2, 3]]), batch=torch.tensor([0, 0, 1, 1])).shape
        torch.Size([2, 32])
    """

    def __init__(
        self, nodes: nn.Module, readout: Readout | Aggregation = "sum", out_channels: int | None = None
    ) -> None:
        super().__init__()
        check_signature(nodes, "edge_index")
        width = out_channels or getattr(nodes, "out_channels", None)
        if width is None:
            raise InputError(f"{type(nodes).__name__} has no `out_channels`; pass `out_channels=` its output width.")
        self.nodes, self.readout, self.out_channels = nodes, _aggregation(readout), width
        # The names are PyG's: its basic models say so what they use of the arguments that they all have.
        self.supports_edge_weight = accepts(nodes, "edge_weight")
        self.supports_edge_attr = accepts(nodes, "edge_attr") and _has_edge_dim(nodes)
        taken = inspect.signature(nodes.forward).parameters
        self._of_graphs = [name for name in ("batch", "batch_size") if name in taken]

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        size: int | None = None,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Embeddings of whole graphs.

        Args:
            x: node features `[N, F]`.
            edge_index: `[2, E]`.
            batch: graph of each node `[N]`; one graph if None.
            size: B, number of graphs; pass it so that it need not be read from `batch`.
            edge_attr: edge attributes `[E, D]`; left out where the encoder of nodes takes none.
            edge_weight: edge weights `[E]`; left out where the encoder of nodes takes none.

        Returns:
            h `[B, H]`.
        """
        return self.with_nodes(x, edge_index, batch, size, edge_attr, edge_weight)[0]

    def with_nodes(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        size: int | None = None,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Embeddings `[B, H]` of whole graphs, and the nodes' rows `[N, H]` that they pool."""
        if batch is None:
            batch, size = edge_index.new_zeros(x.size(0)), 1
        known: dict[str, Any] = {"batch": batch, "batch_size": size}
        more = {name: known[name] for name in self._of_graphs}
        if self.supports_edge_attr:
            more["edge_attr"] = edge_attr
        if self.supports_edge_weight:
            more["edge_weight"] = edge_weight
        rows, kind = self.nodes(x, edge_index, **more), type(self.nodes).__name__
        if not isinstance(rows, Tensor):
            raise InputTypeError(f"{kind} must return a tensor, a row for each node [N, H], got {type(rows).__name__}.")
        if rows.dim() != 2 or rows.size(0) != x.size(0):
            raise InputError(
                f"{kind} gives {list(rows.shape)} for {x.size(0)} nodes, not a row for each; "
                f"one that gives a row for each graph needs no `Pooled`."
            )
        h: Tensor = self.readout(rows, batch, dim_size=size)
        return h, rows


def _aggregation(readout: Readout | Aggregation) -> Aggregation:
    """The readout as a module of PyG."""
    known = {"sum": SumAggregation, "mean": MeanAggregation, "max": MaxAggregation}
    if isinstance(readout, str) and readout in known:
        return known[readout]()
    if not isinstance(readout, Aggregation):
        names = ", ".join(map(repr, get_args(Readout)))
        raise InputError(f"`readout` must be {names} or an Aggregation of torch_geometric.nn, got {readout!r}.")
    return readout


def _has_edge_dim(nodes: nn.Module) -> bool:
    """Whether layers that may be built with or without edge attributes were built with them."""
    found = [module.edge_dim for module in nodes.modules() if hasattr(module, "edge_dim")]
    return not found or any(width is not None for width in found)
