"""The model that contrasts nodes, and graph convolutions whose last layer is the embedding, as in GRACE and DGI.

The rows of nodes without an encoder are their features, alone and averaged over neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, linear
from torch_geometric.data import Batch

from graphcl.arguments import Channels, Layers, Needs
from graphcl.models.aggregate import CSRAdjacency, tracing
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.encoder import Readout
from graphcl.models.perceptron import initialise
from graphcl.models.pooled import Pooled
from graphcl.references.rows import Inputs
from graphcl.registry import encoders, references

_ACTIVATIONS = {"relu": nn.ReLU, "prelu": nn.PReLU, "elu": nn.ELU}
_SPARSE = 0.02
"""Largest fraction of non-zero features at which the sparse product is faster on the CPU."""


class NodeModel(ContrastiveModel):
    """A `ContrastiveModel` whose embeddings are rows of nodes, `[N, H]`, so that methods contrast nodes.

    Both views of a batch must keep every node. The encoder has `with_nodes`, as `gin`, `node_gcn` and any `Pooled`
    have. Only the first `num_seeds` nodes get a row if the batch has that attribute, as those of
    `graphcl.extensions.nodes.task.NeighbourLoader` have. For the arguments, see `ContrastiveModel`.
    """

    def encode(self, batch: Batch, edge_weight: Tensor | None = None) -> Tensor:
        """Return the embeddings `[N, H]` of the nodes of `batch`; `edge_weight` is not supported."""
        return self.encode_nodes(batch)[1][: batch.get("num_seeds")]

    def encode_both(self, view1: Batch, view2: Batch) -> tuple[Tensor, Tensor]:
        """Return the embeddings `[N, H]` of each view."""
        return self.encode(view1), self.encode(view2)


class NodeRows(nn.Module):
    """Encoder that returns the rows of nodes, `[N, H]`, instead of those of graphs."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder: Any = encoder

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Return the rows `[N, H]` of the nodes."""
        edges = {"edge_attr": edge_attr, "edge_weight": edge_weight}
        present = {name: values for name, values in edges.items() if values is not None}
        rows: Tensor = self.encoder.with_nodes(x, edge_index, **present)[1]
        return rows


def normalised_adjacency(edge_index: Tensor, x: Tensor) -> Callable[[Tensor], Tensor]:
    r"""Return the function $X \mapsto \hat A X$ for the edges `edge_index [2, E]` without self-loops, and N rows `x`.

    $$\hat A = D^{-1/2} (A + I) D^{-1/2}, \qquad D_{vv} = 1 + \mathrm{indegree}(v)$$
    """
    edges = CSRAdjacency.of(edge_index, x.size(0))
    scale = (edges.target_ptr.diff() + 1).to(x.dtype).rsqrt()[:, None]
    return lambda rows: scale * edges.sum(scale.to(rows.dtype) * rows, with_self=True)


@torch.no_grad()
def propagate(x: Tensor, edge_index: Tensor, hops: int = 2) -> Tensor:
    r"""Return the features `x [N, F]` after `hops` products with the normalised adjacency, $\hat A^K x$.

    References:
        Wu et al., "Simplifying Graph Convolutional Networks", ICML 2019, Eq. 7 (arXiv 1902.07153).
    """
    adjacency = normalised_adjacency(edge_index, x)
    for _ in range(hops):
        x = adjacency(x)
    return x


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Return `x @ weight.T` of features `x [N, F]` and `weight [H, F]`; on the CPU, skip the zeros of sparse `x`."""
    if tracing() or x.is_cuda or x.requires_grad or int(x.count_nonzero()) > _SPARSE * x.numel():
        return linear(x, weight)
    rows, columns = x.nonzero(as_tuple=True)
    starts = torch.searchsorted(rows, torch.arange(x.size(0)))
    return embedding_bag(columns, weight.t(), starts, mode="sum", per_sample_weights=x[rows, columns])


class GraphConvolutions(nn.Module):
    r"""Stack of graph convolutions; every layer, also the last, ends with an activation.

    $$H_{l+1} = \sigma(\mathrm{norm}(\hat A H_l W_l + b_l))$$

    Memory is O(N H) for N nodes: messages along edges are never stored. See `node_gcn` for the arguments.
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int, norm: str, activation: str
    ) -> None:
        super().__init__()
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.out_channels = out_channels
        self.weights = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(widths))
        self.biases = nn.ParameterList(torch.zeros(width) for width in widths[1:])
        normalise = nn.BatchNorm1d if norm == "batch_norm" else nn.Identity
        self.norms = nn.ModuleList(normalise(width) for width in widths[1:])
        self.activations = nn.ModuleList(_ACTIVATIONS[activation]() for _ in widths[1:])
        initialise(self.weights)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the last layer's node rows, `[N, out_channels]`."""
        adjacency = normalised_adjacency(edge_index, x)
        for weight, bias, norm, activation in zip(self.weights, self.biases, self.norms, self.activations, strict=True):
            rows = product(x, weight.weight)  # type: ignore[arg-type]
            x = activation(norm(adjacency(rows) + bias))
        return x


@encoders.register("node_gcn")
def node_gcn(
    in_channels: int,
    *,
    hidden_channels: Annotated[
        Channels, Needs("several layers", "{value} has no effect on one layer, which has `out_channels`; leave it out")
    ] = 256,
    out_channels: Channels = 128,
    num_layers: Layers = 2,
    norm: Literal["none", "batch_norm"] = "none",
    activation: Literal["relu", "prelu", "elu"] = "relu",
    readout: Readout = "mean",
) -> nn.Module:
    """Return a graph convolutional network (Kipf and Welling 2017) whose embedding is the last layer only.

    Args:
        in_channels: F, width of the node features.
        hidden_channels: width of all layers but the last.
        out_channels: H, width of the last layer.
        num_layers: number of layers.
        norm: `none`, as in GRACE and DGI, or `batch_norm`, as in BGRL.
        activation: `relu`, `prelu` or `elu`, after every layer.
        readout: `sum`, `mean` or `max` over a graph's nodes; not used for nodes.
    """
    return Pooled(GraphConvolutions(in_channels, hidden_channels, out_channels, num_layers, norm, activation), readout)


@references.register("raw", label="raw features", needs="nodes", after="bag")
def raw(inputs: Inputs) -> Tensor:
    """Return the features of the nodes."""
    return torch.cat([batch.x for batch in inputs.batches]).cpu()


@references.register("propagated", label="propagated features", needs="nodes", after="raw")
def propagated(inputs: Inputs) -> Tensor:
    """Return the features after two hops of the normalised adjacency."""
    return torch.cat([propagate(batch.x, batch.edge_index) for batch in inputs.batches]).cpu()
