"""Tables and figures of made-up records contain the expected numbers."""

import csv
import io
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from graphcl.evaluate import FoldScores, paired_test
from graphcl.sweep import make_plan, make_table
from graphcl.sweep.across import Duel, across
from graphcl.sweep.figures import bars, lines, numeric_axis, write_figures
from graphcl.sweep.write import to_csv, to_latex, to_markdown

ROWS = {"majority": -20, "statistics": -2, "untrained": 0, "calibrated": 1}
"""Row without training -> its made-up distance from the untrained encoder, in percentage points."""


def record(rng, cell, mean, folds=10):
    """Return a made-up record of a finished cell, whose scores have the given mean in expectation."""
    accuracy = rng.normal(mean, 1, folds).tolist()
    scores = {"seed": cell.config.seeds[0], "accuracy": accuracy, "chosen": [1.0] * folds, "folds": folds}
    scores |= {"inner": accuracy, "inner_folds": 5}
    found = {"status": "done", "scores": dict.fromkeys(cell.config.eval, scores), "seconds": {"train": 2.0}}
    rows = {row: {**scores, "accuracy": [x + by for x in accuracy]} for row, by in ROWS.items()}
    references = {} if cell.config.epochs else {"references": dict.fromkeys(cell.config.eval, rows)}
    return {**found, "metrics": {"training_loss": 1.5}, **references}


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


def test_published_values_and_differences_stand_below_ours(plan, records):
    published = {"dcl": {"MUTAG": "84.5 ± 0.3", "DD": "70"}, "hcl": {"NCI1": "81"}}
    table = make_table(make_plan({**plan.spec, "table": {"published": published}}), records)
    text = [[part.strip() for part in line.split("|")[1:-1]] for line in to_markdown(table).splitlines()]
    rows = [line[0] for line in text if line]
    start = rows.index("dcl")
    assert rows[start - 1 : start + 6] == [
        "infonce",
        "dcl",
        "published",
        "difference",
        "hcl",
        "published",
        "difference",
    ]
    of_dcl, of_hcl = ([line for line in text if line][rows.index(row) + 1 :][:2] for row in ("dcl", "hcl"))
    ours = np.mean(accuracies(plan, records, "dcl", "MUTAG"))
    assert of_dcl == [["published", "84.5 ± 0.3", "-"], ["difference", f"{ours - 84.5:+.2f}", "-"]]
    ours = np.mean(accuracies(plan, records, "hcl", "NCI1"))
    assert of_hcl == [["published", "-", "81"], ["difference", "-", f"{ours - 81:+.2f}"]]
    assert "84.5 $\\pm$ 0.3" in to_latex(table)


def test_places_and_paired_corrected_differences(plan, records):
    table = make_table(plan, records)
    means = [each.mean() for each in accuracies(plan, records, "dcl", "NCI1")]
    entry = table.entries[("dcl",), "NCI1"]
    assert (entry.mean, entry.std) == pytest.approx((np.mean(means), np.std(means, ddof=1)))
    assert [row for row in table.rows if table.is_best(row, "NCI1")] == [("dcl",)]

    def scores(loss, dataset):
        values = accuracies(plan, records, loss, dataset)
        return [FoldScores(i, tuple(each), (1.0,) * 10, tuple(each), 10, 5) for i, each in enumerate(values)]

    gains = table.gains_over_baseline
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
    assert "Gain over the best row without training, on the same seeds and folds, in percentage points (p):" in text
    assert latex.count(r"\textbf{") == text.count(" **") == 6  # all six are beyond chance
    assert text.count("**†") == 2  # the best of each column
    rows = [line for line in latex.split("\n") if line.endswith(r"\\")]
    kinds = ["infonce", "dcl", "hcl"]
    names = [line.split(" & ")[0] for line in rows if "multicolumn" not in line]
    assert names == ["loss", *ROWS, *kinds, *kinds, "dcl", "hcl"]  # scores, gains over the best row, over the baseline
    assert [row.count("ddagger") for row in rows[5:8]] == [0, 2, 0]
    for cell in plan.references:  # make a row without training better than every trained row
        records[cell.key]["references"]["svm"]["statistics"]["accuracy"] = [99.0] * 10
    assert to_markdown(make_table(plan, records)).count("**8") == 0


def test_with_data_sets_as_rows_the_best_is_that_of_a_data_set():
    axes = {"dataset": ["MUTAG", "NCI1"], "loss": ["infonce", "dcl"]}
    score = {"MUTAG": 90, "NCI1": 70}
    plan, found = made(axes, lambda cell: score[cell.coordinates["dataset"]], {"rows": "dataset", "columns": "loss"})
    for cell in plan.cells:
        if cell.coordinates["loss"] == "dcl":
            found[cell.key]["scores"]["svm"]["accuracy"] = [score[cell.coordinates["dataset"]] + 1.0] * 10
    table = make_table(plan, found)
    assert {place for place in table.entries if table.is_best(*place)} == {(("MUTAG",), "dcl"), (("NCI1",), "dcl")}


def test_a_joint_selection_is_over_the_data_sets_wherever_they_stand():
    names = ["MUTAG", "NCI1"]
    table = {"select": "loss.temperature", "jointly": True, "rows": "dataset", "columns": "encoder.num_layers"}
    axes = {"loss.temperature": [0.1, 0.5], "dataset": names, "encoder.num_layers": [2, 3]}
    plan, found = made(axes, table=table, evaluation={"folds": 2, "inner_folds": 2})
    for cell in plan.cells:
        best = cell.coordinates["dataset"] == "NCI1" and cell.coordinates["encoder.num_layers"] == "2"
        inner = [9.0 * best, 9.0 * best] if cell.coordinates["loss.temperature"] == "0.5" else [1.0, 1.0]
        found[cell.key]["scores"]["svm"]["inner"] = inner
    chosen = {place: dict(entry.chosen) for place, entry in make_table(plan, found).entries.items()}
    assert chosen == {((name,), layers): {label: 2} for name in names for layers, label in (("2", "0.5"), ("3", "0.1"))}


def test_the_best_row_without_training_is_that_of_the_rows_own_encoder():
    names = [f"d{i}" for i in range(4)]
    axes = {"encoder.num_layers": [2, 3], "dataset": names}
    plan, found = made(axes, lambda cell: 75)
    for cell in plan.references:
        for row in ("untrained", "calibrated", "statistics"):
            score = found[cell.key]["references"]["svm"][row]
            score["accuracy"] = [90.0 if cell.config.encoder["num_layers"] == 3 else 60.0] * 10
    result = across(make_table(plan, found))
    wins = {row: duel.wins for row, duel in result.duels["best row without training"].items()}
    assert wins == {"2": 4, "3": 0}
    assert {"untrained, 2", "untrained, 3"} <= result.ranks.keys()
    unfinished = next(cell for cell in plan.cells if cell.coordinates["dataset"] == "d0")
    del found[unfinished.key]
    assert across(make_table(plan, found)).datasets == names[1:]


def test_scores_on_several_splits_are_not_compared():
    axes = {"split": ["random-0", "random-1"], "loss": ["infonce", "dcl"], "dataset": ["a", "b", "c"]}
    made_up = made(axes, lambda cell: 90 if cell.coordinates["split"] == "random-1" else 70)
    table = make_table(*made_up, "ogb")
    assert all(table.is_best(*place) for place in table.entries)
    assert across(table) is None


def test_inner_folds_select_a_value_for_each_test_fold():
    axes = {"loss.temperature": [0.1, 0.5], "dataset": ["MUTAG", "NCI1"]}
    inner = {("0.1", "MUTAG"): [9, 1], ("0.5", "MUTAG"): [2, 4], ("0.1", "NCI1"): [5, 5], ("0.5", "NCI1"): [0, 0]}
    test = {"0.1": [60.0, 50.0], "0.5": [95.0, 70.0]}
    for jointly, folds in ((False, {"MUTAG": (60.0, 70.0), "NCI1": (60.0, 50.0)}), (True, {"MUTAG": (60.0, 50.0)})):
        table = {"select": "loss.temperature", "jointly": jointly}
        plan, found = made(axes, table=table, evaluation={"folds": 2, "inner_folds": 2})
        for cell in plan.cells:
            place = cell.coordinates["loss.temperature"], cell.coordinates["dataset"]
            found[cell.key]["scores"]["svm"] |= {"accuracy": test[place[0]], "inner": inner[place]}
        entries = make_table(plan, found).entries
        assert {name: entries[(), name].scores[0].accuracy for name in folds} == folds
        assert entries[(), "NCI1"].chosen == {"0.1": 2}
        del found[plan.cells[0].key]  # a seed counts only if all its values are finished
        assert make_table(plan, found).entries[(), plan.cells[0].coordinates["dataset"]].scores == []


def test_ranks_and_wilcoxons_test_over_data_sets():
    names = [f"d{i}" for i in range(6)]
    axes = {"loss": ["infonce", "dcl"], "dataset": names}
    plan, found = made(axes, lambda cell: 70 + names.index(cell.coordinates["dataset"]) / 9 + 20 * ("dcl" in str(cell)),
                       {"baseline": "infonce"})  # fmt: skip
    result = across(make_table(plan, found))
    assert result.ranks["dcl"] == 1
    assert result.ranks["infonce"] < result.ranks["majority"]
    assert result.duels["baseline"]["dcl"] == Duel(6, 0, 0, p=0.03125)  # the smallest p of six pairs, 2 / 2^6
    other = result.duels["best row without training"]
    assert (other["dcl"].wins, other["infonce"].losses) == (6, 6)
    assert result.critical_difference == pytest.approx(2.850 * np.sqrt(6 * 7 / 36), abs=2e-3)  # Demsar's table 5, k = 6
    assert across(make_table(*made({**axes, "dataset": names[:2]}))) is None


def test_csv_is_tidy(plan, records):
    lines = list(csv.DictReader(io.StringIO(to_csv(plan, records))))
    assert len(lines) == len(plan.cells)
    (line,) = [each for each in lines if (each["loss"], each["dataset"], each["seed"]) == ("hcl", "NCI1", "1")]
    value = accuracies(plan, records, "hcl", "NCI1")[1].mean()
    assert float(line["accuracy"]) == pytest.approx(value)
    assert float(line["calibrated"]) == pytest.approx(float(line["untrained"]) + 1)
    assert float(line["gain"]) == pytest.approx(value - float(line["untrained"]))
    assert line["training_loss"] == "1.5"


def test_missing_cells_are_shown(plan, records):
    first, *others = [cell.key for cell in plan.cells if cell.coordinates["loss"] == "dcl"]
    del records[first]
    records |= {key: {"status": "failed", "error": "no"} for key in others[2:]}
    assert re.search(r"\([12]/3\)", to_markdown(make_table(plan, records)))
    states = [line["status"] for line in csv.DictReader(io.StringIO(to_csv(plan, records)))]
    assert (states.count("open"), states.count("failed")) == (1, 3)
    assert "No cell is finished yet" in to_markdown(make_table(plan, {}))


def made(axes, mean=lambda cell: 80, table=None, **settings):
    """Return a plan with one seed, and its records; a cell scores `mean(cell)` in every fold."""
    plan = make_plan({"axes": axes, "settings": {"seeds": [0], **settings}, "table": table or {}})
    rng, found = np.random.default_rng(0), {}
    for cell in (*plan.references, *plan.cells):
        found[cell.key] = record(rng, cell, 80, cell.config.evaluation.folds)
        for scores in found[cell.key]["scores"].values() if cell in plan.cells else ():
            scores["accuracy"] = [mean(cell)] * cell.config.evaluation.folds
    return plan, found


def test_rows_of_untrained_encoders_and_other_folds():
    text = to_markdown(make_table(*made({"encoder.num_layers": [2, 3], "loss": ["infonce", "dcl"]})))
    rows = [line.split("|")[1:3] for line in text.split("\n") if "untrained" in line]
    assert [[each.strip() for each in row] for row in rows[:2]] == [["untrained 2", ""], ["untrained 3", ""]]
    # Scores on different folds cannot be paired: the table has no gains over the baseline.
    table = make_table(*made({"evaluation.folds": [3, 10]}, table={"baseline": 10}))
    assert (len(table.gains_over_baseline), len(table.gains)) == (0, 2)


def test_labels_that_mean_something_to_latex_and_markdown():
    groups = {"[a_b]": {"epochs": 1}, "50%\n{x} $~^\\": {"epochs": 2}, "p|q *": {"epochs": 3}}
    table = make_table(make_plan({"axes": {"mine": groups}, "settings": {"seeds": [0]}}), {})
    latex, text = to_latex(table), to_markdown(table)
    assert r"{[}a\_b] & - \\" in latex
    assert r"50\% \{x\} \$\textasciitilde{}\textasciicircum{}\textbackslash{} & - \\" in latex
    for label in (r"\[a_b\]", r"50% {x} $\~^\\", r"p\|q \*"):
        assert f"\n| {label} " in text


WRITTEN = {
    "<b>&lt;": r"\<b\>\&lt;", "[u](v)\n`c`": r"\[u\](v) \`c\`", "__x__": r"\_\_x\_\_", "node_drop": "node_drop",
    "\\|*a*": r"\\\|\*a\*", "end\\": r"end\\",
}  # fmt: skip
"""Label -> its Markdown, in which a backslash makes the next character plain."""


def test_markdown_shows_labels_as_they_are():
    axes = {"mine": {label: {"epochs": 1 + number} for number, label in enumerate(WRITTEN)}}
    for table in ({"baseline": "[u](v)\n`c`"}, {"rows": "dataset", "columns": "mine"}):
        plan, found = made(axes | ({"dataset": ["MUTAG", "NCI1"]} if "rows" in table else {}), table=table)
        text = to_markdown(make_table(plan, found))
        assert [label for label, written in WRITTEN.items() if f"| {written} " not in text] == []
        assert "baseline" not in table or r"Gain over the baseline, mine \[u\](v) \`c\`, in percentage" in text


LOSSES = {"loss": ["infonce", "dcl"]}


def texts(file):
    root = ElementTree.parse(file).getroot()
    return ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_bars_show_the_means_of_the_tables(tmp_path):
    axes = {**LOSSES, "dataset": ["MUTAG", "NCI1"]}
    plan, records = made(axes, lambda cell: 70 + len(str(cell)), eval=["svm", "knn"])
    tables = {name: make_table(plan, records, name) for name in plan.evaluators}
    assert write_figures(tmp_path, tables) == ["figures/svm.svg", "figures/knn.svg"]
    expected = {"MUTAG", "NCI1", "infonce", "dcl", "87.0", "88.0", "91.0", "92.0"}
    for name in tables:
        shown = {f"{name} by loss", "mean, gain", "better than that row", "worse than that row"}
        assert expected | shown <= set(texts(tmp_path / f"figures/{name}.svg"))


def test_a_loss_of_training_does_not_look_like_a_gain():
    """Bars of losses are hatched, also of errors, and the marks of both references differ in form and place."""
    figure = bars(make_table(*made({"loss": ["infonce", "dcl"]}, lambda cell: 90 if "dcl" in str(cell) else 70)))
    (axis,) = figure.axes
    worse, better = axis.patches
    assert (worse.get_width() < 0, worse.get_hatch() is None, better.get_hatch() is None) == (True, False, True)
    lines, diamonds = ([line for line in axis.lines if (line.get_marker() == "D") is mark] for mark in (False, True))
    assert len(diamonds) == 2
    assert all(line.get_ydata()[0] % 1 != diamond.get_ydata()[0] % 1 for line in lines for diamond in diamonds)
    plan, records = made({"loss": ["infonce"]}, lambda cell: 90)
    for each in records.values():
        for rows in (each["scores"], each.get("references", {}).get("svm", {})):
            for row in rows.values():
                row["metric"] = "rmse"
    (bar,) = bars(make_table(plan, records)).axes[0].patches
    assert (bar.get_width() > 0, bar.get_hatch() is None) == (True, False)


def test_latex_has_the_caption_and_the_notes_of_the_table(plan, records):
    latex = to_latex(make_table(plan, records))
    text = re.sub("^ *%.*", "", latex, flags=re.MULTILINE)  # what reaches the paper
    assert r"\caption{svm: accuracy in \%, mean $\pm$ sample standard deviation over seeds (n - 1).}" in text
    for note in (
        "Seeds: 3; folds: 10.",
        r"Bold: better than the best row without training, p $<$ 0.05.",
        r"$^{\dagger}$: best",
    ):
        assert note in text.partition(r"\end{tabular}")[2]
    assert latex.count(r"\begin{") == latex.count(r"\end{") == 2
    one = to_latex(make_table(*made(LOSSES)))
    assert r"\caption{svm: accuracy in \%.}" in one
    assert r"$\pm$" not in one


def test_the_legend_of_a_single_plot_is_not_cut_off():
    axes = {"loss": ["infonce", "nt_xent"], "loss.temperature": [0.5, 0.05], "dataset": ["MUTAG"]}
    figure = lines(make_table(*made(axes, lambda _: 70)), "loss.temperature")
    figure.draw_without_rendering()
    assert figure.legends[0].get_window_extent().x1 <= figure.bbox.x1


def test_scores_over_a_number_are_lines(tmp_path):
    axes = {**LOSSES, "loss.temperature": [0.5, 0.05], "dataset": ["MUTAG", "NCI1"]}
    plan, records = made(axes, lambda cell: 70 + 10 * float(cell.coordinates["loss.temperature"]))
    table = make_table(plan, records)
    assert numeric_axis(table) == "loss.temperature"
    plots = lines(table, "loss.temperature").axes
    assert [plot.get_title(loc="left") for plot in plots] == ["MUTAG", "NCI1"]
    assert [line.get_label() for line in plots[0].lines] == ["infonce", "dcl", "best row without training"]
    for line in plots[1].lines[:2]:
        np.testing.assert_allclose(line.get_xydata(), [[0.05, 70.5], [0.5, 75.0]])
    assert plots[0].get_xscale() == "log"
    assert write_figures(tmp_path, {"svm": table}) == ["figures/svm.svg"]
    assert "svm by loss.temperature" in texts(tmp_path / "figures/svm.svg")
