"""Choose a recipe for each set, and one for untuned sets: python benchmarks/studies/recipes.py

First round: a base recipe, and every change of one thing. Second round: the best three changes of a set together, two
at a time and all; likewise for all sets, by mean rank. Recipes are chosen by the accuracy on inner folds of training
parts, with selection seeds; the chosen ones are then scored once with fresh seeds. Two estimates say what the
choice itself is worth: `nested` chooses again in every outer fold, by its inner folds, and tests on the held-out fold;
`left out` chooses the general recipe without a set, and tests on that set. Page: docs/studies/recipes.md.
"""

import itertools

import numpy as np
from study import Study, markdown, means

SETS = ("MUTAG", "PROTEINS", "NCI1", "IMDB-BINARY")
BASE = {
    "features": "auto+degree",
    "loss": "infonce",
    "loss.temperature": 0.2,
    "views.first": "identity",
    "views.second": "random4",
}
CHANGES = {
    "auto features": {"features": "auto"},
    "five layers": {"encoder.layers": 5},
    "64 wide": {"encoder.hidden": 64},
    "128 wide": {"encoder.hidden": 128},
    "mean readout": {"encoder.readout": "mean"},
    "scaled": {"evaluation.scale": True},
    "dcl": {"loss": "dcl"},
    "adnce_auto": {"loss": {"name": "adnce_auto", "rule": "quantile"}},
    "tau 0.1": {"loss.temperature": 0.1},
    "tau 0.5": {"loss.temperature": 0.5},
    "both views": {"views.first": "random4"},
    "random2": {"views.second": "random2"},
    "node drop": {"views.second": "node_drop"},
    "edge perturbation": {"views.second": "edge_perturb"},
    "ratio 0.1": {"views.second": {"name": "random4", "ratio": 0.1}},
    "ratio 0.4": {"views.second": {"name": "random4", "ratio": 0.4}},
    "batch 32": {"batch_size": 32},
    "lr 0.001": {"lr": 0.001},
    "40 epochs": {"epochs": 40},
}
FURTHER = {
    "bonds": {"encoder": "gine"},
    "bonds, scaled": {"encoder": "gine", "evaluation.scale": True},
    "simgrace": {"method": "simgrace", "views.second": "identity"},
    "infograph": {
        "method": "infograph",
        "loss": "jsd",
        "loss.temperature": None,
        "views.second": "identity",
        "projector": "residual",
        "lr": 0.001,
    },
    "joao_v2": {"method": "joao_v2"},
    "simsiam": {"method": "simsiam", "loss": "simsiam", "loss.temperature": None},
    "jsd": {"loss": "jsd", "loss.temperature": None},
    "hcl": {"loss": "hcl"},
    "vicreg": {"loss": "vicreg", "loss.form": "paper", "loss.temperature": None},
    "barlow_twins": {"loss": "barlow_twins", "loss.temperature": None},
    "all negatives": {"loss.negatives": "all"},
    "lr 0.003": {"lr": 0.003},
    "weight decay 0.0001": {"weight_decay": 0.0001},
    "8 degrees": {"max_degree": 8},
}
"""Changes tried after the choice; they take no part in it."""
BONDS = "MUTAG"  # the only set with edge labels
SELECTION_SEEDS = {"MUTAG": (100, 101, 102, 103), "PROTEINS": (100, 101, 102), "NCI1": (100,)}
FRESH = (0, 1, 2, 3, 4)


def recipe(changes):
    """Return the settings of the base with some changes."""
    values = dict(BASE)
    for change in changes:
        values |= (CHANGES | FURTHER)[change]
    return {key: value for key, value in values.items() if value is not None}


def name(changes):
    """Return the label of a recipe."""
    return " + ".join(changes) or "base"


def combinations(changes):
    """Yield combinations of two or three changes that do not overwrite each other."""
    for size in (2, 3):
        for some in itertools.combinations(changes, size):
            keys = [key for change in some for key in CHANGES[change]]
            if len(set(keys)) == len(keys):
                yield some


class Search:
    """Inner and test accuracies of recipes by set, with the selection seeds.

    Args:
        study: runs the sweeps.
    """

    def __init__(self, study: Study) -> None:
        self.study, self.known = study, {}

    def run(self, dataset: str, recipes: list, part: str = "") -> None:
        """Score recipes on a set, in the sweep `part`."""
        groups = {name(changes): recipe(changes) for changes in recipes}
        # Other seeds and fewer folds than for reported scores.
        protocol = {"seeds": list(SELECTION_SEEDS.get(dataset, SELECTION_SEEDS["PROTEINS"]))}
        protocol |= {"evaluation.folds": 5, "evaluation.inner_folds": 3}
        cells = self.study.run(part or dataset, {"dataset": [dataset], "changes": groups}, **protocol)
        for changes in recipes:
            self.known[dataset, changes] = cells.scores(changes=name(changes))

    def inner(self, dataset: str, changes) -> float:
        """Return the mean accuracy on inner folds."""
        return float(np.mean([each.inner for each in self.known[dataset, changes]]))

    def test(self, dataset: str, changes) -> float:
        """Return the mean accuracy on test folds; it chooses nothing."""
        return float(np.mean([each.accuracy for each in self.known[dataset, changes]]))

    def recipes(self, dataset: str) -> list:
        """Return the scored recipes of a set."""
        return [changes for known, changes in self.known if known == dataset]

    def mean_rank(self, sets, changes) -> float:
        """Return the mean rank of a recipe among those scored on all sets, 1 for the best."""
        common = set.intersection(*(set(self.recipes(dataset)) for dataset in sets))
        places = []
        for dataset in sets:
            mine = self.inner(dataset, changes)
            places.append(1 + sum(self.inner(dataset, other) > mine for other in common))
        return float(np.mean(places))

    def nested(self, dataset: str) -> float:
        """Return the accuracy if every outer fold chooses its recipe by its inner folds, over common seeds."""
        scores = [{each.seed: each for each in self.known[dataset, changes]} for changes in self.recipes(dataset)]
        seeds = sorted(set.intersection(*map(set, scores)))
        inner, test = (
            np.array([[getattr(each[seed], what) for seed in seeds] for each in scores])
            for what in ("inner", "accuracy")
        )
        return float(np.take_along_axis(test, inner.argmax(0)[None], 0).mean())


def further(study: Study, sets: list) -> str:
    """Return the table of later changes: inner accuracies."""
    search = Search(study)
    for dataset in sets:
        changes = [change for change in FURTHER if "bonds" not in change or dataset == BONDS]
        search.run(dataset, [(), *((change,) for change in changes)], f"{dataset}-further")
    lines = [
        [name(changes), *(f"{search.inner(d, changes):.2f}" if (d, changes) in search.known else "" for d in sets)]
        for changes in [(), *((change,) for change in FURTHER)]
    ]
    return markdown(["recipe", *sets], lines)


def main():
    """Run the procedure and return the choices and their scores."""
    study = Study("recipes")
    sets = study.sets(*SETS)
    search = Search(study)
    singles = [(), *((change,) for change in CHANGES)]
    for dataset in sets:
        search.run(dataset, singles)

    def best_three(score):
        improving = [each for each in CHANGES if score((each,)) > score(())]
        best = sorted(improving, key=lambda each: -score((each,)))[:3]
        return [each for each in CHANGES if each in best]  # in one order, so that a combination has one name

    pairs = {dataset: list(combinations(best_three(lambda c, d=dataset: search.inner(d, c)))) for dataset in sets}
    general = list(combinations(best_three(lambda c: -search.mean_rank(sets, c))))
    for dataset in sets:
        if more := list(dict.fromkeys([*pairs[dataset], *general])):
            search.run(dataset, more)

    def choice(others):
        return min([*singles, *general], key=lambda c: search.mean_rank(others, c))

    best = {dataset: max(search.recipes(dataset), key=lambda c: search.inner(dataset, c)) for dataset in sets}
    default = choice(sets)
    print({dataset: name(changes) for dataset, changes in best.items()}, "default:", name(default))

    lines = []
    for changes in dict.fromkeys([*singles, *general, *(each for some in pairs.values() for each in some)]):
        cells = [f"{search.inner(d, changes):.2f}" if (d, changes) in search.known else "" for d in sets]
        cells = [f"**{cell}**" if best[d] == changes else cell for d, cell in zip(sets, cells, strict=True)]
        rank = f"{search.mean_rank(sets, changes):.1f}" if changes in [*singles, *general] else ""
        lines.append([name(changes), *cells, f"**{rank}**" if changes == default else rank])
    tables = {"inner": markdown(["recipe", *sets, "mean rank"], lines)}

    tables["further"] = further(study, [dataset for dataset in sets if dataset != "NCI1"])

    final, rows = {}, []
    for dataset in sets:
        groups = {name(changes): recipe(changes) for changes in (best[dataset], default)}  # they may be one
        final[dataset] = study.run(f"{dataset}-final", {"dataset": [dataset], "changes": groups}, seeds=list(FRESH))
        without = choice([each for each in sets if each != dataset])
        for kind, changes in (("best", best[dataset]), ("default", default)):
            label = name(changes)
            scores, before = final[dataset].scores(changes=label), final[dataset].untrained(changes=label)
            after, start = means(scores), means(before)
            estimate = search.nested(dataset) if kind == "best" else search.test(dataset, without)
            gain = (after - start).mean()
            texts = [f"{each.mean():.2f} ± {each.std():.2f}" for each in (start, after)]
            rows.append([dataset, f"{kind}: {name(changes)}", *texts, f"{gain:+.2f}", f"{estimate:.2f}"])
    head = ["set", "recipe", "untrained", "trained", "gain", "nested / left out"]
    study.keep(None, **tables, final=markdown(head, rows))
    return best, default, final, search


if __name__ == "__main__":
    main()
