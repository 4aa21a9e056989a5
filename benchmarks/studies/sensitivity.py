"""How much do temperature, ratio and width move the accuracy of GraphCL? python benchmarks/studies/sensitivity.py

One setting at a time around the recipe `graphcl`, on four sets. Page: docs/studies/sensitivity.md.
"""

import numpy as np
from study import COLOURS, TEN_SEEDS, Study, curve, figure, markdown, means, plus_minus

from graphcl.evaluate import holm, paired_test
from graphcl.sweep.texts import gain_text

VALUES = {
    "loss.temperature": (0.05, 0.1, 0.2, 0.5, 1.0),
    "views.second.ratio": (0.05, 0.1, 0.2, 0.3, 0.4),
    "encoder.hidden_channels": (8, 16, 32, 64, 128),
}
DEFAULTS = {"loss.temperature": 0.2, "views.second.ratio": 0.2, "encoder.hidden_channels": 32}
NAMES = {"loss.temperature": "temperature", "views.second.ratio": "ratio", "encoder.hidden_channels": "width"}
SETS = ("MUTAG", "BZR", "IMDB-BINARY", "PROTEINS")


def main():
    study = Study("sensitivity", seeds=10)
    sets, scores = study.sets(*SETS), {}
    for name in sets:
        seeds = list(range(min(study.given.seeds, 10 if name in TEN_SEEDS else 5)))
        for setting, values in VALUES.items():
            axes = {"recipe": ["graphcl"], "dataset": [name], setting: list(values)}
            cells = study.run(f"{name}-{NAMES[setting]}", axes, seeds=seeds)
            for value in values:
                scores[setting, name, value] = cells.scores(**{setting.replace(".", "__"): value})

    picture, plots = figure(len(VALUES))
    tables, best, tests = {}, {}, {}
    for axis, (setting, values) in zip(plots[0], VALUES.items(), strict=True):
        rows = []
        for name, colour in zip(sets, COLOURS, strict=False):
            found = {value: means(scores[setting, name, value]) for value in values}
            curve(axis, values, [each - found[DEFAULTS[setting]].mean() for each in found.values()], colour, name)
            rows.append([name, *map(plus_minus, found.values())])
            value = best[setting, name] = max(values, key=lambda each, found=found: found[each].mean())
            if value != DEFAULTS[setting]:
                tests[setting, name] = paired_test(
                    scores[setting, name, value], scores[setting, name, DEFAULTS[setting]]
                )
        axis.set_xscale("log", base=2 if min(values) > 1 else 10)
        axis.set_xticks(values, list(map(str, values)))
        axis.set_xticks([], minor=True)
        axis.set_xlabel(NAMES[setting])
        tables[NAMES[setting]] = markdown([NAMES[setting], *map(str, values)], rows)
    plots[0][0].set_ylabel("points above the default")
    plots[0][-1].legend(fontsize=7)

    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    lines = []
    for name in sets:
        of_seeds = means(scores["loss.temperature", name, DEFAULTS["loss.temperature"]])
        line = [name, f"{np.ptp(of_seeds):.1f}"]
        for setting, values in VALUES.items():
            spread = np.ptp([means(scores[setting, name, value]).mean() for value in values])
            test = tests.get((setting, name))
            gain = gain_text(test.mean, adjusted[setting, name]) if test else "the default"
            line.append(f"{spread:.1f}; {best[setting, name]}: {gain}")
        lines.append(line)
    tables["ranges"] = markdown(["set", "seeds", *NAMES.values()], lines)
    study.keep(picture, **tables)


if __name__ == "__main__":
    main()
