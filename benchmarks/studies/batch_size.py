"""Does FlatNCE, DCL or ADNCE help small batches, as their papers say? python benchmarks/studies/batch_size.py

Runs the shipped sweep `batch_size`: four losses x seven batch sizes x two temperatures on NCI1, in equal steps. Page:
docs/studies/batch_size.md.
"""

from dataclasses import replace

import numpy as np
from kept import STUDIES, Kept
from study import COLOURS, Study, curve, figure, log_axis, markdown, means, without_count

from graphcl.evaluate import holm, paired_test
from graphcl.sweep.write import gain_text

LOSSES = {"infonce": "infonce", "flatnce": "flatnce", "dclw": "dclw", "adnce": "adnce(mu=0.7, sigma=1.0)"}
"""Name in the tables -> label in the sweep."""
BATCHES = (8, 16, 32, 64, 128, 256, 512)
TEMPERATURES = (0.1, 0.2)
OTHERS = [loss for loss in LOSSES if loss != "infonce"]


def scores_of(kept, temperature, loss, batch):
    """Return the kept scores of a cell, one a seed."""
    return kept.scores("batch_size", f"tau {temperature}", f"{loss}, {batch}")


def tables(kept):
    """Return the tables of the page: accuracies, and leads over InfoNCE."""
    lines = [
        [temperature, loss, *(without_count(means(scores_of(kept, temperature, loss, batch))) for batch in BATCHES)]
        for temperature in TEMPERATURES
        for loss in LOSSES
    ]
    untrained = without_count(means(kept.scores("batch_size", f"tau {TEMPERATURES[0]}", "untrained")))
    lines.append(["", "untrained", untrained, *[""] * (len(BATCHES) - 1)])
    return {"accuracy": markdown(["tau", "loss", *map(str, BATCHES)], lines), "tests": leads(kept)}


def averaged(kept, loss, batch):
    """Return scores by seed, averaged over temperatures fold by fold, as these are not independent repetitions."""
    by_seed = zip(*(scores_of(kept, temperature, loss, batch) for temperature in TEMPERATURES), strict=True)
    return [
        replace(each[0], accuracy=tuple(np.mean([one.accuracy for one in each], axis=0).tolist())) for each in by_seed
    ]


def leads(kept):
    """Return the table of leads over InfoNCE at each batch size, with a test. DCL claims that its lead shrinks."""
    tests = {
        (loss, batch): paired_test(averaged(kept, loss, batch), averaged(kept, "infonce", batch))
        for loss in OTHERS
        for batch in BATCHES
    }
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    lines = [
        [loss, *(gain_text(tests[loss, batch].mean, adjusted[loss, batch]) for batch in BATCHES)] for loss in OTHERS
    ]
    return markdown(["over infonce", *map(str, BATCHES)], lines)


def picture(kept):
    """Return the figure: accuracy over batch size for each temperature."""
    drawn, plots = figure(len(TEMPERATURES))
    for temperature, axis in zip(TEMPERATURES, plots[0], strict=True):
        for loss, colour in zip(LOSSES, COLOURS, strict=False):
            values = [means(scores_of(kept, temperature, loss, batch)) for batch in BATCHES]
            curve(axis, BATCHES, values, colour, loss)
        log_axis(axis, BATCHES, base=2)
        axis.set_title(f"tau {temperature}")
        axis.set_xlabel("batch size")
    plots[0][0].set_ylabel("accuracy, %")
    plots[0][-1].legend(fontsize=7)
    return drawn


def main():
    study, kept = Study("batch_size", seeds=5), Kept(STUDIES)
    cells = None if study.given.finished else study.shipped("batch_size")
    for temperature in TEMPERATURES if cells else ():
        rows = {
            f"{loss}, {batch}": cells.scored(loss=label, loss__temperature=temperature, batch_size=batch)
            for loss, label in LOSSES.items()
            for batch in BATCHES
        }
        kept.add("batch_size", f"tau {temperature}", rows | {"untrained": cells.scored_untrained()})
    study.keep(picture(kept), **tables(kept))


if __name__ == "__main__":
    main()
