"""Measure the published rows and our recipe on ten sets: python benchmarks/studies/published.py --mirror ../shared/tu

Runs a sweep (finished cells are kept), puts its fold scores into benchmarks/results/accuracy, and writes the tables of
docs/results.md, docs/studies/founding.md and README.md from that folder. `--finished` measures nothing. The kernels
are put there by `wl.py`.
"""

import itertools
import re
from pathlib import Path

from kept import Kept
from study import DOCS, SETS, Cells, Study, markdown, means, num_seeds, without_count, write_tables

from graphcl.config.recipes import shipped_configs
from graphcl.evaluate import FoldScores, best_row, holm, paired_gain, paired_test
from graphcl.sweep.write import gain_text

RECIPES = ("graphcl", "adnce", "best")
OTHERS = ("adnce_baseline", "flatnce", "joao", "joao_v2", "simgrace", "infograph", "siglip", "sigreg")
OTHER_SEEDS = 3
SHORT = ("MUTAG", "PROTEINS", "NCI1", "IMDB-BINARY", "REDDIT-BINARY")
REFERENCES = {
    "majority": "majority class",
    "statistics": "graph statistics",
    "untrained": "untrained encoder",
    "calibrated": "untrained, calibrated",
}
KERNELS = {"wl": "WL kernel", "wl_oa": "WL-OA kernel"}


def keep_scores(kept: Kept, cells: Cells, recipes, sets) -> None:
    """Put the finished cells of a sweep, and the reference rows of their encoders, among the published scores."""
    for recipe, dataset in itertools.product(recipes, sets):
        rows: dict[str, list[tuple[FoldScores, dict]]] = {}
        for cell, record in cells.pick(recipe=recipe, dataset=dataset):
            reference = cells.records.get(cell.reference, {})
            rows.setdefault("trained", []).append((FoldScores.of(record["scores"]["svm"]), record))
            for row, score in reference.get("references", {}).get("svm", {}).items():
                rows.setdefault(row, []).append((FoldScores.of(score), reference))
        if rows:
            kept.add(dataset, recipe, rows)


def accuracy_table(kept: Kept, sets) -> str:
    """Return the accuracies: reference rows, kernels, recipes."""
    rows = [
        *((f"*{label}*", "graphcl", row) for row, label in REFERENCES.items()),
        ("*untrained, `best`*", "best", "untrained"),
        *((f"*{label}*", kernel, "kernel") for kernel, label in KERNELS.items()),
        *((f"`{recipe}`", recipe, "trained") for recipe in RECIPES),
    ]
    return markdown(["row", *sets], [[label, *(kept.text(each, *row) for each in sets)] for label, *row in rows])


def gain_table(kept: Kept, sets, over: str) -> str:
    """Return the gains over the `untrained` row or the `best` row without training, with Holm-adjusted p-values.

    Kernels are rows without training too, where they have all seeds of the trained encoder.
    """
    tests, names = {}, {}
    for recipe in RECIPES:
        for dataset in sets:
            after, rows = kept.scores(dataset, recipe), kept.references(dataset, recipe)
            seeds = {each.seed for each in after}
            for kernel, label in KERNELS.items() if over == "best" else ():
                scores = [each for each in kept.scores(dataset, kernel, "kernel") if each.seed in seeds]
                if len(scores) == len(after):
                    rows[label.removesuffix(" kernel")] = scores
            if after and rows:
                names[recipe, dataset] = name = "untrained" if over == "untrained" else best_row(rows)
                tests[recipe, dataset] = paired_test(after, rows[name])
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    lines = []
    for recipe in RECIPES:
        line = []
        for dataset in sets:
            if (recipe, dataset) not in tests:
                line.append("-")
                continue
            p, best = adjusted[recipe, dataset], names[recipe, dataset]
            text = gain_text(tests[recipe, dataset].mean, p)
            line.append((f"**{text}**" if p < 0.05 else text) + ("" if over == "untrained" else f" {best}"))
        lines.append([f"`{recipe}`", *line])
    return markdown(["row", *sets], lines)


def other_table(kept: Kept, sets) -> str:
    """Return the accuracies of the other recipes, their gains over the best reference row, and published figures.

    A recipe that was measured on none of the sets has no row.
    """
    lines = []
    for recipe in OTHERS:
        if not any(kept.scores(dataset, recipe) for dataset in sets):
            continue
        line = []
        for dataset in sets:
            after, rows = kept.scores(dataset, recipe), kept.references(dataset, recipe)
            if not after:
                line.append("-")
                continue
            gain = f" ({paired_gain(after, rows[best_row(rows)]).mean:+.1f})"
            line.append(without_count(means(after)) + gain)
        lines.append([f"`{recipe}`", *line])
        if found := published_rows(recipe):
            lines.append(["&nbsp; paper", *(found.get(dataset, "-") for dataset in sets)])
    return markdown(["row", *sets], lines)


def published_rows(recipe: str) -> dict[str, str]:
    """Return the published accuracies in the header of a recipe: data set -> mean ± deviation."""
    text = shipped_configs()[recipe].read_text().replace("\n# ", " ")
    listed = re.search(r"Published accuracies: (.*?)\.\n", text)
    return dict(re.findall(r"(\S+) (\S+ ± [\d.]+\d)", listed[1])) if listed else {}


def tables(kept: Kept) -> dict[Path, dict[str, str]]:
    """Return the tables of each page, by the name of their marks."""
    return {
        DOCS.parent / "results.md": {
            "rows": accuracy_table(kept, SETS),
            "best": gain_table(kept, SETS, "best"),
            "untrained": gain_table(kept, SETS, "untrained"),
        },
        DOCS / "founding.md": {"others": other_table(kept, SETS)},
        DOCS.parents[1] / "README.md": {"results": accuracy_table(kept, SHORT)},
    }


def main() -> None:
    """Run the cells that are left; keep their scores; write the tables."""
    study, kept = Study("published", seeds=10), Kept()
    sets = study.sets(*SETS)
    for part, names, most in (("recipes", RECIPES, 10), ("others", OTHERS, OTHER_SEEDS)):
        recipes = [name for name in names if study.given.recipes is None or name in study.given.recipes]
        for count in (10, 5):
            some = [each for each in sets if num_seeds(each) == count]
            seeds = list(range(min(study.given.seeds, most, count)))
            if some and recipes and not study.given.finished:
                cells = study.run(part, {"recipe": recipes, "dataset": some}, seeds=seeds)
                keep_scores(kept, cells, recipes, some)
    for page, named in tables(kept).items():
        write_tables(page, **named)


if __name__ == "__main__":
    main()
