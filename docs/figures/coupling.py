"""DCL's multiplier q over batch sizes: python docs/figures/coupling.py --mirror FOLDER writes coupling.svg.

grad InfoNCE = q grad DCL with q = 1 - p+. Projections of MUTAG's and PROTEINS' graphs under InfoNCE after 20 epochs
(batch 128, temperature 0.1), original view against node drop; then every graph's q in random batches of each size.
"""

import argparse
from pathlib import Path

import torch

from graphcl import GIN, ContrastiveModel, Identity, Loss, NodeDrop, ResidentLoader, TwoViews, load_dataset, train
from graphcl.augment import two_views
from graphcl.report.style import panels, style
from graphcl.training.diagnostics import coupling

TEMPERATURE = 0.1


def projections(name, mirror, root):
    """Return the projections of all graphs in both views, after training."""
    dataset = load_dataset(name, data_root=root, mirror=mirror)
    torch.manual_seed(0)
    model = ContrastiveModel(GIN(dataset.num_features))
    loader = ResidentLoader(dataset, 128, shuffle=True, generator=torch.Generator().manual_seed(0))
    draws = torch.Generator().manual_seed(1)
    loss = Loss("infonce", temperature=TEMPERATURE)
    train(TwoViews(model, loss), loader, Identity(), NodeDrop(0.1), epochs=20, generator=draws)
    model.eval()
    with torch.no_grad():
        (batch,) = ResidentLoader(dataset, len(dataset))
        return [model(view) for view in two_views(batch, Identity(), NodeDrop(0.1), draws)]


def spread(z1, z2, size, seed=0):
    """Return q of at least 4,000 anchors in random batches of a size."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    while sum(map(len, found)) < 4000:
        graphs = torch.randperm(len(z1), generator=generator)[:size]
        found.append(coupling(z1[graphs], z2[graphs], TEMPERATURE))
    return torch.cat(found)


@style()
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mirror")
    parser.add_argument("--root", default="datasets")
    arguments = parser.parse_args()
    figure, axes = panels(2, 4, 3.2)
    for axis, name in zip(axes, ("MUTAG", "PROTEINS"), strict=True):
        z1, z2 = projections(name, arguments.mirror, arguments.root)
        sizes = [size for size in (8, 16, 32, 64, 128, 256, 512, 1024) if size <= len(z1)]
        every = [spread(z1, z2, size) for size in sizes]
        parts = axis.violinplot([q.numpy() for q in every], showextrema=False, widths=0.85, points=60)
        for body in parts["bodies"]:
            body.set(facecolor="#0072B2", alpha=0.35)
        levels = torch.tensor([0.25, 0.5, 0.75])
        quantiles = [q.quantile(levels).tolist() for q in every]
        for place, (low, middle, high) in enumerate(quantiles, start=1):
            axis.plot([place, place], [low, high], color="#0072B2", lw=3, solid_capstyle="round")
            axis.plot(place, middle, "o", color="white", mec="#0072B2", ms=6)
        axis.set_xticks(range(1, len(sizes) + 1), map(str, sizes))
        axis.set(title=f"{name} ({len(z1)} graphs)", xlabel="batch size", ylim=(0, 1.02))
        for size, q, (low, middle, high) in zip(sizes, every, quantiles, strict=True):
            print(f"{name}, batch {size}: mean q {q.mean():.3f}, quartiles {low:.3f} {middle:.3f} {high:.3f}")
    axes[0].set_ylabel("q = 1 - p+ of the anchors")
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
