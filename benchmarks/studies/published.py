"""Measure the published rows and our recipe on ten sets: python benchmarks/studies/published.py --mirror ../shared/tu

Runs a sweep (finished cells are kept), puts its fold scores into benchmarks/results/accuracy, and writes from there the
tables and the figure of docs/results.md, and the table of docs/studies/founding.md. `--finished` measures nothing. The
kernels are put there by `wl.py`. The figure's pairs are those of the first table of docs/results.md.
"""

import itertools
import re
from pathlib import Path

import numpy as np
from kept import Kept
from matplotlib.figure import Figure
from scipy.stats import t
from study import (
    COLOURS,
    DOCS,
    SETS,
    Cells,
    Study,
    markdown,
    means,
    num_seeds,
    without_count,
    write_svg,
    write_tables,
)

from graphcl.config.recipes import shipped_configs
from graphcl.evaluate import FoldScores, best_row, holm, paired_gain, paired_test
from graphcl.evaluate.scores import paired_difference
from graphcl.report.style import MUTED, style
from graphcl.sweep.write import gain_text

RECIPES = ("graphcl", "adnce", "best")
OTHERS = ("adnce_baseline", "flatnce", "joao", "joao_v2", "simgrace", "infograph", "siglip", "sigreg")
OTHER_SEEDS = 3
RESULTS = DOCS.parent / "results.md"
REFERENCES = ("majority", "statistics", "untrained", "calibrated")
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


def accuracy_table(kept: Kept, sets, columns) -> str:
    """Return the accuracies of the `columns`, a label each with the recipe and the row, one line a data set."""
    lines = []
    for dataset in sets:
        scores = [means(kept.scores(dataset, *row)) for row in columns.values()]
        seeds = ", ".join(str(count) for count in sorted({len(each) for each in scores}))
        cells = [without_count(each).replace(" ± 0.00", "") for each in scores]  # the majority class does not vary
        lines.append([dataset, seeds, *cells])
    return markdown(["set", "seeds", *columns], lines)


def comparisons(kept: Kept, sets, over: str) -> dict:
    """Return, by recipe and data set, the name of the row without training, `untrained` or the best, and both scores.

    Kernels are rows without training too, where they have all seeds of the trained encoder.
    """
    found = {}
    for recipe, dataset in itertools.product(RECIPES, sets):
        after, rows = kept.scores(dataset, recipe), kept.references(dataset, recipe)
        seeds = {each.seed for each in after}
        for kernel, label in KERNELS.items() if over == "best" else ():
            scores = [each for each in kept.scores(dataset, kernel, "kernel") if each.seed in seeds]
            if len(scores) == len(after):
                rows[label.removesuffix(" kernel")] = scores
        if after and rows:
            name = "untrained" if over == "untrained" else best_row(rows)
            found[recipe, dataset] = name, after, rows[name]
    return found


def gain_table(kept: Kept, sets, over: str) -> str:
    """Return the gains over the `untrained` row or the `best` row without training, with Holm-adjusted p-values."""
    compared = comparisons(kept, sets, over)
    tests = {place: paired_test(after, before) for place, (_, after, before) in compared.items()}
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))

    def cell(place) -> str:
        if place not in tests:
            return "-"
        text = gain_text(tests[place].mean, adjusted[place])
        text = f"**{text}**" if adjusted[place] < 0.05 else text
        return text if over == "untrained" else f"{text} {compared[place][0]}"

    head = ["set", *(f"`{recipe}`" for recipe in RECIPES)]
    return markdown(head, [[dataset, *(cell((recipe, dataset)) for recipe in RECIPES)] for dataset in sets])


def pair_rows() -> dict[str, dict[str, list[float]]]:
    """Return the first table of the page: task -> row -> mean and, if there are several seeds, deviation."""
    table = re.search(r"<!-- pairs -->\n(.*?)<!-- end -->", RESULTS.read_text(), re.S)[1]
    head, _, *lines = (line.strip("| ").split(" | ") for line in table.strip().split("\n"))
    number = r"\d+\.\d"
    return {
        re.search(r"\[(.*?)\]", line[0])[1]: {
            row: [float(each) for each in re.findall(number, cell)]
            for row, cell in zip(head[1:], line[1:], strict=True)
            if re.search(number, cell)
        }
        for line in lines
    }


@style()
def draw(kept: Kept) -> Figure:
    """Return the figure: rows of pairs, and below them gains on two views with intervals of 95 %."""
    picture = Figure(figsize=(7.2, 5.6), layout="constrained")
    (upper, lower), pairs = picture.subplots(2, height_ratios=(2, 5)), pair_rows()
    for number, row in enumerate(next(iter(pairs.values()))):  # each task has the first
        colour, label = (
            (COLOURS[0], row) if "pairs" in row else (COLOURS[1], f"{row.removesuffix(', untrained')}, no training")
        )
        there = [(-place, *rows[row]) for place, rows in enumerate(pairs.values()) if row in rows]
        for place, mean, *deviation in there:
            upper.errorbar(mean, place, xerr=deviation or None, color=colour, linewidth=1)
        y, x = np.array([each[:2] for each in there]).T
        upper.plot(x, y, "sDoso*"[number], color=colour, markersize=5, label=label)
    labels = [task.replace(" of a", "\nof a").replace(" for ", "\nfor ").replace(" in ", "\nin ") for task in pairs]
    upper.set_yticks([-place for place in range(len(pairs))], labels)
    upper.set(title="Pairs: rank of the counterpart", xlabel="mean reciprocal rank, %", xlim=(0, 100))
    upper.set_ylim(0.5 - len(pairs), 0.5)
    upper.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    for number, recipe in enumerate(RECIPES):
        gains = []
        for place, (_, after, before) in comparisons(kept, SETS, "best").items():
            if place[0] == recipe:
                mean, error, freedom = paired_difference(after, before)
                gains.append((-SETS.index(place[1]) - 0.25 * (number - 1), mean, error * t.ppf(0.975, freedom)))
        y, mean, half = np.array(gains).T
        lower.errorbar(mean, y, xerr=half, fmt="o", markersize=3, linewidth=1, color=COLOURS[number + 2], label=recipe)
    lower.axvline(0, color=MUTED, linewidth=0.8)
    lower.set_yticks([-place for place in range(len(SETS))], SETS)
    lower.set(title="Two views: gain over the best row without training", xlabel="points of accuracy, 95 % interval")
    lower.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return picture


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
    untrained = {
        **{row: ("graphcl", row) for row in REFERENCES},
        "untrained, `best`": ("best", "untrained"),
        **{label.removesuffix(" kernel"): (kernel, "kernel") for kernel, label in KERNELS.items()},
    }
    return {
        RESULTS: {
            "rows": accuracy_table(kept, SETS, {f"`{recipe}`": (recipe, "trained") for recipe in RECIPES}),
            "references": accuracy_table(kept, SETS, untrained),
            "best": gain_table(kept, SETS, "best"),
            "untrained": gain_table(kept, SETS, "untrained"),
        },
        DOCS / "founding.md": {"others": other_table(kept, SETS)},
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
    write_svg(draw(kept), DOCS.parent / "figures" / "results.svg")


if __name__ == "__main__":
    main()
