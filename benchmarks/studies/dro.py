"""Compare CL-DRO's divergences with InfoNCE: python benchmarks/studies/dro.py

KL is InfoNCE over the negatives alone (`dcl`); chi-square and its unclipped form, mean-variance, weigh the negatives
linearly in their similarity instead of exponentially. Page: docs/studies/dro.md.
"""

from study import COLOURS, Study, figure, means, protocol

SETS = ("MUTAG", "PROTEINS", "NCI1", "IMDB-BINARY")
LOSSES = (
    {"name": "infonce"},
    {"name": "cl_dro", "divergence": "kl"},
    {"name": "cl_dro", "divergence": "chi2"},
    {"name": "mean_variance"},
)
TEMPERATURES = (0.2, 0.5)


def main():
    import numpy as np

    study = Study("dro")
    found = {}
    for dataset in study.sets(*SETS):
        axes = {
            "recipe": ["graphcl"],
            "dataset": [dataset],
            "loss": list(LOSSES),
            "loss.temperature": list(TEMPERATURES),
        }
        table = {"rows": ["loss", "loss.temperature"], "baseline": {"loss": "infonce"}}
        found[dataset] = study.run(dataset, axes, table, **protocol(dataset))

    picture, plots = figure(len(found), width=2.6)
    labels = ("InfoNCE", "KL", "chi-square", "mean-variance")
    keys = ("infonce", "cl_dro(divergence=kl)", "cl_dro(divergence=chi2)", "mean_variance")
    for axis, (dataset, cells) in zip(plots[0], found.items(), strict=True):
        for offset, temperature, colour in zip((-0.2, 0.2), TEMPERATURES, COLOURS, strict=False):
            values = [cells.accuracy(loss=key, loss__temperature=temperature) for key in keys]
            places = np.arange(len(keys)) + offset
            centres, deviations = [each.mean() for each in values], [each.std() for each in values]
            axis.errorbar(places, centres, deviations, fmt="o", markersize=4, color=colour, label=f"tau {temperature}")
        before = means(cells.untrained()).mean()
        axis.axhline(before, color="#777777", linestyle=":", label="untrained")
        axis.set_xticks(range(len(keys)), labels, rotation=30, ha="right")
        axis.set_title(dataset)
    plots[0][0].set_ylabel("accuracy, %")
    picture.legend(*plots[0][0].get_legend_handles_labels(), loc="outside right upper", fontsize=7)
    tables = {dataset: cells.markdown() for dataset, cells in found.items()}
    study.keep(picture, **tables)


if __name__ == "__main__":
    main()
