"""Does FlatNCE or DCL help small batches, as their papers say? python benchmarks/studies/batch_size.py

Three losses x seven batch sizes x two temperatures on NCI1, in equal steps; the views of the GraphCL configurations,
all other projections as negatives, learning rate 0.01 throughout. Page: docs/studies/batch_size.md.
"""

from dataclasses import replace

import numpy as np
from study import COLOURS, Study, curve, figure, markdown, means, plus_minus

from graphcl.evaluate import holm, paired_test
from graphcl.sweep.texts import gain_text

LOSSES = ("infonce", "flatnce", "dclw")
BATCHES = (8, 16, 32, 64, 128, 256, 512)
TEMPERATURES = (0.1, 0.2)
STEPS = 330  # ten epochs of batches of 128


def main():
    study = Study("batch_size", seeds=10)
    scores, untrained = {}, []
    for temperature in TEMPERATURES:
        axes = {
            "recipe": ["graphcl"],
            "dataset": ["NCI1"],
            "loss": [{"name": loss, "negatives": "all", "temperature": temperature} for loss in LOSSES],
            "batch_size": list(BATCHES),
        }
        # The nearest neighbours' vote, as in DCL's paper; the SVM would take most of the time.
        cells = study.run(f"NCI1-{temperature}", axes, eval="knn", steps=STEPS)
        untrained = cells.untrained()
        for loss, batch in ((loss, batch) for loss in LOSSES for batch in BATCHES):
            where = {"loss": f"{loss}(negatives=all, temperature={temperature})", "batch_size": batch}
            scores[temperature, loss, batch] = cells.scores(**where)

    picture, plots = figure(len(TEMPERATURES))
    lines = []
    for temperature, axis in zip(TEMPERATURES, plots[0], strict=True):
        for loss, colour in zip(LOSSES, COLOURS, strict=False):
            values = [means(scores[temperature, loss, batch]) for batch in BATCHES]
            curve(axis, BATCHES, values, colour, loss)
            lines.append([temperature, loss, *map(plus_minus, values)])
        axis.set_xscale("log", base=2)
        axis.set_xticks(BATCHES, [str(batch) for batch in BATCHES])
        axis.set_title(f"tau {temperature}")
        axis.set_xlabel("batch size")
    plots[0][0].set_ylabel("accuracy, %")
    plots[0][-1].legend(fontsize=7)
    lines.append(["", "untrained", plus_minus(means(untrained)), *[""] * 6])
    study.keep(picture, accuracy=markdown(["tau", "loss", *map(str, BATCHES)], lines), tests=leads(scores))


def averaged(scores, loss, batch):
    """Return scores by seed, averaged over temperatures fold by fold, as these are not independent repetitions."""
    by_seed = zip(*(scores[temperature, loss, batch] for temperature in TEMPERATURES), strict=True)
    return [
        replace(each[0], accuracy=tuple(np.mean([one.accuracy for one in each], axis=0).tolist())) for each in by_seed
    ]


def leads(scores):
    """Return the table of leads over InfoNCE at each batch size, with a test. DCL claims that its lead shrinks."""
    tests = {
        (loss, batch): paired_test(averaged(scores, loss, batch), averaged(scores, "infonce", batch))
        for loss in LOSSES[1:]
        for batch in BATCHES
    }
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    lines = [
        [loss, *(gain_text(tests[loss, batch].mean, adjusted[loss, batch]) for batch in BATCHES)] for loss in LOSSES[1:]
    ]
    return markdown(["over infonce", *map(str, BATCHES)], lines)


if __name__ == "__main__":
    main()
