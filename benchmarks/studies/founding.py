"""Measure the tables of ADNCE's paper on graphs: python benchmarks/studies/founding.py --mirror ../shared/tu

Runs the shipped sweeps `table5`, `table1` and `figure4`, and puts their fold scores into benchmarks/results/studies.
Page: docs/studies/founding.md.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from kept import STUDIES, Kept
from study import COLOURS, Cells, Study, curve, figure, markdown, means, without_count

from graphcl.config.recipes import read_yaml, shipped_configs
from graphcl.evaluate import FoldScores, holm, paired_test
from graphcl.sweep.plan import make_plan
from graphcl.sweep.table import scores_of, select
from graphcl.sweep.write import gain_text

PLANS = {name: make_plan(read_yaml(shipped_configs("sweeps")[name])) for name in ("table5", "table1", "figure4")}
SETS = PLANS["table5"].axes["dataset"]
ALGORITHMS = PLANS["table5"].axes["algorithm"]
OBJECTIVES = PLANS["table1"].axes["objective"]
TEMPERATURES = PLANS["table1"].axes["loss.temperature"]
EPOCHS = range(2, 21, 2)
SHOWN = (2, 6, 10, 20)
"""Epochs of the table; the figure has all."""
FOLDS = {"evaluation.folds": 5, "evaluation.inner_folds": 3}
"""Folds of table 1, which has 25 cells a seed and data set."""

Scores = list[tuple[FoldScores, Mapping]]
"""The scores of a row, one a seed, each with the record of its run."""


def table5_rows(cells: Cells, dataset: str) -> dict[str, Scores]:
    """Return the scores of each algorithm and of the untrained encoder."""
    rows = {label: cells.scored(algorithm=label, dataset=dataset) for label in ALGORITHMS}
    return {"untrained": cells.scored_untrained(algorithm="GraphCL", dataset=dataset), **rows}


def table1_rows(cells: Cells, dataset: str) -> dict[str, Scores]:
    """Return the scores of each loss at each temperature, and at those that the inner folds select."""
    rows: dict[str, Scores] = {}
    for objective in OBJECTIVES:
        place = {"objective": objective, "dataset": dataset}
        by_value = {value: cells.scored(**place, loss__temperature=value) for value in TEMPERATURES}
        rows |= {f"{objective}, {value}": scored for value, scored in by_value.items()}
        scores = {value: [score for score, _ in scored] for value, scored in by_value.items()}
        selected, _ = select({dataset: scores})[dataset]
        rows[objective] = [(score, record) for score, (_, record) in zip(selected, by_value["0.2"], strict=True)]
    return rows


def figure4_rows(cells: Cells, dataset: str) -> dict[str, Scores]:
    """Return the scores of each algorithm after each scored epoch."""
    rows: dict[str, Scores] = {}
    for label in PLANS["figure4"].axes["algorithm"]:
        for _, record in cells.pick(algorithm=label, dataset=dataset):
            of_epochs = {int(epoch): scores["knn"] for epoch, scores in record["epoch_scores"].items()}
            of_epochs[record["metrics"]["epochs"]] = vars(scores_of(record, "knn"))
            for epoch, score in of_epochs.items():
                rows.setdefault(f"{label}, {epoch}", []).append((FoldScores.of(score), record))
    return rows


def ours_and_published(kept: Kept) -> str:
    """Return table 5: our accuracies, the published ones, and the differences."""
    published = PLANS["table5"].table.published
    rows = [["*untrained encoder*", *(without_count(means(kept.scores("table5", name, "untrained"))) for name in SETS)]]
    for label in ALGORITHMS:
        ours = {name: means(kept.scores("table5", name, label)) for name in SETS}
        rows.append([label, *map(without_count, ours.values())])
        if of_row := published.get(label):
            rows.append(["&nbsp; published", *(of_row[name] for name in SETS)])
            values = {name: float(of_row[name].split(" ± ")[0]) for name in SETS}
            rows.append(["&nbsp; difference", *(f"{ours[name].mean() - values[name]:+.2f}" for name in SETS)])
    return markdown(["row", *SETS], rows)


def leads(kept: Kept, table: str, rows: Sequence[str], over: str, sets: Sequence[str]) -> str:
    """Return the leads of `rows` over the row `over`, with p-values adjusted for all of them."""
    tests = {
        (row, name): paired_test(kept.scores(table, name, row), kept.scores(table, name, over))
        for row in rows
        for name in sets
        if folds(kept, table, name, row) != folds(kept, table, name, over)  # one result may stand in two rows
    }
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    texts = {place: gain_text(test.mean, adjusted[place]) for place, test in tests.items()}
    return markdown(
        [f"over {over}", *sets], [[row, *(texts.get((row, name), "the same") for name in sets)] for row in rows]
    )


def folds(kept: Kept, table: str, name: str, row: str) -> list[tuple[float, ...]]:
    """Return the accuracies of the folds of each seed."""
    return [tuple(score.accuracy) for score in kept.scores(table, name, row)]


def tuned(kept: Kept) -> str:
    """Return table 1: each loss at the selected temperature, below InfoNCE at GraphCL's."""
    sets = PLANS["table1"].axes["dataset"]
    rows = {"InfoNCE at 0.2": "InfoNCE, 0.2", **{f"{name}, selected": name for name in OBJECTIVES}}
    return markdown(
        ["loss", *sets],
        [[title, *(without_count(means(kept.scores("table1", n, row))) for n in sets)] for title, row in rows.items()],
    )


def over_epochs(kept: Kept) -> str:
    """Return the accuracies after some of the epochs of figure 4."""
    rows = [
        [name, label, *(without_count(means(kept.scores("figure4", name, f"{label}, {epoch}"))) for epoch in SHOWN)]
        for name in SETS
        for label in PLANS["figure4"].axes["algorithm"]
    ]
    return markdown(["set", "row", *(f"epoch {epoch}" for epoch in SHOWN)], rows)


def picture(kept: Kept):
    """Return the figure: accuracy over epochs on each data set."""
    drawn, plots = figure(len(SETS))
    for name, axis in zip(SETS, plots[0], strict=True):
        for label, colour in zip(PLANS["figure4"].axes["algorithm"], COLOURS, strict=False):
            values = [means(kept.scores("figure4", name, f"{label}, {epoch}")) for epoch in EPOCHS]
            curve(axis, list(EPOCHS), [np.asarray(seeds) for seeds in values], colour, label)
        axis.set_title(name)
        axis.set_xlabel("epoch")
    plots[0][0].set_ylabel("k-NN accuracy, %")
    plots[0][-1].legend(fontsize=7)
    return drawn


def tables(kept: Kept) -> dict[str, str]:
    """Return the tables of the page, by the name of their marks."""
    base, *others = OBJECTIVES
    best = "GraphCL, best temperature"
    rest = [label for label in ALGORITHMS if label != best]
    return {
        "table5": ours_and_published(kept),
        "table5 leads": leads(kept, "table5", rest, best, SETS),
        "table1": tuned(kept),
        "table1 leads": leads(kept, "table1", others, base, PLANS["table1"].axes["dataset"]),
        "figure4": over_epochs(kept),
    }


def main() -> None:
    """Run the cells that are left; keep their scores; write the tables and the figure."""
    study, kept = Study("founding", seeds=3), Kept(STUDIES)
    for name, rows_of in (("table5", table5_rows), ("figure4", figure4_rows), ("table1", table1_rows)):
        if not study.given.finished:
            cells = study.shipped(name, **(FOLDS if name == "table1" else {}))
            for dataset in PLANS[name].axes["dataset"]:
                kept.add(name, dataset, rows_of(cells, dataset))
    study.keep(picture(kept), **tables(kept))


if __name__ == "__main__":
    main()
