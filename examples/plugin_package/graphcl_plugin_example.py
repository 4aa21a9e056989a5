"""A loss, an augmentation and a data set in a separate package; its `pyproject.toml` registers them.

Annotated ranges (`Positive`) are checked for values from Python, a configuration and the command line.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch_geometric.data import Batch, Data

from graphcl.extend import Augmentation, Decision, Fraction, Positive


def cosine_margin(z1: Tensor, z2: Tensor, *, margin: Fraction = 0.5) -> Tensor:
    r"""Compute a loss that pulls positives to cosine 1 and pushes negatives below a margin.

    $$\frac1N \sum_i \Big( 1 - c_{ii} + \frac1{N-1} \sum_{j \ne i} \max(0, c_{ij} - m) \Big)$$

    Args:
        z1: projections of the first view, `[N, D]`.
        z2: projections of the second view, `[N, D]`.
        margin: m, in [0, 1].
    """
    cosine = normalize(z1, dim=1) @ normalize(z2, dim=1).T
    positive = cosine.diagonal()
    above = (cosine - margin).relu()
    negative = (above.sum() - above.diagonal().sum()) / (z1.size(0) - 1)
    return (1 - positive).mean() + negative / z1.size(0)


class FeatureNoise(Augmentation):
    """Add Gaussian noise to all features.

    Args:
        std: standard deviation of the noise, > 0.
    """

    def __init__(self, std: Positive = 0.1) -> None:
        self.std = std

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Return the noisy features; `graphs [B]` selects the graphs to change."""
        noise = self.std * torch.randn(batch.x.shape, generator=generator, device=batch.x.device)
        nodes = torch.arange(batch.num_nodes, device=batch.x.device)
        if graphs is not None:
            nodes = nodes[graphs[batch.batch]]
        return Decision(masked=nodes, features=batch.x[nodes] + noise[nodes])


def rings_and_stars(root: str | Path) -> list[Data]:
    """Return sixty rings and sixty stars of 5 to 10 nodes; a set read from a file would store it under `root`."""
    graphs = []
    for number in range(120):
        nodes, star = torch.arange(5 + number // 2 % 6), number % 2
        ends = torch.stack([nodes[1:], nodes[1:] * 0]) if star else torch.stack([nodes, nodes.roll(1)])
        edge_index = torch.cat([ends, ends.flip(0)], dim=1)
        graphs.append(Data(x=torch.ones(len(nodes), 1), edge_index=edge_index, y=torch.tensor([star])))
    return graphs
