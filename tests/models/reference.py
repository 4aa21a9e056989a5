"""GIN and GINE made of PyG's layers, for comparison."""

import torch
from torch import nn
from torch_geometric.nn import GINConv, GINEConv, global_add_pool


class Reference(nn.Module):
    """GIN or GINE with the sum readout, made of PyG's layers with the weights of `encoder`."""

    def __init__(self, encoder):
        super().__init__()
        dims = [None if each.lin is None else each.lin.weight.size(1) for each in encoder.convs]
        layers = [
            GINEConv(each.nn, edge_dim=dim) if dim else GINConv(each.nn)
            for each, dim in zip(encoder.convs, dims, strict=True)
        ]
        for layer, each in zip(layers, encoder.convs, strict=True):
            layer.load_state_dict(each.state_dict(), strict=False)  # the parameters are named as in PyG
        self.convs, self.norms, self.out_channels = nn.ModuleList(layers), encoder.norms, encoder.out_channels
        self.to(encoder.norms[0].weight.dtype)

    def forward(self, x, edge_index, batch=None, edge_attr=None):
        batch = edge_index.new_zeros(len(x)) if batch is None else batch
        pools, attributes = [], () if edge_attr is None else (edge_attr,)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(conv(x, edge_index, *attributes).relu())
            pools.append(global_add_pool(x, batch))
        return torch.cat(pools, dim=1)
