"""Does FlatNCE or DCL help small batches, as their papers say? python benchmarks/studies/batch_size.py

Four losses x six batch sizes x three temperatures, in equal epochs and in equal steps; the views of the GraphCL
configurations, all other projections as negatives, learning rate 0.01 throughout. Page: docs/studies/batch_size.md.
"""

import itertools
from dataclasses import replace
from math import ceil

import numpy as np
from study import COLOURS, Study, curve, figure, markdown, means, plus_minus

from graphcl.evaluate import holm, paired_test

LOSSES = ("infonce", "flatnce", "dclw", "adnce")
BATCHES = (8, 16, 32, 64, 128, 256)
TEMPERATURES = (0.1, 0.2, 0.5)
GRAPHS = {"PROTEINS": 1113, "NCI1": 4110}
EPOCHS = {"PROTEINS": 20, "NCI1": 10}  # NCI1 has four times the graphs
BUDGETS = ("equal epochs", "equal steps")


def axes(dataset, batches):
    losses = [{"name": loss, "negatives": "all"} for loss in LOSSES]
    return {
        "recipe": ["graphcl"],
        "dataset": [dataset],
        "loss": losses,
        "loss.temperature": list(TEMPERATURES),
        "batch_size": list(batches),
    }


def main():
    study = Study("batch_size")
    sets = study.sets("PROTEINS", "NCI1")
    found = {}
    for dataset in sets:
        epochs = min(EPOCHS[dataset], study.given.epochs)
        steps = epochs * ceil(GRAPHS[dataset] / 128)
        # The nearest neighbours' vote, as in DCL's paper; the SVM would take most of the time.
        common = {"eval": "knn", "table": {"rows": ["loss", "loss.temperature"], "columns": "batch_size"}}
        found[dataset, BUDGETS[0]] = study.run(f"{dataset}-epochs", axes(dataset, BATCHES), epochs=epochs, **common)
        # With 128 both budgets are the same run.
        others = [batch for batch in BATCHES if batch != 128]
        found[dataset, BUDGETS[1]] = study.run(f"{dataset}-steps", axes(dataset, others), steps=steps, **common)

    def scores(dataset, budget, loss, temperature, batch):
        kind = BUDGETS[0] if batch == 128 else budget
        where = {"loss": f"{loss}(negatives=all)", "loss__temperature": temperature, "batch_size": batch}
        return found[dataset, kind].scores(**where)

    def accuracy(*place):
        return means(scores(*place))

    picture, plots = figure(len(TEMPERATURES), len(sets) * 2, height=2.2)
    tables = {}
    for row, (dataset, budget) in enumerate((dataset, budget) for dataset in sets for budget in BUDGETS):
        lines = []
        for temperature, axis in zip(TEMPERATURES, plots[row], strict=True):
            for loss, colour in zip(LOSSES, COLOURS, strict=False):
                values = [accuracy(dataset, budget, loss, temperature, batch) for batch in BATCHES]
                if all(map(len, values)):
                    curve(axis, BATCHES, values, colour, loss)
                lines.append([temperature, loss, *map(plus_minus, values)])
            axis.set_xscale("log", base=2)
            axis.set_xticks(BATCHES, [str(batch) for batch in BATCHES])
            axis.set_title(f"{dataset}, {budget}, tau {temperature}")
        plots[row][0].set_ylabel("accuracy, %")
        untrained = found[dataset, BUDGETS[0]].untrained()
        lines.append(["", "untrained", plus_minus(means(untrained)), *[""] * 5])
        tables[f"{dataset} {budget}"] = markdown(["tau", "loss", *map(str, BATCHES)], lines)
    for axis in plots[-1]:
        axis.set_xlabel("batch size")
    plots[0][-1].legend(fontsize=7)

    tables["tests"] = gaps(sets, scores)
    study.keep(picture, **tables)


def averaged(found, seeds):
    """Return scores by seed, averaged over settings fold by fold, as settings are not independent repetitions."""
    return [
        replace(found[0][seed], accuracy=tuple(np.mean([each[seed].accuracy for each in found], axis=0).tolist()))
        for seed in seeds
    ]


def gaps(sets, scores):
    """Return the table of leads over InfoNCE at each batch size, with a test. DCL claims that its lead shrinks."""
    tests = {}
    for dataset, budget, loss, batch in itertools.product(sets, BUDGETS, LOSSES[1:], BATCHES):
        found = [
            {each.seed: each for each in scores(dataset, budget, name, temperature, batch)}
            for name in (loss, "infonce")
            for temperature in TEMPERATURES
        ]
        seeds = sorted(set.intersection(*map(set, found)))
        mine, base = (averaged(some, seeds) for some in (found[: len(TEMPERATURES)], found[-len(TEMPERATURES) :]))
        if mine:
            tests[dataset, budget, loss, batch] = paired_test(mine, base)
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    lines = []
    for dataset, budget, loss in dict.fromkeys(place[:3] for place in tests):
        cells = []
        for batch in BATCHES:
            p = adjusted.get((dataset, budget, loss, batch))
            if p is None:
                cells.append("-")
                continue
            text = f"{tests[dataset, budget, loss, batch].mean:+.2f} ({p:.2f})"
            cells.append(f"**{text}**" if p < 0.05 else text)
        lines.append([dataset, budget, loss, *cells])
    return markdown(["set", "budget", "over infonce", *map(str, BATCHES)], lines)


if __name__ == "__main__":
    main()
