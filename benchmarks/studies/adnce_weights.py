"""Compare ADNCE over (mu, sigma) with equal weights: python benchmarks/studies/adnce_weights.py

The ADNCE configuration of each set over (mu, sigma), and its own baseline: the same loss with equal weights, at the
same temperature and views. Page: docs/studies/adnce_weights.md.
"""

from kept import STUDIES, Kept
from study import Study, figure, markdown, means, plus_minus, protocol

from graphcl.evaluate import holm, paired_gain, paired_test

SETS = ("MUTAG", "PROTEINS", "NCI1", "IMDB-BINARY")
MUS = (0.3, 0.7, 1.5)
SIGMAS = (0.3, 0.5, 1.0)
POINTS = {f"mu {mu}, sigma {sigma}": (mu, sigma) for sigma in SIGMAS for mu in MUS}


def compared(kept):
    """Return the paired test of each set and point against equal weights, and the adjusted p-values."""
    tests = {
        (dataset, point): paired_test(*(kept.scores("adnce_weights", dataset, row) for row in (point, "equal weights")))
        for dataset in SETS
        if dataset in kept.lines["adnce_weights"]
        for point in POINTS
    }
    return tests, dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))


def tables(kept):
    """Return the table of the page."""
    tests, adjusted = compared(kept)
    lines = []
    for dataset in dict.fromkeys(dataset for dataset, _ in tests):
        scores = {row: kept.scores("adnce_weights", dataset, row) for row in ("untrained", "equal weights", *POINTS)}
        for row, found in scores.items():
            line = [dataset, row, plus_minus(means(found))]
            line.append("" if row == "untrained" else f"{paired_gain(found, scores['untrained']).mean:+.2f}")
            test = tests.get((dataset, row))
            lines.append([*line, *((f"{test.mean:+.2f}", f"{adjusted[dataset, row]:.3f}") if test else ("", ""))])
    return {
        "table": markdown(["set", "weights", "accuracy", "over untrained", "over equal weights", "p (Holm)"], lines)
    }


def picture(kept):
    """Return the figure: the difference to equal weights over mu and sigma."""
    tests, adjusted = compared(kept)
    sets = list(dict.fromkeys(dataset for dataset, _ in tests))
    drawn, plots = figure(len(sets), width=2.6)
    for axis, dataset in zip(plots[0], sets, strict=True):
        found = [tests[dataset, point].mean for point in POINTS]
        table = [found[start : start + len(MUS)] for start in range(0, len(found), len(MUS))]
        image = axis.imshow(table, cmap="PuOr", vmin=-2, vmax=2, aspect="auto")
        for place, (point, mean) in enumerate(zip(POINTS, found, strict=True)):
            star = "*" if adjusted[dataset, point] < 0.05 else ""
            y, x = divmod(place, len(MUS))
            axis.text(x, y, f"{mean:+.2f}{star}", ha="center", va="center", fontsize=8)
        axis.grid(False)
        axis.set_xticks(range(len(MUS)), map(str, MUS))
        axis.set_yticks(range(len(SIGMAS)), map(str, SIGMAS))
        axis.set_xlabel("mu")
        axis.set_title(dataset)
    plots[0][0].set_ylabel("sigma")
    drawn.colorbar(image, ax=plots[0][-1], label="points over equal weights")
    return drawn


def main():
    study, kept = Study("adnce_weights", seeds=10), Kept(STUDIES)
    for dataset in () if study.given.finished else study.sets(*SETS):
        given = {"seeds": study.seeds(dataset), **protocol(dataset)}
        axes = {"recipe": ["adnce"], "dataset": [dataset], "loss.mu": list(MUS), "loss.sigma": list(SIGMAS)}
        grid = study.run(dataset, axes, **given)
        base = study.run(f"{dataset}-baseline", {"recipe": ["adnce_baseline"], "dataset": [dataset]}, **given)
        rows = {point: grid.scored(loss__mu=mu, loss__sigma=sigma) for point, (mu, sigma) in POINTS.items()}
        rows |= {"equal weights": base.scored(), "untrained": base.scored_untrained()}
        kept.add("adnce_weights", dataset, rows)
    study.keep(picture(kept), **tables(kept))


if __name__ == "__main__":
    main()
