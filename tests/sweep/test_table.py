"""Tables of made-up records contain the expected numbers."""

import csv
import io
import re

import numpy as np
import pytest

from graphcl.evaluate import FoldScores, paired_test
from graphcl.sweep import make_plan, make_table
from graphcl.sweep.write import to_csv, to_latex, to_markdown

ROWS = ["majority", "statistics", "untrained", "calibrated"]


def record(rng, cell, mean):
    accuracy = rng.normal(mean, 1, 10)
    scores = {"seed": cell.config.seeds[0], "accuracy": accuracy.tolist(), "chosen": [1.0] * 10, "folds": 10}
    scores |= {"inner": accuracy.tolist(), "inner_folds": 5}
    found = {"status": "done", "scores": {"svm": scores}, "metrics": {"training_loss": 1.5}, "seconds": {"train": 2.0}}
    return found if cell.config.epochs else {**found, "references": references(scores)}


def references(scores):
    """Return made-up reference rows: `majority` is 20 points below `scores`, `calibrated` 1 point above."""
    shifts = dict(zip(ROWS, (-20, -2, 0, 1), strict=True))
    return {"svm": {row: {**scores, "accuracy": [x + by for x in scores["accuracy"]]} for row, by in shifts.items()}}


@pytest.fixture
def plan():
    axes = {"loss": ["infonce", "dcl", "hcl"], "dataset": ["MUTAG", "NCI1"]}
    return make_plan({"axes": axes, "settings": {"seeds": [0, 1, 2]}, "table": {"baseline": "infonce"}})


@pytest.fixture
def records(plan):
    rng = np.random.default_rng(0)
    means = {"infonce": 80, "dcl": 85, "hcl": 80.1}
    found = {cell.key: record(rng, cell, means[cell.coordinates["loss"]]) for cell in plan.cells}
    return found | {cell.key: record(rng, cell, 75) for cell in plan.references}


def accuracies(plan, records, loss, dataset):
    cells = [c for c in plan.cells if (c.coordinates["loss"], c.coordinates["dataset"]) == (loss, dataset)]
    return [np.array(records[cell.key]["scores"]["svm"]["accuracy"]) for cell in cells]


def test_places(plan, records):
    table = make_table(plan, records)
    assert (table.header, table.rows, table.columns) == (
        ("loss",),
        [("infonce",), ("dcl",), ("hcl",)],
        ["MUTAG", "NCI1"],
    )
    means = [each.mean() for each in accuracies(plan, records, "dcl", "NCI1")]
    entry = table.entries[("dcl",), "NCI1"]
    assert (entry.mean, entry.std) == pytest.approx((np.mean(means), np.std(means)))
    assert table.best("NCI1") == ("dcl",)


def test_differences_are_paired_and_corrected(plan, records):
    table = make_table(plan, records)
    assert set(table.gains_over_baseline) == {
        ((loss,), dataset) for loss in ("dcl", "hcl") for dataset in ("MUTAG", "NCI1")
    }

    def scores(loss, dataset):
        values = accuracies(plan, records, loss, dataset)
        return [FoldScores(i, tuple(each), (1.0,) * 10, tuple(each), 10, 5) for i, each in enumerate(values)]

    raw = {
        place: paired_test(scores(*place[0], place[1]), scores("infonce", place[1])).p
        for place in table.gains_over_baseline
    }
    smallest = min(raw, key=raw.get)
    assert table.gains_over_baseline[smallest].p == pytest.approx(min(1, 4 * raw[smallest]))
    assert table.gains_over_baseline[("dcl",), "MUTAG"].significant
    assert not table.gains_over_baseline[("hcl",), "MUTAG"].significant
    assert all(gain.significant and gain.mean > 3 for gain in table.gains.values())
    for place, gain in table.gains.items():  # the best reference row is the calibrated one
        assert table.gains_over_best[place].mean == pytest.approx(gain.mean - 1)


def test_markdown(plan, records):
    text = to_markdown(make_table(plan, records))
    assert [row for row in ROWS if re.search(rf"^\| {row} +\|", text, re.MULTILINE)] == ROWS
    assert "Gain over the best reference row, on the same seeds and folds, in percentage points (p):" in text
    assert text.count("**8") == 2  # the best of each column
    assert "Gain over the baseline, loss infonce, in percentage points (p):" in text
    lines = [line for line in text.split("\n") if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
    for cell in plan.references:  # make a reference row better than every trained row
        kept = records[cell.key]["references"]["svm"]
        kept["statistics"]["accuracy"] = [99.0] * 10
    assert to_markdown(make_table(plan, records)).count("**8") == 0


def test_latex(plan, records):
    text = to_latex(make_table(plan, records))
    rows = [line for line in text.split("\n") if line.endswith(r"\\")]
    assert [line.split(" & ")[0] for line in rows] == ["loss", *ROWS, "infonce", "dcl", "hcl"]
    assert text.count(r"\textbf{8") == 2
    assert rows[6].count("*") == 2  # significantly better than the baseline in both columns
    assert rows[7].count("*") == 0
    assert text.count(r"\midrule") == 2


def test_csv_is_tidy(plan, records):
    lines = list(csv.DictReader(io.StringIO(to_csv(plan, records))))
    assert len(lines) == len(plan.cells)
    (line,) = [each for each in lines if (each["loss"], each["dataset"], each["seed"]) == ("hcl", "NCI1", "1")]
    value = accuracies(plan, records, "hcl", "NCI1")[1].mean()
    assert float(line["accuracy"]) == pytest.approx(value)
    assert float(line["calibrated"]) == pytest.approx(float(line["untrained"]) + 1)
    assert float(line["gain"]) == pytest.approx(value - float(line["untrained"]))
    assert line["training_loss"] == "1.5"


def test_an_axis_called_loss_survives_the_measure_called_loss(plan, records):
    for each in records.values():
        each["metrics"]["dataset"] = "wrong"
    lines = list(csv.DictReader(io.StringIO(to_csv(plan, records))))
    assert {line["dataset"] for line in lines} == {"MUTAG", "NCI1"}


def test_what_is_missing_is_said(plan, records):
    missing = [cell.key for cell in plan.cells if cell.coordinates["loss"] == "dcl"]
    for key in missing[:1]:
        del records[key]
    for key in missing[3:]:
        records[key] = {"status": "failed", "error": "no"}
    text = to_markdown(make_table(plan, records))
    assert "(2/3)" in text or "(1/3)" in text
    states = [line["status"] for line in csv.DictReader(io.StringIO(to_csv(plan, records)))]
    assert (states.count("open"), states.count("failed")) == (1, len(missing[3:]))
    empty = to_markdown(make_table(plan, {}))
    assert "No cell is finished yet" in empty
    assert to_latex(make_table(plan, {}))


def test_a_row_for_each_untrained_encoder():
    plan = make_plan({"axes": {"encoder.num_layers": [2, 3], "loss": ["infonce", "dcl"]}, "settings": {"seeds": [0]}})
    rng = np.random.default_rng(0)
    records = {cell.key: record(rng, cell, 80) for cell in [*plan.cells, *plan.references]}
    rows = [line.split("|")[1:3] for line in to_markdown(make_table(plan, records)).split("\n") if "untrained" in line]
    assert [[each.strip() for each in row] for row in rows[:2]] == [["untrained 2", ""], ["untrained 3", ""]]


def table_of(loss_means, **spec):
    plan = make_plan({"axes": {"loss": list(loss_means)}, "settings": {"seeds": [0]}, **spec})
    rng = np.random.default_rng(0)
    found = {cell.key: record(rng, cell, 80) for cell in (*plan.references, *plan.cells)}
    for cell in plan.cells:
        found[cell.key]["scores"]["svm"]["accuracy"] = [loss_means[cell.coordinates["loss"]]] * 10
    return make_table(plan, found)


def test_equal_means_are_equally_best():
    text = to_markdown(table_of({"infonce": 90.001, "dcl": 90.0, "hcl": 89.0}))
    assert text.count("**90.00**") == 2
    assert "| 89.00" in text


def test_other_folds_are_not_compared():
    """Scores on different folds cannot be paired: the table has no gains over the baseline, and no error occurs."""
    plan = make_plan({"axes": {"evaluation.folds": [3, 10]}, "settings": {"seeds": [0]}, "table": {"baseline": 10}})
    found = {cell.key: record(np.random.default_rng(0), cell, 80) for cell in (*plan.references, *plan.cells)}
    for cell in (*plan.references, *plan.cells):
        for scores in [
            found[cell.key]["scores"]["svm"],
            *found[cell.key].get("references", {}).get("svm", {}).values(),
        ]:
            scores["folds"] = cell.config.evaluation.folds
            scores["accuracy"] = scores["accuracy"][: scores["folds"]]
    table = make_table(plan, found)
    assert not table.gains_over_baseline
    assert len(table.gains) == 2


def test_labels_that_mean_something_to_latex_and_markdown():
    groups = {"[a_b]": {"epochs": 1}, "50%\n{x} $~^\\": {"epochs": 2}, "p|q *": {"epochs": 3}}
    plan = make_plan({"axes": {"mine": groups}, "settings": {"seeds": [0]}})
    table = make_table(plan, {})
    latex, text = to_latex(table), to_markdown(table)
    assert r"{[}a\_b] & - \\" in latex
    assert r"50\% \{x\} \$\textasciitilde{}\textasciicircum{}\textbackslash{} & - \\" in latex
    assert "\n| 50% {x} $~^\\ " in text
    assert r"| p\|q * " in text
