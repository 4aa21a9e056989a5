"""Helpers for tests of methods that contrast nodes: two views of one graph, and a small model."""

import torch
from torch_geometric.data import Batch, Data

from graphcl.augment import drop_and_mask, two_views
from graphcl.extensions.nodes.models import NodeModel, node_gcn
from tests.methods.small import seeded


def graph(n=12, seed=0, dtype=torch.float64):
    """Return a batch of one random undirected graph of n nodes with five features."""
    pairs = torch.randint(n, (2, 2 * n), generator=seeded(seed))
    x = torch.rand(n, 5, generator=seeded(seed + 1), dtype=dtype)
    return Batch.from_data_list([Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], 1))])


def node_model(seed=0, dtype=torch.float64, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NodeModel(node_gcn(5, hidden_channels=8, out_channels=6), **options).to(dtype)


def node_views(n=12, seed=0):
    return two_views(graph(n, seed), drop_and_mask(0.2, 0.2), drop_and_mask(0.3, 0.3), seeded(seed))
