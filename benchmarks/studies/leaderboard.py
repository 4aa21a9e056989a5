"""Price the selection rules of published rows: python benchmarks/studies/leaderboard.py --mirror ../shared/tu

One training of `graphcl` a seed, scored on its way. The honest figure is the accuracy at a fixed epoch; every other
figure is what a published rule would have printed for the same runs. The difference is the optimism of the rule.
Writes the tables of docs/studies/leaderboard.md.
"""

import numpy as np
from study import SETS, Study, markdown

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


def accuracies(cells) -> tuple[np.ndarray, np.ndarray]:
    """Return test accuracies [seeds, epochs, folds] in percent, and the epochs."""
    records = [record["epoch_scores"] for _, record in cells.done]
    epochs = np.array(sorted(map(int, records[0])))
    return np.array([[each[str(epoch)]["svm"]["accuracy"] for epoch in epochs] for each in records]), epochs


def optimism(values: np.ndarray, epochs: np.ndarray) -> dict[str, float]:
    """Return the honest figure under `honest`, and the optimism of every rule in points."""
    honest = float(values[:, list(epochs).index(FIXED)].mean())
    return {"honest": honest} | {rule: float(figure(values, epochs)) - honest for rule, figure in RULES.items()}


def choice_of_configuration(cells, dataset: str) -> tuple[float, float]:
    """Return the accuracy of the recipe with the best inner accuracy, and the optimism of choosing by test accuracy.

    Only seeds that all finished recipes have are used.
    """
    scores = {label: cells.scores(recipe=label, dataset=dataset) for label in cells.plan.axes["recipe"]}
    seeds = set.intersection(*({each.seed for each in found} for found in scores.values() if found))
    scores = {label: [each for each in found if each.seed in seeds] for label, found in scores.items() if found}
    test = {label: np.mean([each.mean for each in found]) for label, found in scores.items()}
    inner = {label: np.mean([np.mean(each.inner) for each in found]) for label, found in scores.items()}
    honest = test[max(inner, key=lambda label: inner[label])]
    return float(honest), float(max(test.values()) - honest)


def main() -> None:
    """Run the trainings that are left and write the page."""
    study = Study("leaderboard")
    sets = study.sets(*SETS)
    rows, configurations = [], []
    for dataset in sets:
        every = EVERY.get(dataset, 2)
        cells = study.run(dataset, {"recipe": ["graphcl"], "dataset": [dataset]}, epochs=30, score_every=every)
        if not cells.done:
            continue
        values, epochs = accuracies(cells)
        found = optimism(values, epochs)
        seeds = f"{len(values)} x {len(epochs)}"
        rows.append([dataset, seeds, f"{found.pop('honest'):.2f}", *(f"{each:+.2f}" for each in found.values())])
    published = study.run("recipes", {"recipe": ["graphcl", "adnce", "best"], "dataset": sets}, of="published")
    for dataset in sets:
        if any(True for _ in published.pick(dataset=dataset)):
            honest, by_test = choice_of_configuration(published, dataset)
            configurations.append([dataset, f"{honest:.2f}", f"{by_test:+.2f}"])
    study.keep(
        optimism=markdown(["set", "seeds x epochs", f"honest, epoch {FIXED}", *RULES], rows),
        configurations=markdown(["set", "recipe by inner folds", "best recipe by test folds"], configurations),
    )


if __name__ == "__main__":
    main()
