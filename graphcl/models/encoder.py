"""Define the base class of graph encoders: call signature, message passing and readout."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter

from graphcl.arguments import Needs
from graphcl.errors import InputError
from graphcl.models.aggregate import SegmentIndex, count_graphs, gather_rows, segment_sum
from graphcl.models.batchnorm import Parts

OF_GRAPHS = Needs("graphs", "{value} has no effect with method {method}, which contrasts {rows}; leave it out")
Readout = Annotated[Literal["sum", "mean", "max"], OF_GRAPHS]
"""Operation that reduces the node rows of a graph to one row."""
Aggregate = Callable[[Any, Tensor], Tensor]
"""Function `(layer, nodes [N, H]) -> [N, H]` that adds the sum of the incoming messages to each node's row."""


class GraphEncoder(nn.Module):
    """Base class of message-passing encoders with a readout over the nodes of each graph.

    A subclass sets `out_channels` and defines `levels`. It overrides `message` if the message along an edge differs
    from the source's row. `ContrastiveModel` also accepts modules of other classes with a compatible `forward`.

    Args:
        in_channels: F, width of the node features.
        readout: `sum`, `mean` or `max` over a graph's nodes.
    """

    supports_edge_attr = False
    """Whether the encoder uses, and requires, `edge_attr`. PyG's basic models have an attribute of the same name."""
    one_pass = True
    """Whether encoding two small views in one pass is faster on the CPU than in two passes."""
    out_channels: int

    def __init__(self, in_channels: int, readout: str) -> None:
        super().__init__()
        self.in_channels, self.readout = in_channels, readout
        self._messages = _Messages()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        *,
        size: int | None = None,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
        parts: Parts = None,
    ) -> Tensor:
        """Return the embeddings h `[B, H]` of B graphs.

        Args:
            x: node features `[N, F]`.
            edge_index: edges `[2, E]`.
            batch: graph of each node `[N]`; None for a single graph.
            size: B, number of graphs; max(`batch`) + 1 by default.
            edge_attr: edge attributes `[E, D]`; ignored by encoders that do not use them.
            edge_weight: factor of each message `[E]`; 1 by default.
            parts: numbers of nodes in consecutive blocks, such as two views; or the padding of each, which has its
                number of nodes. BatchNorm treats each block separately.

        Raises:
            InputError: `x`, `batch`, `edge_attr` or `edge_weight` has the wrong shape, a required `edge_attr` is
                missing, or `batch` or `edge_index` is out of range (checked on the CPU only).
        """
        graphs, aggregate = self._prepare(x, edge_index, batch, size, edge_attr, edge_weight)
        return self.embed(x, aggregate, graphs, parts)

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
        """Return graph embeddings `[B, H]` and node embeddings `[N, H]`; arguments as for `forward`."""
        graphs, aggregate = self._prepare(x, edge_index, batch, size, edge_attr, edge_weight)
        nodes = torch.cat(list(self.levels(x, aggregate, None)), dim=1)
        return self.pool(nodes, graphs), nodes

    @abstractmethod
    def levels(self, x: Tensor, aggregate: Aggregate, parts: Parts) -> Iterator[Tensor]:
        """Yield the node representations `[N, H_l]` of each pooled layer l; the widths H_l add up to H."""

    def message(self, layer: Any, rows: Tensor, edge_attr: Tensor | None) -> Tensor:
        """Return the messages `[E, H]` along E edges; `rows [E, H]` are the representations of their sources."""
        return rows

    def aggregation(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None, weight: Tensor | None) -> Aggregate:
        """Return a function that adds the incoming messages, multiplied by `weight [E]`, to each node's row."""
        by_source, by_target = (SegmentIndex.of(ends, x.size(0)) for ends in edge_index)

        def aggregate(layer: Any, nodes: Tensor) -> Tensor:
            messages = self.message(layer, gather_rows(nodes, by_source), edge_attr)
            if weight is not None:
                messages = messages * weight.to(messages.dtype)[:, None]
            return nodes + segment_sum(messages, by_target)

        return aggregate

    def embed(self, x: Tensor, aggregate: Aggregate, graphs: SegmentIndex, parts: Parts) -> Tensor:
        """Return the readouts of all `levels`, concatenated to `[B, H]`."""
        return torch.cat([self.pool(level, graphs) for level in self.levels(x, aggregate, parts)], dim=1)

    def embed_views(self, views: Sequence[Batch]) -> Tensor | None:
        """Return the embeddings `[B, H]` of the graphs of all views from one pass that needs no concatenated views.

        BatchNorm treats each view separately. Return None, the default, if these views do not support such a pass.
        """
        return None

    def pool(self, nodes: Tensor, graphs: SegmentIndex) -> Tensor:
        """Return the readout `[B, H]` of node representations `[N, H]`; zeros for a graph without nodes."""
        if self.readout == "max":
            return scatter(nodes, graphs.ids, dim=0, dim_size=graphs.ptr.numel() - 1, reduce="max")
        return self._scaled(segment_sum(nodes, graphs), graphs)

    def _scaled(self, sums: Tensor, graphs: SegmentIndex) -> Tensor:
        """Return `sums [B, H]` for the sum readout; for the mean readout, divide by each graph's number of nodes."""
        return sums if self.readout == "sum" else sums / (graphs.ptr[1:] - graphs.ptr[:-1]).clamp(min=1)[:, None]

    def _prepare(
        self, x: Tensor, edge_index: Tensor, batch: Tensor | None, size: int | None, *of_edges: Tensor | None
    ) -> tuple[SegmentIndex, Aggregate]:
        name, (edge_attr, edge_weight) = type(self).__name__, of_edges
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise InputError(f"{name} takes `x` of shape [N, {self.in_channels}], got {list(x.shape)}.")
        if self.supports_edge_attr and edge_attr is None:
            raise InputError(
                f"{name} needs `edge_attr`, but got none; use gin, or name it in the module around {name}."
            )
        if edge_weight is not None and edge_weight.dim() != 1:
            raise InputError(f"{name} takes `edge_weight` of shape [E], got {list(edge_weight.shape)}.")
        if batch is None:
            batch, size = torch.zeros(x.size(0), dtype=torch.long, device=x.device), 1
        if batch.shape != x.shape[:1]:
            raise InputError(f"{name} takes `batch` of shape [{x.size(0)}], one per node, got {list(batch.shape)}.")
        size = count_graphs(batch) if size is None else size
        try:
            graphs = SegmentIndex.of(batch.long(), size)
            return graphs, self.aggregation(x, edge_index, edge_attr, self._messages.factor(edge_weight))
        except IndexError:
            for key, values, count in (("batch", batch, size), ("edge_index", edge_index, x.size(0))):
                low, high = int(values.min()), int(values.max())
                if not 0 <= low <= high < count:
                    raise InputError(f"`{key}` must be in 0 .. {count - 1}, got values in {low} .. {high}.") from None
            raise


class _Messages(MessagePassing):
    """Module that receives the edge mask of PyG's explainers, which set it on each `MessagePassing` of a model."""

    def factor(self, edge_weight: Tensor | None) -> Tensor | None:
        """Return the product of `edge_weight [E]` and an explainer's mask `[E]`; None if neither is set."""
        if not self.explain or self._edge_mask is None:
            return edge_weight
        mask = self._edge_mask.sigmoid() if self._apply_sigmoid else self._edge_mask
        return mask if edge_weight is None else mask * edge_weight
