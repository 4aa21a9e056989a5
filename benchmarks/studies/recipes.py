"""Choose one recipe for sets that nobody tuned on: python benchmarks/studies/recipes.py --mirror ../shared/tu

Scores a base recipe and changes to it on six small sets, with selection seeds, 5 outer and 3 inner folds. The recipe of
the lowest mean rank by accuracy on the *inner* folds is `configs/best.yaml`; `published.py` scores it with fresh
seeds, also on four large sets that took no part in the choice. Leave-one-set-out: choose on the five other sets, and
test on the set that was left out.
"""

import numpy as np
from study import Cells, Study, markdown, means

SETS = ("MUTAG", "PTC_MR", "BZR", "PROTEINS", "IMDB-BINARY", "IMDB-MULTI")
BASE = {
    "features": "auto+degree",
    "encoder.hidden_channels": 128,
    "views.first": "identity",
    "evaluation.scale": True,
}
CHANGES = {
    "log_sum": {"encoder.readout": "log_sum"},
    "long": {"epochs": 60, "batch_size": 512, "lr": 0.003, "schedule": "cosine"},
    "both views": {"views.first": "random4"},
}
RECIPES = [(), ("log_sum",), ("long",), ("log_sum", "long"), ("log_sum", "long", "both views")]
SEEDS = [100, 101, 102]
"""Selection seeds; reported scores have seeds 0 to 4."""


def recipe(changes) -> dict:
    """Return the settings of the base with some changes."""
    return BASE | {key: value for change in changes for key, value in CHANGES[change].items()}


def name(changes) -> str:
    """Return the label of a recipe."""
    return " + ".join(changes) or "base"


def ranks(accuracy: np.ndarray) -> np.ndarray:
    """Return the mean rank of each recipe over the sets, 1 for the best; `accuracy [recipes, sets]`."""
    better = accuracy[None] > accuracy[:, None]
    return 1 + better.sum(1).mean(1)


def left_out(inner: np.ndarray) -> list[int]:
    """Return for each set the recipe of the lowest mean rank on the other sets; `inner [recipes, sets]`."""
    return [int(ranks(np.delete(inner, each, axis=1)).argmin()) for each in range(inner.shape[1])]


def untrained_row(cells: list[Cells], label: str) -> list[str]:
    """Return the table's line of the untrained encoder of the recipe `label`: inner accuracies."""
    found = [each.untrained(changes=label) for each in cells]
    return [f"*untrained, {label}*", *(f"{inner(scores):.2f}" for scores in found), ""]


def inner(scores) -> float:
    """Return the mean accuracy on inner folds."""
    return float(np.mean([each.inner for each in scores]))


def main():
    """Score all recipes, and write the tables of the page."""
    study = Study("recipes")
    sets = study.sets(*SETS)
    labels = {name(changes): recipe(changes) for changes in RECIPES}
    cells = []
    for dataset in sets:
        protocol = {"seeds": SEEDS, "evaluation.folds": 5, "evaluation.inner_folds": 3}
        cells.append(study.run(dataset, {"dataset": [dataset], "changes": labels}, **protocol))
    found = [[each.scores(changes=label) for each in cells] for label in labels]
    chosen = np.array([[inner(scores) for scores in row] for row in found])
    tested = np.array([[means(scores).mean() for scores in row] for row in found])
    places = ranks(chosen)
    rows = [untrained_row(cells, name(())), untrained_row(cells, name(("log_sum",)))]
    for label, row, place in zip(labels, chosen, places, strict=True):
        rank = f"{place:.1f}"
        rows.append([label, *(f"{each:.2f}" for each in row), f"**{rank}**" if place == places.min() else rank])
    others = left_out(chosen)
    loo = [
        ["chosen on the other sets", *(list(labels)[each] for each in others)],
        ["test accuracy", *(f"{tested[each, column]:.2f}" for column, each in enumerate(others))],
        ["base", *(f"{each:.2f}" for each in tested[0])],
    ]
    study.keep(inner=markdown(["recipe", *sets, "mean rank"], rows), left_out=markdown(["", *sets], loo))


if __name__ == "__main__":
    main()
