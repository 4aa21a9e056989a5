"""Compare an epoch of GraphCL with PyGCL's: python benchmarks/pygcl.py --datasets MUTAG PROTEINS --mirror ~/tu

PyGCL (pip install --no-deps PyGCL) has no encoder of its own. As in its example of GraphCL, the encoder is a GIN of two
layers of width 32 with BatchNorm, made of PyG's layers, one view is the graph itself, and the other changes a tenth by
one of node dropping, feature masking and edge removing; views and loss are PyGCL's classes. The example also encodes
the graph without augmentation in every step and discards the result ("as released"); the second row leaves this out.
Both pipelines have the same widths, ratios, temperature, batch size and optimiser. Their epochs alternate in one
process; the figures are medians, without the first two epochs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from itertools import product
from unittest.mock import MagicMock

import timing
import torch
from timing import machine, timed, told
from torch import nn
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool

from graphcl import GIN, ContrastiveModel, Loss, TwoViews, load_dataset, make_loader, train
from graphcl.augment import EdgeDrop, FeatureMask, NodeDrop, OneOf

RATIO, TEMPERATURE, LEARNING_RATE, BATCH, HIDDEN, LAYERS = 0.1, 0.2, 0.01, 128, 32, 2
"""Settings of PyGCL's example, without its fourth augmentation, a random walk that needs torch-sparse."""


class Encoder(nn.Module):
    """GIN of PyG's layers that pools every layer, with a projector."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        widths = [in_channels] + [HIDDEN] * (LAYERS - 1)
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))) for width in widths
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(HIDDEN) for _ in widths)
        wide = HIDDEN * LAYERS
        self.projector = nn.Sequential(nn.Linear(wide, wide), nn.ReLU(inplace=True), nn.Linear(wide, wide))

    def forward(self, x, edge_index, batch):
        pools = []
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(conv(x, edge_index).relu())
            pools.append(global_add_pool(x, batch))
        return torch.cat(pools, dim=1)


def pygcl_epoch(dataset, as_released, batch_size=BATCH, device="cpu"):
    """Return a function that runs one epoch by PyGCL."""
    for name in ("dgl", "torch_scatter", "torch_sparse"):  # PyGCL imports them, but these views call nothing of them
        sys.modules.setdefault(name, MagicMock())
    import GCL.augmentors as augmentors
    from GCL.losses import InfoNCE
    from GCL.models import DualBranchContrast

    first = augmentors.Identity()
    choices = [
        augmentors.NodeDropping(pn=RATIO),
        augmentors.FeatureMasking(pf=RATIO),
        augmentors.EdgeRemoving(pe=RATIO),
    ]
    second = augmentors.RandomChoice(choices, 1)
    encoder = Encoder(dataset.num_features).to(device)
    contrast = DualBranchContrast(loss=InfoNCE(tau=TEMPERATURE), mode="G2G").to(device)
    optimiser = torch.optim.Adam(encoder.parameters(), lr=LEARNING_RATE)
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True)

    def epoch():
        for data in loader:
            data = data.to(device)
            optimiser.zero_grad()
            views = [first(data.x, data.edge_index), second(data.x, data.edge_index)]
            if as_released:
                encoder(data.x, data.edge_index, data.batch)
            g1, g2 = (encoder.projector(encoder(x, edge_index, data.batch)) for x, edge_index, _ in views)
            contrast(g1=g1, g2=g2, batch=data.batch).backward()
            optimiser.step()

    return epoch


def compare(dataset, repeats, batch_size=BATCH, device="cpu", capture=False):
    """Return the median seconds of an epoch by `graphcl.train`, by PyGCL as released and by PyGCL with two passes."""
    model = ContrastiveModel(GIN(dataset.num_features, hidden_channels=HIDDEN, num_layers=LAYERS)).to(device)
    method = TwoViews(model, Loss("infonce", temperature=TEMPERATURE))
    loader = make_loader(dataset, batch_size, shuffle=True, device=device)
    second = OneOf([NodeDrop(RATIO), FeatureMask(RATIO), EdgeDrop(RATIO)])
    others = [pygcl_epoch(dataset, each, batch_size, device) for each in (True, False)]
    found, start = [], 0.0

    def after_epoch(_):
        nonlocal start
        # `train` waits for the device at the end of an epoch
        found.append([timing.clock() - start, *(timed(each, device) for each in others)])
        start = timing.clock()

    settings = {"lr": LEARNING_RATE, "capture": capture, "callbacks": [after_epoch]}
    train(method, loader, "identity", second, epochs=repeats + 2, **settings)
    return map(statistics.median, zip(*found[2:], strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--datasets", nargs="+", default=["MUTAG"])
    parser.add_argument("--mirror")
    parser.add_argument("--data-root", default="datasets")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=BATCH)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cpu-seconds", action="store_true", help="measure CPU time, with one thread")
    given = parser.parse_args()
    torch.set_num_threads(1 if given.cpu_seconds else given.threads)
    if given.cpu_seconds:
        timing.clock = time.process_time
    print("| data set | graphcl, s | PyGCL as released | ratio | two passes | ratio |\n|---|---|---|---|---|---|")
    for name, capture in product(given.datasets, (False, True)[: 1 if given.device == "cpu" else 2]):
        dataset = load_dataset(name, given.data_root, given.mirror)
        ours, released, two = compare(dataset, given.repeats, given.batch_size, given.device, capture)
        print(
            f"| {name}{', captured' if capture else ''} | {ours:.4f} | {released:.4f} | {released / ours:.2f} "
            f"| {two:.4f} | {two / ours:.2f} |",
            flush=True,
        )
    print(told(machine(torch.get_num_threads())))


if __name__ == "__main__":
    main()
