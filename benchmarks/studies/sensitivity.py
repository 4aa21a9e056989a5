"""How much do temperature, ratio and width move the accuracy? python benchmarks/studies/sensitivity.py

One setting at a time around the recipes `graphcl` and `adnce`, on four sets. Page: docs/studies/sensitivity.md.
"""

import numpy as np
from kept import STUDIES, Kept
from study import COLOURS, Study, curve, figure, log_axis, markdown, means, without_count

from graphcl.evaluate import holm, paired_test
from graphcl.sweep.write import gain_text

VALUES = {
    "temperature": (0.05, 0.1, 0.2, 0.5, 1.0),
    "ratio": (0.05, 0.1, 0.2, 0.3, 0.4),
    "width": (8, 16, 32, 64, 128),
    "temperature of adnce": (0.05, 0.1, 0.2, 0.5, 1.0),
}
DEFAULTS = {"temperature": 0.2, "ratio": 0.2, "width": 32, "temperature of adnce": 0.2}
SETTINGS = {
    "temperature": ("graphcl", "loss.temperature"),
    "ratio": ("graphcl", "views.second.ratio"),
    "width": ("graphcl", "encoder.hidden_channels"),
    "temperature of adnce": ("adnce", "loss.temperature"),
}
"""Name of a setting -> recipe and setting. For ADNCE, whose recipe has another temperature for each set, 0.2 stands for
the default.
"""
SETS = ("MUTAG", "BZR", "IMDB-BINARY", "PROTEINS")


def scores_of(kept, dataset, name, value):
    """Return the kept scores of a value of a setting, one a seed."""
    return kept.scores("sensitivity", f"{dataset}, {name}", str(value))


def tables(kept):
    """Return the tables of the page: the accuracies for each setting, and the ranges of their means."""
    found, best, tests = {}, {}, {}
    for name, values in VALUES.items():
        rows = []
        for dataset in SETS:
            of_value = {value: scores_of(kept, dataset, name, value) for value in values}
            rows.append([dataset, *(without_count(means(each)) for each in of_value.values())])
            found[dataset, name] = [means(each).mean() for each in of_value.values()]
            best[dataset, name] = values[int(np.argmax(found[dataset, name]))]
            for each in set(values) - {DEFAULTS[name]}:  # all of them, as the best is chosen by the same scores
                tests[dataset, name, each] = paired_test(of_value[each], of_value[DEFAULTS[name]])
        found[name] = markdown([name, *map(str, values)], rows)
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    lines = []
    for dataset in SETS:
        line = [dataset, f"{np.ptp(means(scores_of(kept, dataset, 'temperature', DEFAULTS['temperature']))):.1f}"]
        for name in VALUES:
            value, gain = best[dataset, name], ""
            if test := tests.get((dataset, name, value)):
                gain = f": {gain_text(test.mean, adjusted[dataset, name, value])}"
            line.append(f"{np.ptp(found[dataset, name]):.1f}; {value}{gain}")
        lines.append(line)
    return {name: found[name] for name in VALUES} | {"ranges": markdown(["set", "seeds", *VALUES], lines)}


def picture(kept):
    """Return the figure: points above the default over each setting."""
    drawn, plots = figure(len(VALUES))
    for axis, (name, values) in zip(plots[0], VALUES.items(), strict=True):
        for dataset, colour in zip(SETS, COLOURS, strict=False):
            found = {value: means(scores_of(kept, dataset, name, value)) for value in values}
            curve(axis, values, [each - found[DEFAULTS[name]].mean() for each in found.values()], colour, dataset)
        log_axis(axis, values, base=2)
        axis.set_xlabel(name)
    plots[0][0].set_ylabel("points above the default")
    plots[0][-1].legend(fontsize=7)
    return drawn


def main():
    study, kept = Study("sensitivity", seeds=10), Kept(STUDIES)
    for dataset in () if study.given.finished else study.sets(*SETS):
        seeds = study.seeds(dataset)
        for name, values in VALUES.items():
            recipe, setting = SETTINGS[name]
            axes = {"recipe": [recipe], "dataset": [dataset], setting: list(values)}
            cells = study.run(f"{dataset}-{name.replace(' ', '-')}", axes, seeds=seeds)
            rows = {str(value): cells.scored(**{setting.replace(".", "__"): value}) for value in values}
            kept.add("sensitivity", f"{dataset}, {name}", rows)
    study.keep(picture(kept), **tables(kept))


if __name__ == "__main__":
    main()
