"""Compare an epoch of GraphCL with PyGCL's and with a plain loop of PyG: python benchmarks/pygcl.py --mirror ~/tu

PyGCL (pip install --no-deps PyGCL) has no encoder of its own. As in its example of GraphCL, the encoder is a GIN of two
layers of width 32 with BatchNorm, made of PyG's layers, one view is the graph itself, and the other changes a tenth by
one of node dropping, feature masking and edge removing; views and loss are PyGCL's classes. The example also encodes
the graph without augmentation in every step and discards the result ("released"); "two passes" leaves this out. The
plain loop is what somebody writes by hand: PyG's `DataLoader` and `GINConv`, node dropping by `subgraph` in one view, a
dense InfoNCE. It is compared with the same single augmentation of ours.

All have the same widths, ratios, temperature, batch size and optimiser. Epochs of the compared sides alternate in one
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
from pyg_pipeline import info_nce
from timing import machine, number, timed, told
from torch import nn
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool
from torch_geometric.utils import subgraph

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

    def forward(self, x, edge_index, batch, size=None):
        pools = []
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(conv(x, edge_index).relu())
            pools.append(global_add_pool(x, batch, size))
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


def plain_epoch(dataset, batch_size=BATCH, device="cpu"):
    """Return a function that runs one epoch by a plain loop of PyG."""
    encoder = Encoder(dataset.num_features).to(device)
    optimiser = torch.optim.Adam(encoder.parameters(), lr=LEARNING_RATE)
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True)

    def project(x, edge_index, batch, size):
        return encoder.projector(encoder(x, edge_index, batch, size))

    def epoch():
        for data in loader:
            data = data.to(device)
            keep = torch.rand(data.num_nodes, device=device) >= RATIO
            edge_index, _ = subgraph(keep, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes)
            z1 = project(data.x, data.edge_index, data.batch, data.num_graphs)
            z2 = project(data.x[keep], edge_index, data.batch[keep], data.num_graphs)
            optimiser.zero_grad()
            info_nce(z1, z2).backward()
            optimiser.step()

    return epoch


def compare(dataset, repeats, second, others, batch_size=BATCH, device="cpu", capture=False):
    """Return the median seconds of an epoch by `graphcl.train`, with `second` on one view, and of each of `others`."""
    model = ContrastiveModel(GIN(dataset.num_features, hidden_channels=HIDDEN, num_layers=LAYERS)).to(device)
    method = TwoViews(model, Loss("infonce", temperature=TEMPERATURE))
    loader = make_loader(dataset, batch_size, shuffle=True, device=device)
    seconds, start = [], 0.0

    def after_epoch(_):
        nonlocal start
        # `train` waits for the device at the end of an epoch
        seconds.append([timing.clock() - start, *(timed(epoch, device) for epoch in others)])
        start = timing.clock()

    settings = {"lr": LEARNING_RATE, "capture": capture, "callbacks": [after_epoch]}
    train(method, loader, "identity", second, epochs=repeats + 2, **settings)
    return map(statistics.median, zip(*seconds[2:], strict=True))


def measure(name, arguments, threads, capture=False):
    """Return the row of a set."""
    torch.set_num_threads(threads)
    # CPU time of one thread depends less on other programs
    timing.clock = time.process_time if threads == 1 and arguments.device == "cpu" else time.perf_counter
    dataset = load_dataset(name, arguments.data_root, arguments.mirror)
    repeats = max(arguments.repeats, arguments.graphs // len(dataset))
    device = arguments.batch_size, arguments.device
    one_of = OneOf([NodeDrop(RATIO), FeatureMask(RATIO), EdgeDrop(RATIO)])
    pygcl = [pygcl_epoch(dataset, as_released, *device) for as_released in (True, False)]
    seconds = compare(dataset, repeats, one_of, pygcl, *device, capture)
    plain = compare(dataset, repeats, NodeDrop(RATIO), [plain_epoch(dataset, *device)], *device, capture)
    row = dict(
        zip(("graphcl", "released", "two_passes", "graphcl_node_drop", "plain"), [*seconds, *plain], strict=True)
    )
    return {"set": name, "threads": threads, "clock": timing.clock.__name__, "captured": capture} | row


def page(rows):
    """Return the table of docs/speed.md: seconds of one thread, and the ratios to graphcl by number of threads."""
    lines = []
    for name in dict.fromkeys(row["set"] for row in rows):
        of_set = sorted((row for row in rows if row["set"] == name), key=lambda row: row["threads"])
        cells = [number(of_set[0]["graphcl"]), *(" / ".join(f"{x:.2f}" for x in ratios(row)) for row in of_set)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def ratios(row):
    """Return the time of PyGCL as released, of PyGCL with two passes and of the plain loop, divided by graphcl's."""
    ours = {"released": "graphcl", "two_passes": "graphcl", "plain": "graphcl_node_drop"}
    return [row[name] / row[side] for name, side in ours.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--datasets", nargs="+", default=SETS)
    parser.add_argument("--mirror")
    parser.add_argument("--data-root", default="datasets")
    parser.add_argument("--threads", type=int, nargs="+", default=(1, 2))
    parser.add_argument("--repeats", type=int, default=9, help="epochs to time; small sets have more")
    parser.add_argument("--graphs", type=int, default=20_000, help="graphs in all timed epochs of a small set")
    parser.add_argument("--batch-size", type=int, default=BATCH)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="JSON file of the rows, such as benchmarks/results/pygcl.json")
    arguments = parser.parse_args()
    rows, about = [], machine(max(arguments.threads))
    for name, threads, capture in product(arguments.datasets, arguments.threads, (False, True)):
        if capture and arguments.device == "cpu":
            continue
        rows.append(measure(name, arguments, threads, capture))
        print(json.dumps(rows[-1]), flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps({"machine": about, "rows": rows}, indent=1) + "\n")
    print(page(rows))
    print(told(about))


if __name__ == "__main__":
    main()
