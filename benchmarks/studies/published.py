"""Measure the published rows and our recipe on ten sets: python benchmarks/studies/published.py --mirror ../shared/tu

Runs a sweep (finished cells are kept), then writes the tables of docs/results.md, docs/studies/published.md and
README.md. WL and WL-OA are taken from the files of `wl.py` in OUT/wl. Sets whose SVM costs minutes have three seeds.
"""

import json
import re
from pathlib import Path

from study import DOCS, SETS, Cells, Study, markdown, means, plus_minus

from graphcl.config.recipes import shipped_configs
from graphcl.evaluate import FoldScores, best_row, holm, paired_gain, paired_test
from graphcl.sweep.texts import gain_text

RECIPES = ("graphcl", "adnce", "best")
OTHERS = ("adnce_baseline", "flatnce", "joao", "joao_v2", "simgrace", "infograph")
OTHER_SEEDS = 3
SHORT = ("MUTAG", "PROTEINS", "NCI1", "IMDB-BINARY", "REDDIT-BINARY")
REFERENCES = {
    "majority": "majority class",
    "statistics": "graph statistics",
    "untrained": "untrained encoder",
    "calibrated": "untrained, calibrated",
}
KERNELS = {"wl": "WL kernel", "wl_oa": "WL-OA kernel"}
ROOT = Path(__file__).parents[2]


def references(cells: Cells, recipe: str, dataset: str) -> dict[str, list[FoldScores]]:
    """Return the reference rows of a recipe's encoder on a set, by row, for the seeds that are finished."""
    found: dict[str, list[FoldScores]] = {}
    for cell, _ in cells.pick(recipe=recipe, dataset=dataset):
        for row, score in cells.records.get(cell.reference, {}).get("references", {}).get("svm", {}).items():
            found.setdefault(row, []).append(FoldScores.of(score))
    return {row: sorted(scores, key=lambda each: each.seed) for row, scores in found.items()}


def kernel_scores(folder: Path, dataset: str, kernel: str) -> list[FoldScores]:
    """Return the scores of a kernel on a set, one a seed."""
    files = sorted(folder.glob(f"{dataset}-{kernel}-[0-9]*.json"))
    kept = [json.loads(file.read_text()) for file in files]
    return [FoldScores.of(each) for each in kept]


def accuracy_table(cells: Cells, sets, wl: Path) -> str:
    """Return the accuracies: reference rows, kernels, recipes."""
    rows = []
    for row, label in REFERENCES.items():
        scores = [references(cells, "graphcl", dataset).get(row, []) for dataset in sets]
        rows.append([f"*{label}*", *(plus_minus(means(each)) for each in scores)])
    scores = [references(cells, "best", dataset).get("untrained", []) for dataset in sets]
    rows.append(["*untrained, `best`*", *(plus_minus(means(each)) for each in scores)])
    for kernel, label in KERNELS.items():
        rows.append([f"*{label}*", *(plus_minus(means(kernel_scores(wl, dataset, kernel))) for dataset in sets)])
    for recipe in RECIPES:
        scores = [cells.scores(recipe=recipe, dataset=dataset) for dataset in sets]
        rows.append([f"`{recipe}`", *(plus_minus(means(each)) for each in scores)])
    return markdown(["row", *sets], rows)


def gain_table(cells: Cells, sets, over: str, wl: Path | None = None) -> str:
    """Return the gains over the `untrained` row or the `best` row without training, with Holm-adjusted p-values.

    The kernels in the folder `wl` are rows without training, where they have all seeds of the trained encoder.
    """
    tests, names = {}, {}
    for recipe in RECIPES:
        for dataset in sets:
            after, rows = cells.scores(recipe=recipe, dataset=dataset), references(cells, recipe, dataset)
            for kernel, label in KERNELS.items() if wl else ():
                seeds = {each.seed for each in after}
                scores = [each for each in kernel_scores(wl, dataset, kernel) if each.seed in seeds]
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


def other_table(cells: Cells, sets) -> str:
    """Return the accuracies of the other recipes, their gains over the best reference row, and published figures."""
    lines = []
    for recipe in OTHERS:
        line = []
        for dataset in sets:
            after, rows = cells.scores(recipe=recipe, dataset=dataset), references(cells, recipe, dataset)
            gain = f" ({paired_gain(after, rows[best_row(rows)]).mean:+.1f})" if after else ""
            line.append(plus_minus(means(after)).split(" (")[0] + gain)  # the page gives the number of seeds
        lines.append([f"`{recipe}`", *line])
        if found := published_rows(recipe):
            lines.append(["&nbsp; paper", *(found.get(dataset, "-") for dataset in sets)])
    return markdown(["row", *sets], lines)


def published_rows(recipe: str) -> dict[str, str]:
    """Return the published accuracies in the header of a recipe: data set -> mean ± deviation."""
    text = shipped_configs()[recipe].read_text().replace("\n# ", " ")
    listed = re.search(r"Published accuracies: (.*?)\.\n", text)
    return dict(re.findall(r"(\S+) (\S+ ± [\d.]+\d)", listed[1])) if listed else {}


def main() -> None:
    """Run the cells that are left; write the tables."""
    study = Study("published")
    sets = study.sets(*SETS)
    cells = study.run("recipes", {"recipe": list(RECIPES), "dataset": sets})
    wl = study.given.out / "wl"
    study.keep(
        page=study.given.docs.parent / "results.md",
        rows=accuracy_table(cells, sets, wl),
        best=gain_table(cells, sets, "best", wl),
        untrained=gain_table(cells, sets, "untrained"),
    )
    few = list(range(min(OTHER_SEEDS, study.given.seeds)))
    found = study.run("others", {"recipe": list(OTHERS), "dataset": sets}, seeds=few)
    study.keep(others=other_table(found, sets))
    if study.given.docs == DOCS:
        study.keep(page=ROOT / "README.md", results=accuracy_table(cells, SHORT, wl))


if __name__ == "__main__":
    main()
