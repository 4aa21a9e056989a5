"""Price the selection rules of published rows: python benchmarks/studies/leaderboard.py --mirror ../shared/tu

One training of `graphcl` a seed, scored on its way. The honest figure is the accuracy at a fixed epoch; every other
figure is what a published rule would have printed for the same runs. The difference is the optimism of the rule. Page:
docs/studies/leaderboard.md.
"""

import numpy as np
from kept import STUDIES, Kept
from study import SETS, Study, markdown

from graphcl.evaluate import FoldScores

FIXED = 20
"""Epoch of the honest figure."""
EVERY = {"NCI1": 10, "NCI109": 10, "REDDIT-BINARY": 10, "DD": 5, "IMDB-MULTI": 5}
"""Epochs between two scores; 2 on smaller sets."""
RULES = {
    "best of epochs 10, 20, 30 (AutoGCL)": lambda a, epochs: a[:, np.isin(epochs, (10, 20, 30))].mean(2).max(1).mean(),
    "one epoch for all seeds (GIN)": lambda a, epochs: a.mean((0, 2)).max(),
    "best epoch of each seed (DDM, MSSGCL)": lambda a, epochs: a.mean(2).max(1).mean(),
    "best epoch of each fold": lambda a, epochs: a.max(1).mean(),
}
"""Rule -> the figure it prints, from accuracies [seeds, epochs, folds] and the epochs."""


def scored(cells) -> dict[str, list]:
    """Return the test accuracies of all seeds at each epoch, each with the record of its run."""
    rows: dict[str, list] = {}
    for _, record in cells.done:
        for epoch, found in record["epoch_scores"].items():
            rows.setdefault(epoch, []).append((FoldScores.of(found["svm"]), record))
    return dict(sorted(rows.items(), key=lambda row: int(row[0])))


def optimism(values: np.ndarray, epochs: np.ndarray) -> list[float]:
    """Return the honest figure and the optimism of every rule in points."""
    honest = float(values[:, list(epochs).index(FIXED)].mean())
    return [honest, *(float(figure(values, epochs)) - honest for figure in RULES.values())]


def tables(kept: Kept) -> dict[str, str]:
    """Return the table of the page."""
    lines = []
    for dataset in SETS:
        rows = dict.fromkeys(line["row"] for line in kept.lines["leaderboard"][dataset])
        folds = [[each.accuracy for each in kept.scores("leaderboard", dataset, row)] for row in rows]
        honest, *others = optimism(np.array(folds).swapaxes(0, 1), np.array([*map(int, rows)]))
        size = f"{len(folds[0])} x {len(folds)}"
        lines.append([dataset, size, f"{honest:.2f}", *(f"{each:+.2f}" for each in others)])
    return {"optimism": markdown(["set", "seeds x epochs", f"honest, epoch {FIXED}", *RULES], lines)}


def main() -> None:
    """Run the trainings that are left and write the page."""
    study, kept = Study("leaderboard", seeds=10), Kept(STUDIES)
    for dataset in () if study.given.finished else study.sets(*SETS):
        every, seeds = EVERY.get(dataset, 2), study.seeds(dataset)
        axes = {"recipe": ["graphcl"], "dataset": [dataset]}
        kept.add("leaderboard", dataset, scored(study.run(dataset, axes, epochs=30, score_every=every, seeds=seeds)))
    study.keep(**tables(kept))


if __name__ == "__main__":
    main()
