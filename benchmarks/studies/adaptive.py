"""Compare three ways to set ADNCE's mu and sigma: python benchmarks/studies/adaptive.py

`adnce_auto` by quantile and by radius, one setting for all sets, and a meta-gradient (meta_adnce.py), against ADNCE
tuned for each set: the best of the grid of adnce_weights.py, chosen by the accuracy on inner folds, never by that on
test folds. docs/studies/adaptive.md tells.
"""

import numpy as np
from adnce_auto import adnce_auto  # registers the loss, in the workers too
from adnce_weights import MUS, SETS, SIGMAS, sweeps
from meta_adnce import MetaADNCE  # registers the method, in the workers too
from study import COLOURS, Study, figure, markdown, means, plus_minus, protocol

from graphcl.evaluate import holm, paired_gain, paired_test

AUTO = {"name": "adnce_auto", "rule": "quantile", "temperature": 0.2, "symmetric": False}
META = {"name": "adnce", "temperature": 0.2, "symmetric": False, "negative_reduction": "mean"}
RULES = {
    "quantile": {"loss": AUTO},
    "quantile, scale 0.5": {"loss": {**AUTO, "scale": 0.5}},
    "radius": {"loss": {**AUTO, "rule": "radius"}},
    "radius, tilt": {"loss": {**AUTO, "rule": "tilt"}},
    "radius, tilt, share 0.25": {"loss": {**AUTO, "rule": "tilt", "share": 0.25}},
    "meta-gradient": {"loss": META, "method": "meta_adnce"},
}


def main():
    assert MetaADNCE
    assert adnce_auto
    study = Study("adaptive")
    rows, lines, tests = {}, [], {}
    for dataset in study.sets(*SETS):
        grid, base = sweeps(study, dataset)
        axes = {"recipe": ["graphcl"], "dataset": [dataset], "rule": RULES}
        cells = study.run(dataset, axes, diagnostics=True, **protocol(dataset))
        points = {(mu, sigma): grid.scores(loss__mu=mu, loss__sigma=sigma) for mu in MUS for sigma in SIGMAS}
        chosen = max(points, key=lambda point: np.mean([each.inner for each in points[point]]))
        rows[dataset] = {
            "untrained": base.untrained(),
            "equal weights": base.scores(),
            f"ADNCE tuned (mu {chosen[0]}, sigma {chosen[1]})": points[chosen],
            **{rule: cells.scores(rule=rule) for rule in RULES},
        }
        tuned = points[chosen]
        tests |= {(dataset, rule): paired_test(cells.scores(rule=rule), tuned) for rule in RULES}
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    for dataset, found in rows.items():
        for name, scores in found.items():
            gain = paired_gain(scores, found["untrained"]).mean
            test = tests.get((dataset, name))
            against = f"{test.mean:+.2f} ({adjusted[dataset, name]:.3f})" if test else ""
            lines.append([dataset, name, plus_minus(means(scores)), f"{gain:+.2f}", against])

    picture, plots = figure(len(rows), width=2.6)
    for axis, (dataset, found) in zip(plots[0], rows.items(), strict=True):
        for place, (name, scores) in enumerate(found.items()):
            values = means(scores)
            colour = COLOURS[0] if name in RULES else COLOURS[1] if "tuned" in name else "#777777"
            axis.errorbar(values.mean(), -place, xerr=values.std(), fmt="o", markersize=4, color=colour)
        names = [name.split(" (")[0] for name in found]
        axis.set_yticks([-place for place in range(len(names))], names if axis is plots[0][0] else [""] * len(names))
        axis.set_title(f"{dataset}, accuracy %")
    study.keep(picture, table=markdown(["set", "weights", "accuracy", "over untrained", "over tuned (p)"], lines))


if __name__ == "__main__":
    main()
