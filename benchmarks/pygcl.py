"""Compare an epoch of GraphCL with PyGCL's: python benchmarks/pygcl.py --mirror ~/tu

PyGCL (pip install --no-deps PyGCL) has no encoder of its own. As in its example of GraphCL, the encoder is a GIN of two
layers of width 32 with BatchNorm, made of PyG's layers, one view is the graph itself, and the other changes a tenth by
one of node dropping, feature masking and edge removing; views and loss are PyGCL's classes. The example also encodes
the graph without augmentation in every step and discards the result ("as released"); the second row leaves this out.
Both pipelines have the same widths, ratios, temperature, batch size and optimiser. Their epochs alternate in one
process; the figures are medians, without the first two epochs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from itertools import product
from pathlib import Path
from unittest.mock import MagicMock

import timing
import torch
from timing import machine, number, timed, told
from torch import nn
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool

from graphcl import GIN, ContrastiveModel, Loss, TwoViews, load_dataset, make_loader, train
from graphcl.augment import EdgeDrop, FeatureMask, NodeDrop, OneOf

SETS = ("MUTAG", "PROTEINS", "NCI1", "IMDB-BINARY", "DD", "REDDIT-BINARY")
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


def measure(name, given, threads, capture=False):
    """Return the row of a set."""
    torch.set_num_threads(threads)
    # CPU time of one thread depends less on other programs
    timing.clock = time.process_time if threads == 1 and given.device == "cpu" else time.perf_counter
    dataset = load_dataset(name, given.data_root, given.mirror)
    found = compare(dataset, given.repeats, given.batch_size, given.device, capture)
    seconds = dict(zip(("graphcl", "released", "two_passes"), found, strict=True))
    return {"set": name, "threads": threads, "clock": timing.clock.__name__, "captured": capture} | seconds


def page(rows):
    """Return the table of docs/speed.md: seconds of one thread, and the ratios to graphcl with one and two threads."""
    lines = []
    for name in dict.fromkeys(row["set"] for row in rows):
        one, two = (row for threads in (1, 2) for row in rows if (row["set"], row["threads"]) == (name, threads))
        ratios = [f"x {row[key] / row['graphcl']:.2f}" for row in (one, two) for key in ("released", "two_passes")]
        lines.append(
            f"| {name} | {number(one['graphcl'])} | {number(one['released'])} ({ratios[0]}) "
            f"| {number(one['two_passes'])} ({ratios[1]}) | {ratios[2]}, {ratios[3]} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--datasets", nargs="+", default=SETS)
    parser.add_argument("--mirror")
    parser.add_argument("--data-root", default="datasets")
    parser.add_argument("--threads", type=int, nargs="+", default=(1, 2))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--batch-size", type=int, default=BATCH)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="JSON file of the rows, such as benchmarks/results/pygcl.json")
    given = parser.parse_args()
    rows, about = [], machine(max(given.threads))
    for name, threads, capture in product(given.datasets, given.threads, (False, True)):
        if capture and given.device == "cpu":
            continue
        rows.append(measure(name, given, threads, capture))
        print(json.dumps(rows[-1]), flush=True)
        if given.out:
            given.out.write_text(json.dumps({"machine": about, "rows": rows}, indent=1) + "\n")
    print(told(about))


if __name__ == "__main__":
    main()
