"""Tables and figures of made-up records contain the expected numbers."""

import csv
import io
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from graphcl.evaluate import FoldScores, paired_test
from graphcl.sweep import make_plan, make_table
from graphcl.sweep.figures import numeric_axes, write_figures
from graphcl.sweep.write import to_csv, to_latex, to_markdown
from tests.sweep.conftest import ROWS, record


@pytest.fixture
def plan():
    axes = {"loss": ["infonce", "dcl", "hcl"], "dataset": ["MUTAG", "NCI1"]}
    return make_plan({"axes": axes, "settings": {"seeds": [0, 1, 2]}, "table": {"baseline": "infonce"}})


@pytest.fixture
def records(plan):
    rng, means = np.random.default_rng(0), {"infonce": 80, "dcl": 85, "hcl": 80.1}
    found = {cell.key: record(rng, cell, means[cell.coordinates["loss"]]) for cell in plan.cells}
    return found | {cell.key: record(rng, cell, 75) for cell in plan.references}


def accuracies(plan, records, loss, dataset):
    cells = [c for c in plan.cells if (c.coordinates["loss"], c.coordinates["dataset"]) == (loss, dataset)]
    return [np.array(records[cell.key]["scores"]["svm"]["accuracy"]) for cell in cells]


def test_places_and_paired_corrected_differences(plan, records):
    table = make_table(plan, records)
    assert (table.header, table.rows) == (("loss",), [("infonce",), ("dcl",), ("hcl",)])
    assert table.columns == ["MUTAG", "NCI1"]
    means = [each.mean() for each in accuracies(plan, records, "dcl", "NCI1")]
    entry = table.entries[("dcl",), "NCI1"]
    assert (entry.mean, entry.std) == pytest.approx((np.mean(means), np.std(means)))
    assert [row for row in table.rows if table.is_best(row, "NCI1")] == [("dcl",)]

    def scores(loss, dataset):
        values = accuracies(plan, records, loss, dataset)
        return [FoldScores(i, tuple(each), (1.0,) * 10, tuple(each), 10, 5) for i, each in enumerate(values)]

    gains = table.gains_over_baseline
    assert set(gains) == {((loss,), dataset) for loss in ("dcl", "hcl") for dataset in ("MUTAG", "NCI1")}
    raw = {(row, name): paired_test(scores(*row, name), scores("infonce", name)).p for row, name in gains}
    smallest = min(raw, key=raw.get)
    assert gains[smallest].p == pytest.approx(min(1, 4 * raw[smallest]))
    assert gains[("dcl",), "MUTAG"].significant
    assert not gains[("hcl",), "MUTAG"].significant
    assert all(gain.significant and gain.mean > 3 for gain in table.gains.values())
    for place, gain in table.gains.items():  # the best reference row is the calibrated one
        assert table.gains_over_best[place].mean == pytest.approx(gain.mean - 1)


def test_markdown_and_latex(plan, records):
    text, latex = (write(make_table(plan, records)) for write in (to_markdown, to_latex))
    assert [row for row in ROWS if re.search(rf"^\| {row} +\|", text, re.MULTILINE)] == list(ROWS)
    assert "Gain over the best reference row, on the same seeds and folds, in percentage points (p):" in text
    assert "Gain over the baseline, loss infonce, in percentage points (p):" in text
    assert text.count("**8") == latex.count(r"\textbf{8") == 2  # the best of each column
    assert len({line.count("|") for line in text.split("\n") if line.startswith("|")}) == 1
    rows = [line for line in latex.split("\n") if line.endswith(r"\\")]
    assert [line.split(" & ")[0] for line in rows] == ["loss", *ROWS, "infonce", "dcl", "hcl"]
    assert [row.count("*") for row in rows[6:8]] == [2, 0]  # significantly better than the baseline in both columns
    assert latex.count(r"\midrule") == 2
    for cell in plan.references:  # make a reference row better than every trained row
        records[cell.key]["references"]["svm"]["statistics"]["accuracy"] = [99.0] * 10
    assert to_markdown(make_table(plan, records)).count("**8") == 0


def test_csv_is_tidy(plan, records):
    for each in records.values():
        each["metrics"]["dataset"] = "wrong"  # the axis of this name is kept
    lines = list(csv.DictReader(io.StringIO(to_csv(plan, records))))
    assert len(lines) == len(plan.cells)
    (line,) = [each for each in lines if (each["loss"], each["dataset"], each["seed"]) == ("hcl", "NCI1", "1")]
    value = accuracies(plan, records, "hcl", "NCI1")[1].mean()
    assert float(line["accuracy"]) == pytest.approx(value)
    assert float(line["calibrated"]) == pytest.approx(float(line["untrained"]) + 1)
    assert float(line["gain"]) == pytest.approx(value - float(line["untrained"]))
    assert line["training_loss"] == "1.5"


def test_missing_cells_are_shown(plan, records):
    missing = [cell.key for cell in plan.cells if cell.coordinates["loss"] == "dcl"]
    del records[missing[0]]
    records |= {key: {"status": "failed", "error": "no"} for key in missing[3:]}
    text = to_markdown(make_table(plan, records))
    assert "(2/3)" in text or "(1/3)" in text
    states = [line["status"] for line in csv.DictReader(io.StringIO(to_csv(plan, records)))]
    assert (states.count("open"), states.count("failed")) == (1, len(missing[3:]))
    assert "No cell is finished yet" in to_markdown(make_table(plan, {}))
    assert to_latex(make_table(plan, {}))


def made(axes, mean=lambda cell: 80, **spec):
    """Return a plan with one seed, and its records; a cell scores `mean(cell)` in every fold."""
    plan, rng = make_plan({"axes": axes, "settings": {"seeds": [0]}, **spec}), np.random.default_rng(0)
    found = {}
    for cell in (*plan.references, *plan.cells):
        found[cell.key] = record(rng, cell, 80, cell.config.evaluation.folds)
        if cell in plan.cells:
            found[cell.key]["scores"]["svm"]["accuracy"] = [mean(cell)] * cell.config.evaluation.folds
    return plan, found


def test_rows_of_untrained_encoders_equal_means_and_other_folds():
    text = to_markdown(make_table(*made({"encoder.num_layers": [2, 3], "loss": ["infonce", "dcl"]})))
    rows = [line.split("|")[1:3] for line in text.split("\n") if "untrained" in line]
    assert [[each.strip() for each in row] for row in rows[:2]] == [["untrained 2", ""], ["untrained 3", ""]]
    means = {"infonce": 90.001, "dcl": 90.0, "hcl": 89.0}  # equal as printed, so equally best
    text = to_markdown(make_table(*made({"loss": list(means)}, lambda cell: means[cell.coordinates["loss"]])))
    assert text.count("**90.00**") == 2
    assert "| 89.00" in text
    # Scores on different folds cannot be paired: the table has no gains over the baseline.
    table = make_table(*made({"evaluation.folds": [3, 10]}, table={"baseline": 10}))
    assert (len(table.gains_over_baseline), len(table.gains)) == (0, 2)


def test_labels_that_mean_something_to_latex_and_markdown():
    groups = {"[a_b]": {"epochs": 1}, "50%\n{x} $~^\\": {"epochs": 2}, "p|q *": {"epochs": 3}}
    table = make_table(make_plan({"axes": {"mine": groups}, "settings": {"seeds": [0]}}), {})
    latex, text = to_latex(table), to_markdown(table)
    assert r"{[}a\_b] & - \\" in latex
    assert r"50\% \{x\} \$\textasciitilde{}\textasciicircum{}\textbackslash{} & - \\" in latex
    assert "\n| 50% {x} $~^\\ " in text
    assert r"| p\|q * " in text


LOSSES = {"loss": ["infonce", "dcl"]}


def draw(folder, axes, keep=1.0, **settings):
    plan, rng = make_plan({"axes": axes, "settings": {"seeds": [0, 1], **settings}}), np.random.default_rng(0)
    cells = [*plan.references, *plan.cells[: int(keep * len(plan.cells))]]
    records = {cell.key: record(rng, cell, 60 + 20 * rng.random(), 4) for cell in cells}
    tables = {name: make_table(plan, records, name) for name in plan.evaluators}
    return plan, tables, write_figures(folder, plan, tables)


def texts(file):
    root = ElementTree.parse(file).getroot()
    return ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_bars_show_the_means_of_the_tables(tmp_path):
    _, tables, names = draw(tmp_path, {**LOSSES, "dataset": ["MUTAG", "NCI1"]}, eval=["svm", "knn"])
    assert names == ["figures/svm.svg", "figures/knn.svg"]
    for name, table in tables.items():
        means = {f"{entry.mean:.1f}" for entry in table.entries.values()}
        expected = {"MUTAG", "NCI1", "infonce", "dcl", f"{name}: gain of training by loss"}
        assert means | expected <= set(texts(tmp_path / "figures" / f"{name}.svg"))


def test_a_heat_map_of_two_numeric_axes(tmp_path):
    axes = {"loss.temperature": [0.5, 0.1], **LOSSES, "batch_size": [32, 64, 128]}
    plan, tables, names = draw(tmp_path, axes)
    assert numeric_axes(plan) == ["loss.temperature", "batch_size"]
    assert names == ["figures/svm.svg", "figures/svm-heat.svg"]
    drawn = texts(tmp_path / "figures" / "svm-heat.svg")
    assert {"infonce, synthetic", "dcl, synthetic", "loss.temperature", "batch_size"} <= set(drawn)
    means = [f"{tables['svm'].entries[(tau, loss, size), 'synthetic'].mean:.1f}"
             for loss in ("infonce", "dcl") for tau in ("0.1", "0.5") for size in ("32", "64", "128")]  # fmt: skip
    assert [each for each in drawn if each in means] == means  # sorted by value, not in the order on the axis


def test_no_heat_map_elsewhere_and_no_figure_of_nothing(tmp_path):
    assert draw(tmp_path, LOSSES, keep=0)[2] == []
    assert list(tmp_path.iterdir()) == []
    for axes, keep in ((LOSSES, 0.5), ({"epochs": [1, 2]}, 1)):
        assert draw(tmp_path, axes, keep)[2] == ["figures/svm.svg"]
