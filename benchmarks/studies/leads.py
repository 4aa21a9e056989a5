"""Try ideas for better training by inner folds: python benchmarks/studies/leads.py --mirror ../shared/tu

Every idea changes one thing in the training of `best`: the normalisation, the readout, the size, the views, the
objective, or what is kept of the untrained encoder. Scores are accuracies on the inner folds of training parts, with
selection seeds, so the test folds choose nothing. Results are kept line by line in OUT; finished lines are not
measured again. NCI1 has one seed.
"""

from pathlib import Path

import numpy as np
import torch
from study import add_line, finished_lines, markdown, options, write_tables
from torch import nn
from torch.nn import functional
from torch_geometric.data import Batch
from wl import kernels

from graphcl import GIN, ContrastiveModel, ResidentLoader, embed, load_dataset, svm, train
from graphcl.augment import random4
from graphcl.graphs.wl import histogram, refine
from graphcl.methods import Outcome, TwoViews
from graphcl.models.calibrate import calibrate

SETS = ["MUTAG", "PTC_MR", "BZR", "PROTEINS", "IMDB-BINARY", "IMDB-MULTI", "NCI1"]


class ScaleOnly(nn.Module):
    """Divide each column by its root mean square in the batch (a running mean in evaluation), without centring."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("square", torch.ones(width))
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        """Return the scaled rows `[N, H]`."""
        square = x.square().mean(0) if self.training else self.square
        if self.training:
            self.square.lerp_(square.detach(), 0.1)
        return x * (square + 1e-5).rsqrt() * self.weight


class Guided(TwoViews):
    """InfoNCE plus a term that draws similarities between graphs towards a given matrix.

    `square` is the mean squared difference of the cosines and the targets, divided by the variance of the targets.
    `soft` is the cross-entropy of the softmax of the cosines / 0.2 with the softmax of the targets / 0.05.

    Args:
        model: encoder and projector.
        targets: similarities of all graphs of the data set, `[n, n]`.
        form: `square` or `soft`.
        on_h: whether the cosines are those of the embeddings (centred) instead of the projections.
        weight: factor of the term.
        contrast: factor of InfoNCE.
    """

    def __init__(self, model, targets, form="square", on_h=False, weight=1.0, contrast=1.0) -> None:
        super().__init__(model, "infonce")
        self.targets, self.form, self.on_h, self.weight, self.contrast = targets, form, on_h, weight, contrast

    def forward(self, view1, view2, *, ids=None, generator=None) -> Outcome:
        """Return the loss of a batch, see `Method`."""
        out = super().forward(view1, view2, ids=ids, generator=generator)
        wanted = self.targets[ids][:, ids]
        rows = [out.h - out.h.mean(0)] * 2 if self.on_h else [out.z1, out.z2]
        cosine = functional.normalize(rows[0]) @ functional.normalize(rows[1]).T
        if self.form == "square":
            term = (cosine - wanted).square().mean() / (wanted.var() + 1e-6)
        else:
            soft = (wanted / 0.05).softmax(1)
            term = -(soft * ((cosine / 0.2).log_softmax(1) + (cosine.T / 0.2).log_softmax(1))).sum(1).mean() / 2
        return Outcome(self.contrast * out.loss + self.weight * term, out.h, out.z1, out.z2)


def wl_oa(dataset):
    """Return the normalised WL-OA kernel of depth 3 of all graphs, `[n, n]`."""
    batch = Batch.from_data_list(list(dataset))
    labels = batch.x.argmax(1).numpy()
    colours = refine(labels, batch.edge_index.numpy(), 3)
    return torch.as_tensor(kernels([histogram(each, batch.batch.numpy()) for each in colours], "wl_oa")[-1])


class Trial:
    """One data set and seed: an untrained model, its embeddings, and training under one idea.

    Args:
        dataset: graphs with labels and degrees as features.
        plain: the same graphs with labels only, from which WL starts.
        seed: seed of weights, order and views.
        epochs: length of training.
    """

    def __init__(self, dataset, plain, seed: int, epochs: int) -> None:
        self.dataset, self.plain, self.seed, self.epochs = dataset, plain, seed, epochs
        self.whole = ResidentLoader(dataset, batch_size=1024)

    def model(self, norm=None, **options) -> ContrastiveModel:
        """Return an untrained model; `norm` replaces BatchNorm."""
        torch.manual_seed(self.seed)
        encoder = GIN(self.dataset.num_features, **{"hidden_channels": 128, "readout": "log_sum"} | options)
        if norm is not None:
            encoder.norms = nn.ModuleList(norm(128) for _ in encoder.norms)
        return ContrastiveModel(encoder)

    def untrained(self, **options):
        """Return the embeddings of an untrained encoder with calibrated BatchNorm, `[n, H]`."""
        order = torch.Generator().manual_seed(self.seed)
        model = self.model(**options)
        loader = ResidentLoader(self.dataset, batch_size=1024, shuffle=True, generator=order)
        return embed(calibrate(model, loader), self.whole)[0]

    def trained(self, make_method=None, lr=0.003, ratio=0.2, **options):
        """Return the embeddings after training, `[n, H]`; `make_method` maps a model to a method."""
        model = self.model(**options)
        order = torch.Generator().manual_seed(2 * self.seed)
        views = torch.Generator().manual_seed(2 * self.seed + 1)
        loader = ResidentLoader(self.dataset, batch_size=512, shuffle=True, generator=order)
        method = TwoViews(model, "infonce") if make_method is None else make_method(model)
        view = random4(ratio)
        train(method, loader, view, view, epochs=self.epochs, lr=lr, schedule="cosine", generator=views)
        return embed(model, self.whole)[0]

    def anchored(self):
        """Train with a term that keeps the cosines of the untrained embedding, standardised by column."""
        h = standard(self.untrained())
        near = functional.normalize(h) @ functional.normalize(h).T
        return self.trained(lambda model: Guided(model, near, on_h=True, weight=10.0))

    def guided(self, **options):
        """Train with WL-OA similarities as targets."""
        targets = wl_oa(self.plain)
        return self.trained(lambda model: Guided(model, targets, **options))


def standard(h):
    """Return `h [n, H]` with columns of mean 0 and deviation 1."""
    return (h - h.mean(0)) / (h.std(0) + 1e-6)


LEADS = {
    "*untrained, sum*": lambda trial: trial.untrained(readout="sum"),
    "*untrained, log_sum*": lambda trial: trial.untrained(),
    "*untrained, width 512*": lambda trial: trial.untrained(hidden_channels=512),
    "*untrained, five layers*": lambda trial: trial.untrained(num_layers=5),
    "sum": lambda trial: trial.trained(readout="sum"),
    "log_sum": lambda trial: trial.trained(),
    "no normalisation": lambda trial: trial.trained(norm=lambda width: nn.Identity(), lr=0.001),
    "scale only": lambda trial: trial.trained(norm=ScaleOnly),
    "LayerNorm": lambda trial: trial.trained(norm=nn.LayerNorm),
    "width 512": lambda trial: trial.trained(hidden_channels=512),
    "five layers": lambda trial: trial.trained(num_layers=5),
    "weak views": lambda trial: trial.trained(ratio=0.05),
    "max readout": lambda trial: trial.trained(readout="max"),
    "with the untrained": lambda trial: torch.cat([standard(trial.trained()), standard(trial.untrained())], dim=1),
    "anchored to the untrained": lambda trial: trial.anchored(),
    "WL-OA, square": lambda trial: trial.guided(contrast=0.0),
    "WL-OA, square + InfoNCE": lambda trial: trial.guided(),
    "WL-OA, soft": lambda trial: trial.guided(form="soft", contrast=0.0),
}
"""Idea -> function from a `Trial` to embeddings."""


def main():
    """Measure what is missing and write the table of the page."""
    parser = options("leads")
    parser.add_argument("--out", default="sweeps/leads.jsonl", type=Path, help="file of the results")
    parser.add_argument("--seeds", nargs="+", type=int, default=[100, 101, 102])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--leads", nargs="+", default=list(LEADS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = {(each["set"], each["lead"], each["seed"]): each["inner"] for each in finished_lines(given.out)}
    for name in [] if given.finished else given.sets:
        dataset = load_dataset(name, given.data_root, given.mirror, features="auto+degree")
        plain = load_dataset(name, given.data_root, given.mirror)
        for seed in given.seeds[: 1 if name == "NCI1" else None]:
            for lead in given.leads:
                if (name, lead, seed) in found:
                    continue
                h = LEADS[lead](Trial(dataset, plain, seed, given.epochs))
                scores = svm(h, dataset.y, seed=seed, folds=5, inner_folds=3, scale=True)
                found[name, lead, seed] = float(np.mean(scores.inner))
                inner = found[name, lead, seed]
                add_line(given.out, set=name, lead=lead, seed=seed, inner=inner, test=scores.mean)
    write_tables(given.docs / "recipes.md", leads=table(found, given.sets))


def table(found, sets):
    """Return the mean accuracies on inner folds by idea and set, in Markdown."""
    rows = []
    for lead in LEADS:
        seeds = [[value for (name, each, _), value in found.items() if (name, each) == (one, lead)] for one in sets]
        rows.append([lead, *(f"{np.mean(values):.2f}" if values else "-" for values in seeds)])
    return markdown(["idea", *sets], rows)


if __name__ == "__main__":
    main()
