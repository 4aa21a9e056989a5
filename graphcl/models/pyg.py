"""PyG's GCN, GAT, GraphSAGE and PNA as registered encoders, with BatchNorm, all layers concatenated (`jk="cat"`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch_geometric.nn import GAT, GCN, PNA, GraphSAGE

from graphcl.arguments import Channels, Count, Layers
from graphcl.errors import InputError
from graphcl.models.encoder import Readout
from graphcl.models.pooled import Pooled
from graphcl.registry import encoders


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
