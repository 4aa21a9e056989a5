"""Generate a graph of any size with node classes: a stochastic block model with features."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from graphcl.errors import InputError

SIZE = 2000
"""Number of nodes of `sbm`; `sbm-20000` has 20,000."""
_BLOCKS = 8
_COLUMNS = 128


def sbm(name: str = "sbm") -> tuple[Data, dict[str, Tensor]]:
    """Return a graph with eight classes of equal size, and its split into training, validation and test nodes.

    Each of the 6.9 N edges starts at a random node. With probability 0.7 it ends at a random node of the same class,
    else at any random node. A node's 128 features are Gaussian noise of deviation 1 plus the mean of
    its class, of length 2, so features alone predict the class poorly. The training part has 20 nodes per class; 25 %
    of the other nodes are for validation, 75 % for testing. The graph depends on N only. With 169,343 nodes it has 1.17
    million edges, as many as ogbn-arxiv.

    Args:
        name: `sbm-N`, or `sbm` for 2,000 nodes.

    Raises:
        InputError: fewer than 400 nodes.

    References:
        Holland, Laskey and Leinhardt, "Stochastic Blockmodels: First Steps", Social Networks 1983.
    """
    n = int(name.partition("-")[2] or SIZE)
    if n < 400:
        raise InputError(f"`{name}` must have at least 400 nodes, got {n}.")
    draw = torch.Generator().manual_seed(n)
    y = torch.arange(n) % _BLOCKS
    edges = int(n * 13.8 / 2)
    source, target = torch.randint(n, (2, edges), generator=draw)
    own = torch.rand(edges, generator=draw) < 0.7
    # the nodes of a class are _BLOCKS apart
    target = torch.where(own, (target // _BLOCKS * _BLOCKS + y[source]) % n, target)
    pairs = torch.stack([source, target])[:, source != target]
    centres = torch.nn.functional.normalize(torch.randn(_BLOCKS, _COLUMNS, generator=draw)) * 2
    x = centres[y] + torch.randn(n, _COLUMNS, generator=draw)
    order = torch.randperm(n, generator=draw)
    train, rest = order[: 20 * _BLOCKS], order[20 * _BLOCKS :]
    split = {"train": train, "valid": rest[: len(rest) // 4], "test": rest[len(rest) // 4 :]}
    return Data(x=x, edge_index=coalesce(torch.cat([pairs, pairs.flip(0)], dim=1), num_nodes=n), y=y), split
