"""Temperature as the radius of a robust objective: python benchmarks/studies/temperature.py

InfoNCE over five temperatures, with all, half or none of the false negatives (graphs of the anchor's class). Labels
steer the training here, so with a share below 1 the accuracies are not scores of a method; the study compares where the
maximum lies. Page: docs/studies/temperature.md.
"""

import torch
from kept import STUDIES, Kept
from study import COLOURS, Study, curve, figure, log_axis, markdown, means, protocol, without_count
from torch.nn.functional import softplus

from graphcl.arguments import Fraction
from graphcl.errors import InputError
from graphcl.losses.rows import normalize
from graphcl.methods import Method, Outcome
from graphcl.registry import methods

TEMPERATURES = (0.05, 0.1, 0.2, 0.5, 1.0)
SHARES = (1.0, 0.5, 0.0)
METRICS = ("negative_variance", "alignment")
SEEDS = {"PROTEINS": 10, "NCI1": 5}
"""Data set -> number of seeds."""


@methods.register("fewer_false_negatives")
class FewerFalseNegatives(Method):
    """Symmetric cross-view InfoNCE that keeps each negative of the anchor's class with a given probability.

    Args:
        model: encoder and projector.
        loss: `infonce`; its temperature is used.
        share: probability that a false negative is kept, in [0, 1].
    """

    def __init__(self, model, loss, *, share: Fraction = 1.0) -> None:
        super().__init__(model, loss)
        if getattr(self.loss, "name", "") != "infonce":
            raise InputError("method `fewer_false_negatives` needs loss infonce.")
        self.share = share

    def forward(self, view1, view2, *, ids=None, generator=None):
        """See `Method`."""
        h, other = self.model.encode_views(view1, view2)
        z1, z2 = self.model.project(h, other)
        cosine = normalize(z1) @ normalize(z2).T
        same = view1.y[:, None] == view1.y
        stays = torch.rand(same.shape, generator=generator, device=same.device) < self.share
        out = (same & ~stays) | torch.eye(len(same), dtype=torch.bool, device=same.device)
        return Outcome(nce(cosine, out, self.setting("temperature")), h, z1, z2)


def nce(cosine, out, temperature):
    """Return InfoNCE from cosines, with masked negatives; anchors without negatives count 0."""
    terms = []
    for table, hidden in ((cosine, out), (cosine.T, out.T)):
        logits = (table / temperature).masked_fill(hidden, -1e9)
        terms.append(softplus(logits.logsumexp(dim=1) - table.diagonal() / temperature))
    return torch.cat(terms).mean()


def rows_of(kept, dataset, share):
    """Return the accuracies, the variances of negatives and the mean cosines of positives over the temperatures."""
    names = [f"{share:.0%}, {each}" for each in TEMPERATURES]
    accuracy = [means(kept.scores("temperature", dataset, name)) for name in names]
    variance, distance = ([kept.metric("temperature", dataset, name, each) for name in names] for each in METRICS)
    return accuracy, variance, [1 - each / 2 for each in distance]  # ||a - b||^2 = 2 - 2 a.b


def tables(kept):
    """Return the tables of the page, one a set."""
    found = {}
    for dataset in kept.lines["temperature"]:
        lines = []
        for share in SHARES:
            accuracy, variance, cosine = rows_of(kept, dataset, share)
            lines.append([f"{share:.0%}", "accuracy", *map(without_count, accuracy)])
            lines.append(["", "variance of negatives", *(f"{each.mean():.4f}" for each in variance)])
            lines.append(["", "mean positive cosine", *(f"{each.mean():.3f}" for each in cosine)])
        found[dataset] = markdown(["false negatives", "measure", *map(str, TEMPERATURES)], lines)
    return found


def picture(kept):
    """Return the figure: the three measures over the temperature."""
    sets = list(kept.lines["temperature"])
    drawn, plots = figure(3, len(sets))
    titles = ("accuracy, %", "variance of negatives", "cosine of positives")
    for row, dataset in zip(plots, sets, strict=True):
        for share, colour in zip(SHARES, COLOURS, strict=False):
            for axis, seeds in zip(row, rows_of(kept, dataset, share), strict=True):
                curve(axis, TEMPERATURES, seeds, colour, f"{share:.0%} of false negatives")
        for axis, title in zip(row, titles, strict=True):
            log_axis(axis, TEMPERATURES)
            axis.set_title(f"{dataset}: {title}")
    for axis in plots[-1]:
        axis.set_xlabel("temperature")
    plots[0][0].legend(fontsize=7)
    return drawn


def main():
    study, kept = Study("temperature", seeds=10), Kept(STUDIES)
    for dataset in () if study.given.finished else study.sets(*SEEDS):
        axes = {
            "recipe": ["graphcl"],
            "dataset": [dataset],
            "method": [{"name": "fewer_false_negatives", "share": share} for share in SHARES],
            "loss": ["infonce"],
            "loss.temperature": list(TEMPERATURES),
        }
        seeds = study.seeds(dataset, SEEDS[dataset])
        cells = study.run(dataset, axes, diagnostics=True, seeds=seeds, **protocol(dataset))
        rows = {
            f"{share:.0%}, {temperature}": cells.scored(
                method=f"fewer_false_negatives(share={share})", loss__temperature=temperature
            )
            for share in SHARES
            for temperature in TEMPERATURES
        }
        kept.add("temperature", dataset, rows, METRICS)
    study.keep(picture(kept), **tables(kept))


if __name__ == "__main__":
    main()
