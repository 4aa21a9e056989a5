"""GIN and GINE encoders (Xu et al. 2019; Hu et al. 2020), with GraphCL's readout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from graphcl.arguments import Count
from graphcl.errors import InputError
from graphcl.models.aggregate import Groups, Neighbours, group_sum, spread
from graphcl.models.compiled import compiled, stack
from graphcl.registry import encoders

Readout = Literal["sum", "mean"]
Gather = Callable[["_Conv", Tensor], Tensor]


class _Conv(nn.Module):
    """One layer before ReLU and BatchNorm: a perceptron and, for GINE, a map of the edge attributes.

    Names follow PyG's `GINConv` and `GINEConv`, so their weights load here and these there.
    """

    def __init__(self, in_channels: int, hidden: int, edge_dim: int | None = None) -> None:
        super().__init__()
        self.nn = nn.Sequential(nn.Linear(in_channels, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.lin = nn.Linear(edge_dim, in_channels) if edge_dim is not None else None


class _Messages(MessagePassing):
    """Where PyG's explainers leave their edge mask: they set it on every `MessagePassing` that a model has."""

    def mask(self) -> Tensor | None:
        """What an explainer multiplies each message by `[E]`; None where nothing is being explained."""
        mask: Tensor | None = self._edge_mask if self.explain else None
        return mask if mask is None or not self._apply_sigmoid else mask.sigmoid()


class _Stack(nn.Module):
    """L times conv -> ReLU -> BatchNorm; each layer is pooled and the pools are concatenated."""

    def __init__(
        self, in_channels: int, hidden: int, layers: int, readout: Readout, edge_dim: int | None = None
    ) -> None:
        super().__init__()
        self.readout = readout
        widths = [in_channels] + [hidden] * (layers - 1)
        self.convs = nn.ModuleList(_Conv(width, hidden, edge_dim) for width in widths)
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in widths)
        self._messages = _Messages()
        self.out_channels = hidden * layers
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def _graphs(self, x: Tensor, batch: Tensor | None, size: int | None) -> Groups:
        """The nodes by graph, whose features fit the first layer."""
        conv = self.convs[0]
        assert isinstance(conv, _Conv)
        first = conv.nn[0]
        if isinstance(first, nn.Linear) and (x.dim() != 2 or x.size(1) != first.in_features):
            raise InputError(f"this encoder takes `x` of [N, {first.in_features}], got {list(x.shape)}.")
        return graph_groups(x, batch, size)

    def _levels(self, x: Tensor, parts: Sequence[int] | None, gather: Gather) -> Iterator[Tensor]:
        """The nodes' representations `[N, H]`, layer by layer."""
        for conv, norm in zip(self.convs, self.norms, strict=True):
            assert isinstance(conv, _Conv)
            out = conv.nn(gather(conv, x)).relu()
            x = norm(out) if parts is None else torch.cat([norm(part) for part in out.split(list(parts))])
            yield x

    def _encode(self, x: Tensor, graphs: Groups, parts: Sequence[int] | None, gather: Gather) -> Tensor:
        sums = torch.cat([group_sum(level, graphs) for level in self._levels(x, parts, gather)], dim=1)
        return self._pooled(sums, graphs)

    def _pooled(self, sums: Tensor, graphs: Groups) -> Tensor:
        """The readout, from the sums over each graph's nodes."""
        return sums if self.readout == "sum" else sums / graphs.ptr.diff().clamp(min=1)[:, None]

    def _with_nodes(self, x: Tensor, graphs: Groups, gather: Gather) -> tuple[Tensor, Tensor]:
        nodes = torch.cat(list(self._levels(x, None, gather)), dim=1)
        return self._pooled(group_sum(nodes, graphs), graphs), nodes


def graph_groups(x: Tensor, batch: Tensor | None, size: int | None) -> Groups:
    """The nodes by graph."""
    if batch is None:
        batch, size = torch.zeros(x.size(0), dtype=torch.long, device=x.device), 1
    return Groups.of(batch, int(batch.max()) + 1 if size is None else size)


def _ends(edge_index: Tensor, num_nodes: int) -> tuple[Groups, Groups]:
    """The edges by source and by target."""
    return Groups.of(edge_index[0], num_nodes), Groups.of(edge_index[1], num_nodes)


def _product(*weights: Tensor | None) -> Tensor | None:
    """The product of those that are given."""
    given = [weight for weight in weights if weight is not None]
    return torch.stack(given).prod(dim=0) if given else None


@encoders.register("gin")
class GIN(_Stack):
    r"""Graph isomorphism network, as GraphCL uses it on TU data sets.

    $$x_v^{(l)} = \mathrm{BN}(\mathrm{ReLU}(\mathrm{MLP}^{(l)}(x_v^{(l-1)} + \sum_{u \to v} x_u^{(l-1)}))), \qquad
    h_G = \big\Vert_{l=1}^{L} \sum_{v \in G} x_v^{(l)}$$

    with two-layer perceptrons of width `hidden`, Xavier-initialised. GIN's epsilon is 0.

    Args:
        in_channels: F, width of the node features.
        hidden: H, width of each layer.
        layers: L, number of layers.
        readout: `sum` over a graph's nodes, or their `mean`.

    Example:
        >>> encoder = GIN(7, hidden=32, layers=3)
        >>> encoder.out_channels
        96

    References:
        Xu et al., "How Powerful are Graph Neural Networks?", ICLR 2019, Eq. 4.1 and 4.2 (arXiv 1810.00826).
    """

    def __init__(self, in_channels: int, hidden: Count = 32, layers: Count = 3, readout: Readout = "sum") -> None:
        super().__init__(in_channels, hidden, layers, readout)

    @property
    def one_pass(self) -> bool:
        """Whether two small views on the CPU gain from one pass: not where the layers are compiled."""
        return not compiled()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        size: int | None = None,
        parts: Sequence[int] | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Embeddings of whole graphs.

        Args:
            x: node features `[N, F]`.
            edge_index: `[2, E]`.
            batch: graph of each node `[N]`; one graph if None.
            size: B, number of graphs; pass it so that it need not be read from `batch`.
            parts: numbers of nodes, adding up to N, that BatchNorm treats as batches of their own, such as two views;
                all nodes as one by default.
            edge_weight: what each edge's message is multiplied by `[E]`, by torch's operations; 1 by default.

        Returns:
            h `[B, L * H]`.

        Raises:
            InputError: `x` has other columns than the first layer takes.
        """
        graphs = self._graphs(x, batch, size)
        if edge_weight is not None or self._messages.explain:
            return self._encode(x, graphs, parts, self._weighted(x, edge_index, edge_weight))
        neighbours = Neighbours.of(edge_index, x.size(0))
        if parts is None:
            pools = stack(x, neighbours, graphs, [conv.nn for conv in self.convs], list(self.norms))
            if pools is not None:
                return self._pooled(pools, graphs)
        return self._encode(x, graphs, parts, lambda _, x: neighbours.sum(x, with_self=True))

    def with_nodes(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        size: int | None = None,
        edge_weight: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Embeddings `[B, L * H]` of whole graphs, and the nodes' rows `[N, L * H]` that they pool.

        By torch's operations: the compiled layers give no gradient to single nodes.
        """
        return self._with_nodes(x, self._graphs(x, batch, size), self._weighted(x, edge_index, edge_weight))

    def _weighted(self, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> Gather:
        """Each node and its neighbours, whose messages are multiplied by weights and by an explainer's mask."""
        weight = _product(weight, self._messages.mask())
        if weight is None:
            neighbours = Neighbours.of(edge_index, x.size(0))
            return lambda _, x: neighbours.sum(x, with_self=True)
        if weight.dim() != 1:
            raise InputError(f"encoder `gin` takes `edge_weight` of [E], got {list(weight.shape)}.")
        by_source, by_target = _ends(edge_index, x.size(0))
        column = weight.to(x.dtype)[:, None]
        return lambda _, x: x + group_sum(spread(x, by_source) * column, by_target)


@encoders.register("gine")
class GINE(_Stack):
    r"""GIN with edge attributes: a neighbour u sends ReLU(x_u + W e_uv + b) instead of x_u.

    Args:
        in_channels: F, width of the node features.
        edge_dim: width of the edge attributes.
        hidden: H, width of each layer.
        layers: L, number of layers.
        readout: `sum` over a graph's nodes, or their `mean`.

    References:
        Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020 (arXiv 1905.12265).
    """

    def __init__(
        self, in_channels: int, edge_dim: int, hidden: Count = 32, layers: Count = 3, readout: Readout = "sum"
    ) -> None:
        super().__init__(in_channels, hidden, layers, readout, edge_dim)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        size: int | None = None,
        edge_attr: Tensor | None = None,
        parts: Sequence[int] | None = None,
    ) -> Tensor:
        """Embeddings `[B, L * H]` of whole graphs, as for `GIN`; `edge_attr [E, edge_dim]` is required."""
        return self._encode(x, self._graphs(x, batch, size), parts, self._gather(x, edge_index, edge_attr))

    def with_nodes(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        size: int | None = None,
        edge_attr: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Embeddings `[B, L * H]` of whole graphs, and the nodes' rows `[N, L * H]` that they pool."""
        return self._with_nodes(x, self._graphs(x, batch, size), self._gather(x, edge_index, edge_attr))

    def _gather(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None) -> Gather:
        if edge_attr is None:
            raise InputError("encoder `gine` needs `edge_attr`, and these graphs have none; use `gin`.")
        if edge_attr.dim() not in (1, 2):
            raise InputError(f"encoder `gine` takes `edge_attr` of [E] or [E, D], got {list(edge_attr.shape)}.")
        attributes = (edge_attr if edge_attr.dim() == 2 else edge_attr[:, None]).to(x.dtype)
        by_source, by_target = _ends(edge_index, x.size(0))
        mask = self._messages.mask()

        def gather(conv: _Conv, x: Tensor) -> Tensor:
            assert conv.lin is not None
            messages = (spread(x, by_source) + conv.lin(attributes)).relu()
            return x + group_sum(messages if mask is None else messages * mask[:, None], by_target)

        return gather
