"""Compare an epoch of GRACE with PyGCL's on one graph: python benchmarks/nodes.py --dataset Cora --mirror ~/planetoid

PyGCL (pip install --no-deps PyGCL) has no encoder of its own. As in its example of GRACE, the encoder is two of PyG's
`GCNConv` and the projector has an ELU; views and loss are PyGCL's classes. The example also encodes the graph without
augmentation in every step and discards the result, which is left out here. Both pipelines have the same widths, ratios,
temperature and optimiser. Their epochs alternate in one process with one thread; the figures are CPU seconds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from unittest.mock import MagicMock

import timing
import torch
from timing import machine, timed, told
from torch import nn
from torch_geometric.nn import GCNConv

from graphcl import GRACE, ResidentLoader, load_dataset, train
from graphcl.augment import drop_and_mask
from graphcl.extensions.nodes.models import NodeModel, node_gcn
from graphcl.losses import Loss

EDGES, FEATURES, TEMPERATURE, LEARNING_RATE = 0.3, 0.3, 0.2, 0.01
"""Settings of PyGCL's example."""


class GCN(nn.Module):
    """Two of PyG's graph convolutions, each with a ReLU."""

    def __init__(self, in_channels: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([GCNConv(in_channels, hidden), GCNConv(hidden, hidden)])

    def forward(self, x, edge_index, edge_weight=None):
        for layer in self.layers:
            x = layer(x, edge_index, edge_weight).relu()
        return x


def pygcl_epoch(graph, hidden):
    """Return a function that runs one epoch by PyGCL."""
    for name in ("dgl", "torch_scatter", "torch_sparse"):  # PyGCL imports them, but GRACE calls nothing of them
        sys.modules.setdefault(name, MagicMock())
    import GCL.augmentors as augmentors
    from GCL.losses import InfoNCE
    from GCL.models import DualBranchContrast

    views = [
        augmentors.Compose([augmentors.EdgeRemoving(pe=EDGES), augmentors.FeatureMasking(pf=FEATURES)])
        for _ in range(2)
    ]
    encoder = GCN(graph.num_features, hidden)
    projector = nn.Sequential(nn.Linear(hidden, hidden), nn.ELU(), nn.Linear(hidden, hidden))
    contrast = DualBranchContrast(loss=InfoNCE(tau=TEMPERATURE), mode="L2L", intraview_negs=True)
    optimiser = torch.optim.Adam([*encoder.parameters(), *projector.parameters()], lr=LEARNING_RATE)

    def epoch():
        optimiser.zero_grad()
        first, second = (projector(encoder(*view(graph.x, graph.edge_index))) for view in views)
        contrast(first, second).backward()
        optimiser.step()

    return epoch


def our_epoch(dataset, hidden):
    """Return a function that runs one epoch by `graphcl.train`."""
    model = NodeModel(node_gcn(dataset.num_features, hidden_channels=hidden, out_channels=hidden), projector="elu")
    method = GRACE(model, Loss("nt_xent", temperature=TEMPERATURE))
    loader, view = ResidentLoader(dataset, 1), drop_and_mask(EDGES, FEATURES)
    return lambda: train(method, loader, view, view, epochs=1, lr=LEARNING_RATE)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--dataset", default="Cora")
    parser.add_argument("--mirror")
    parser.add_argument("--data-root", default="datasets")
    parser.add_argument("--hidden", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    torch.set_num_threads(1)
    timing.clock = time.process_time
    dataset = load_dataset(given.dataset, given.data_root, given.mirror, nodes=True)
    print("| columns | graphcl | PyGCL | ratio |\n|---|---|---|---|")
    for hidden in given.hidden:
        epochs = our_epoch(dataset, hidden), pygcl_epoch(dataset[0], hidden)
        found = [[timed(epoch) for epoch in epochs] for _ in range(given.repeats + 1)][1:]
        ours, theirs = (statistics.median(each) for each in zip(*found, strict=True))
        print(f"| {hidden} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.1f} |", flush=True)
    print(told(machine(1)))


if __name__ == "__main__":
    main()
