"""Baseline by PyG's own means: its `DataLoader`, its utilities on whole batches, its `GINConv`.

Each graph draws one of four augmentations. PyG's utilities do not see the graphs of a batch, so:

- node drop: every node is dropped with probability `ratio`, as in `dropout_node`; the count holds on average only, and
  a small graph may lose all nodes.
- subgraph: no utility grows a region to a given size. `k_hop_subgraph` around one random node per graph comes nearest:
  a connected ball of any size. Eight hops hold 69 % of the nodes of PROTEINS, 70 of NCI1, 81 of molpcba's shape, 84 of
  DD's, and nearly all of graphs with hubs; the target is 80 %.
- edge perturbation: `dropout_edge(force_undirected=True)`, then as many random pairs in the same graphs. A pair that is
  connected already adds nothing. (`add_random_edge` would connect different graphs;
  `batched_negative_sampling` loops over graphs in Python and would be slower.)
- attribute masking: every node with probability `ratio`, by noise N(0.5, 0.5^2). (`mask_feature` gives one value only.)
"""

from __future__ import annotations

from typing import Any

import timing
import torch
from ours import LEARNING_RATE, RATIO, TEMPERATURE
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool
from torch_geometric.utils import coalesce, dropout_edge, k_hop_subgraph, subgraph

HOPS = 8


class PyGModel(nn.Module):
    """GIN 3 x 32 of PyG's layers, each sum-pooled, and a projector, with graphcl's parameter names."""

    def __init__(self, in_channels: int, hidden: int = 32, layers: int = 3) -> None:
        super().__init__()
        widths = [in_channels] + [hidden] * (layers - 1)
        self.encoder = nn.Module()
        self.encoder.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden))) for width in widths
        )
        self.encoder.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in widths)
        out = hidden * layers
        self.projector = nn.Sequential(nn.Linear(out, out), nn.ReLU(), nn.Linear(out, out))

    def encode(self, graphs: Data) -> Tensor:
        x, pools = graphs.x, []
        for conv, norm in zip(self.encoder.convs, self.encoder.norms, strict=True):
            x = norm(conv(x, graphs.edge_index).relu())
            pools.append(global_add_pool(x, graphs.batch, size=graphs.num_graphs))
        return torch.cat(pools, dim=1)

    def forward(self, graphs: Data) -> Tensor:
        return self.projector(self.encode(graphs))


def info_nce(z1: Tensor, z2: Tensor) -> Tensor:
    """Return the cross-entropy of picking the matching view among all graphs' other views, in both directions."""
    similarity = normalize(z1) @ normalize(z2).T / TEMPERATURE
    truth = torch.arange(similarity.size(0), device=similarity.device)
    return (cross_entropy(similarity, truth) + cross_entropy(similarity.T, truth)) / 2


def node_drop(edge_index: Tensor, graph: Tensor, mine: Tensor) -> Tensor:
    """Return the mask of the kept nodes."""
    return (torch.rand(graph.numel(), device=graph.device) >= RATIO) | ~mine[graph]


def region(edge_index: Tensor, graph: Tensor, mine: Tensor) -> Tensor:
    """Return the mask of nodes within `HOPS` hops of a random node of their graph, or in graphs outside `mine`."""
    sizes = torch.bincount(graph, minlength=mine.numel())
    first = sizes.cumsum(0) - sizes
    seeds = (first + (torch.rand(mine.numel(), device=graph.device) * sizes).long())[mine & (sizes > 0)]
    keep = ~mine[graph]
    keep[k_hop_subgraph(seeds, HOPS, edge_index, num_nodes=graph.numel())[0]] = True
    return keep


def edge_perturb(edge_index: Tensor, graph: Tensor, mine: Tensor) -> Tensor:
    """Return the edges, some replaced by random pairs of the same graph."""
    touched = mine[graph[edge_index[0]]]
    old = edge_index[:, touched]
    kept, _ = dropout_edge(old, RATIO, force_undirected=True)
    lost = (old.size(1) - kept.size(1)) // 2
    sizes = torch.bincount(graph, minlength=mine.numel())
    first = sizes.cumsum(0) - sizes
    where = graph[old[0, torch.randint(old.size(1), (lost,), device=graph.device)]] if lost else graph[:0]
    low, high = first[where] + (torch.rand(2, lost, device=graph.device) * sizes[where]).long()
    low, high = low[low != high], high[low != high]
    new = torch.stack([torch.cat([low, high]), torch.cat([high, low])])
    changed = coalesce(torch.cat([kept, new], dim=1), num_nodes=graph.numel())
    return torch.cat([edge_index[:, ~touched], changed], dim=1)


def attribute_mask(x: Tensor, graph: Tensor, mine: Tensor) -> Tensor:
    """Return the features, some rows replaced by noise."""
    rows = ((torch.rand(graph.numel(), device=x.device) < RATIO) & mine[graph]).nonzero().flatten()
    x = x.clone()
    x[rows] = 0.5 + 0.5 * torch.randn(rows.numel(), x.size(1), device=x.device)
    return x


def augment(batch: Batch, kind: Tensor | None = None) -> Data:
    """Return a view with one of the four augmentations for each graph: `kind [B]` in 0..3, random by default."""
    kind = torch.randint(4, (batch.num_graphs,), device=batch.x.device) if kind is None else kind
    x, edge_index, graph = batch.x, batch.edge_index, batch.batch
    edge_index = edge_perturb(edge_index, graph, kind == 2)
    x = attribute_mask(x, graph, kind == 3)
    keep = node_drop(edge_index, graph, kind == 0) & region(edge_index, graph, kind == 1)
    edge_index, _ = subgraph(keep, edge_index, relabel_nodes=True, num_nodes=graph.numel())
    view = Data(x=x[keep], edge_index=edge_index, batch=graph[keep])
    view.num_graphs = batch.num_graphs
    return view


class Epochs:
    """The training loop shared by pipelines of PyG's loader."""

    def __init__(self, dataset: Any, batch_size: int = 128, seed: int = 0, device: str = "cpu") -> None:
        torch.manual_seed(seed)
        self.dataset, self.batch_size, self.device = dataset, batch_size, device
        self.order = torch.randperm(len(dataset)).tolist()
        self.model = PyGModel(dataset.num_features).to(device)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE)
        self.data_share = 0.0
        """Seconds of the last epoch that its steps waited for views."""

    def views(self, graphs: list[int]) -> Any:
        """Yield pairs of views of shuffled batches of these graphs."""
        raise NotImplementedError

    def epoch(self, limit: int | None = None) -> int:
        """Train for an epoch, or on a fixed `limit` graphs, and return the number of graphs."""
        graphs = self.order[:limit]
        self.model.train()
        start, data_seconds = timing.clock(), 0.0
        pairs = iter(self.views(graphs))
        while True:
            before = timing.clock()
            views = next(pairs, None)
            data_seconds += timing.clock() - before
            if views is None:
                break
            view1, view2 = views
            loss = info_nce(self.model(view1), self.model(view2))
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
        self.data_share = data_seconds / (timing.clock() - start)
        return len(graphs)


class PyGPipeline(Epochs):
    """Augment whole batches of PyG's `DataLoader`."""

    name = "PyG"

    def views(self, graphs: list[int]) -> Any:
        sampler = torch.utils.data.SubsetRandomSampler(graphs)
        for batch in DataLoader(self.dataset, self.batch_size, sampler=sampler):
            batch = batch.to(self.device)
            yield batch, augment(batch)
