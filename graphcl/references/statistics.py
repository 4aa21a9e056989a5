"""The rows that need no encoder: equal embeddings, simple statistics, and sums of node labels."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Batch
from torch_geometric.utils import degree, scatter

from graphcl.references.rows import Inputs
from graphcl.registry import references


@references.register("majority", label="majority class", task="predict", after="start")
def majority(inputs: Inputs) -> Tensor:
    """Return zeros, for which a classifier predicts the largest class of its training part."""
    return torch.zeros(inputs.dataset.num_rows, 1)


@references.register("random", label="random order", task="search", after="majority")
def random_order(inputs: Inputs) -> Tensor:
    """Return zeros, by which all candidates of a query are equal."""
    return majority(inputs)


@references.register("statistics", label="graph statistics", needs="graphs columns", after="random")
def statistics(inputs: Inputs) -> Tensor:
    """Return sizes and histograms of each graph, without the columns that are zero for all but copies."""
    rows = graph_statistics(inputs.batches, inputs.max_degree)
    return rows[:, (rows[: len(inputs.dataset)] != 0).any(dim=0)]


@references.register("bag", label="bag of node labels", needs="graphs columns search", after="statistics")
def bag(inputs: Inputs) -> Tensor:
    """Return the sum of each graph's node features."""
    return bag_of_labels(inputs.batches)


@torch.no_grad()
def graph_statistics(loader: Iterable[Batch], max_degree: int = 64) -> Tensor:
    r"""Return simple statistics of every graph in `loader`, which can be scored like an embedding.

    $$s = \operatorname{sign}(c) \log(1 + |c|)$$

    where c is a raw statistic and s the returned value; the logarithm prevents large counts from dominating an RBF
    kernel. The raw statistics are the number of nodes, the number of edges, the sum of the node features (a label
    histogram for one-hot labels) and the histogram of degrees. Integer features are taken as categories: each
    feature column becomes a histogram.

    Args:
        loader: batches of graphs; iterated twice, in the same order.
        max_degree: degrees of `max_degree` or more share one column.

    Returns:
        Statistics of n graphs with F features, at most `[n, 2 + F + max_degree + 1]`, in float32 on the CPU. Columns
        that are zero for all graphs are removed.
    """
    categories, rows = _categories(loader), []
    for batch in loader:
        n, x = batch.num_graphs, _numbers(batch.x, categories)
        degrees = degree(batch.edge_index[1], x.size(0)).long().clamp(max=max_degree)
        of_nodes = torch.cat([x.float(), one_hot(degrees, max_degree + 1).float()], dim=1)
        nodes = scatter(torch.ones_like(degrees), batch.batch, dim_size=n)
        edges = scatter(torch.ones_like(batch.edge_index[0]), batch.batch[batch.edge_index[0]], dim_size=n)
        sums = scatter(of_nodes, batch.batch, dim_size=n)
        rows.append(torch.cat([nodes[:, None], edges[:, None], sums], dim=1).cpu())
    counts = torch.cat(rows)
    counts = counts[:, (counts != 0).any(dim=0)]
    return counts.sign() * counts.abs().log1p()


@torch.no_grad()
def bag_of_labels(loader: Iterable[Batch]) -> Tensor:
    """Return the sum of the node features of every graph in `loader`: for one-hot labels, how often each occurs.

    Integer features are taken as categories, as in `graph_statistics`. No edge is used.

    Args:
        loader: batches of graphs; iterated twice, in the same order.

    Returns:
        Sums of n graphs with F features `[n, F]`, in float32 on the CPU.
    """
    categories = _categories(loader)
    rows = [
        scatter(_numbers(batch.x, categories).float(), batch.batch, dim_size=batch.num_graphs).cpu() for batch in loader
    ]
    return torch.cat(rows)


def _categories(loader: Iterable[Batch]) -> list[int]:
    """Return the number of categories of each column of integer features; an empty list for floating-point ones."""
    largest = [batch.x.amax(dim=0) for batch in loader if not batch.x.is_floating_point()]
    return (torch.stack(largest).amax(dim=0) + 1).tolist() if largest else []


def _numbers(x: Tensor, categories: list[int]) -> Tensor:
    """Return features as numbers `[N, F]`, categories one-hot; all zeros for `MASK`, -1."""
    if not categories:
        return x
    columns = zip(x.T, categories, strict=True)
    return torch.cat([one_hot(column + 1, size + 1)[:, 1:] for column, size in columns], dim=1)
