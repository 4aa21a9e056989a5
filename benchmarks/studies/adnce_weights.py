"""Compare ADNCE over (mu, sigma) with equal weights: python benchmarks/studies/adnce_weights.py

The ADNCE configuration of each set over (mu, sigma), and its own baseline: the same loss with equal weights, at the
same temperature and views. Page: docs/studies/adnce_weights.md.
"""

from study import Study, figure, markdown, means, plus_minus, protocol

from graphcl.evaluate import holm, paired_gain, paired_test

SETS = ("MUTAG", "PROTEINS", "NCI1", "IMDB-BINARY")
MUS = (0.3, 0.7, 1.5)
SIGMAS = (0.3, 0.5, 1.0)


def sweeps(study, dataset):
    """Return the cells of the grid over (mu, sigma), and of the baseline."""
    axes = {"recipe": ["adnce"], "dataset": [dataset], "loss.mu": list(MUS), "loss.sigma": list(SIGMAS)}
    base = {"recipe": ["adnce_baseline"], "dataset": [dataset]}
    grid = study.run(dataset, axes, diagnostics=True, **protocol(dataset))
    return grid, study.run(f"{dataset}-baseline", base, **protocol(dataset))


def main():
    study = Study("adnce_weights")
    found = {dataset: sweeps(study, dataset) for dataset in study.sets(*SETS)}

    points = [(mu, sigma) for sigma in SIGMAS for mu in MUS]
    tests = {}
    for dataset, (cells, base) in found.items():
        for mu, sigma in points:
            mine = cells.scores(loss__mu=mu, loss__sigma=sigma)
            tests[dataset, mu, sigma] = paired_test(mine, base.scores())
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))

    lines = []
    for dataset, (cells, base) in found.items():
        gain = paired_gain(base.scores(), base.untrained())
        lines.append([dataset, "untrained", plus_minus(means(base.untrained())), "", "", ""])
        lines.append([dataset, "equal weights", plus_minus(base.accuracy()), f"{gain.mean:+.2f}", "", ""])
        for mu, sigma in points:
            where = {"loss__mu": mu, "loss__sigma": sigma}
            gain = paired_gain(cells.scores(**where), cells.untrained())
            test, p = tests[dataset, mu, sigma], adjusted[dataset, mu, sigma]
            named = f"mu {mu}, sigma {sigma}"
            difference = f"{test.mean:+.2f}"
            lines.append(
                [dataset, named, plus_minus(cells.accuracy(**where)), f"{gain.mean:+.2f}", difference, f"{p:.3f}"]
            )

    picture, plots = figure(len(found), width=2.6)
    for axis, (dataset, _) in zip(plots[0], found.items(), strict=True):
        table = [[tests[dataset, mu, sigma].mean for mu in MUS] for sigma in SIGMAS]
        image = axis.imshow(table, cmap="PuOr", vmin=-2, vmax=2, aspect="auto")
        for y, sigma in enumerate(SIGMAS):
            for x, mu in enumerate(MUS):
                star = "*" if adjusted[dataset, mu, sigma] < 0.05 else ""
                axis.text(x, y, f"{table[y][x]:+.2f}{star}", ha="center", va="center", fontsize=8)
        axis.grid(False)
        axis.set_xticks(range(len(MUS)), map(str, MUS))
        axis.set_yticks(range(len(SIGMAS)), map(str, SIGMAS))
        axis.set_xlabel("mu")
        axis.set_title(dataset)
    plots[0][0].set_ylabel("sigma")
    picture.colorbar(image, ax=plots[0][-1], label="points over equal weights")
    head = ["set", "weights", "accuracy", "over untrained", "over equal weights", "p (Holm)"]
    study.keep(picture, table=markdown(head, lines))


if __name__ == "__main__":
    main()
