"""The report of a run loads no other files, shows the run's numbers, and copes with damaged run folders."""

import csv
import dataclasses
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

from graphcl.commands.show import main as show
from graphcl.commands.transfer import main as transfer
from graphcl.config import make_config
from graphcl.evaluate import FoldScores, holm, paired_test
from graphcl.experiment.record import output
from graphcl.references.rows import row_labels
from graphcl.report import figures
from graphcl.report.figures import density
from graphcl.report.run_report import predicted_section, read_run, report
from graphcl.report.summary import EDGES
from graphcl.run import main as run
from tests.commands.files import save_untrained
from tests.conftest import small_graphs

ROWS = row_labels()

QUICK = ["--epochs", "2", "--batch-size", "16", "--evaluation.folds", "2", "--evaluation.inner-folds", "2"]
QUICK += ["--encoder.hidden_channels", "8", "--loss", "adnce", "--loss.sigma", "0.4"]


@pytest.fixture(scope="module")
def folder(few, tmp_path_factory):
    """Return the folder of a run with two seeds and two evaluators on forty graphs of two classes."""
    out = tmp_path_factory.mktemp("viz") / "run"
    arguments = ["--dataset", few("MUTAG"), *QUICK, "--seeds", "0", "4", "--eval", "knn,logreg", "--out", str(out)]
    assert run(arguments) == 0
    return out


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def page_of(folder):
    text = (folder / "report.html").read_text()
    return text, ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def sections(root):
    return [each.text for each in root.iter("h2")]


def verdicts(root):
    return [words(each) for each in root.iter("p") if each.get("class") == "verdict"]


def words(element):
    return " ".join("".join(element.itertext()).split())


def change_result(change):
    def damage(folder):
        content = json.loads((folder / "result.json").read_text())
        change(content)
        (folder / "result.json").write_text(json.dumps(content))

    return damage


def change_arrays(name, **changes):
    return lambda folder: np.savez_compressed(folder / name, **{**dict(np.load(folder / name)), **changes})


def test_the_page_is_well_formed_and_loads_nothing(folder):
    text, root = page_of(folder)
    assert sections(root) == [
        "Scores", "Training", "Map of the embeddings", "Similarity of positives and negatives",
        "Time", "Settings",
    ]  # fmt: skip
    assert not re.search(r"https?:|src=|@import|<link|<script", text)
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(set(ids)) == len(ids)
    inside = re.findall(r'(?:href="#|url\(#)([^")]*)', text)
    assert inside
    assert set(inside) <= set(ids)
    assert set(re.findall(r'href="(.)', text)) == {"#"}


def test_the_numbers_are_those_of_the_result(folder):
    page, root = page_of(folder)
    result = json.loads((folder / "result.json").read_text())
    leads, verdicts = ([words(p) for p in root.iter("p") if p.get("class") == kind] for kind in ("lead", "verdict"))
    tables = [[[words(cell) for cell in row] for row in table.iter("tr")] for table in root.iter("table")]
    rows = {row[0]: row[1:] for row in tables[0]}
    for number, (name, scores) in enumerate(result["scores"].items()):
        assert rows[""][number].startswith(name)
        assert {"majority", "statistics", "untrained", "calibrated", "trained"} <= set(scores)
        means = {row: f"{scores[row]['mean']:.2f} ± {scores[row]['std_seeds']:.2f}" for row in ROWS if row in scores}
        assert {row: rows[ROWS[row]][number] for row in means} == means
        gains = [f"{scores[key]['mean']:+.2f} ± {scores[key]['std_seeds']:.2f}" for key in ("gain", "gain_over_best")]
        best = ROWS[scores["best_reference"]]
        assert rows["gain over the untrained encoder"][number].startswith(gains[0])
        assert re.search(
            rf"^{re.escape(gains[1])}.*\({best}\)$", rows["gain over the best row without training"][number]
        )
        assert leads[number] == f"{means['trained'].replace(' ±', ' % ±')} over 2 seeds, {name}"
        assert f" the best row without training ({best}): {gains[1]}, better in" in verdicts[number]
        assert re.match("No gain beyond chance over|Training (gains over|loses to)", verdicts[number])
        for seed, each in zip((0, 4), scores["per_seed"], strict=True):
            of_seed = [f"{np.mean(each[row]['accuracy']):.2f}" for row in ROWS if row in each]
            assert [name, str(seed), *of_seed] in [row[:-1] for row in tables[1]]
    for stage, value in result["seconds"].items():
        assert f"{stage} {value:.2f} s" in page


def test_the_headline_is_adjusted_and_its_row_is_drawn(copy):
    """A best row of several is chosen by the scores that are tested; Holm's method over all rows allows for it."""
    generator = np.random.default_rng(0)

    def to_noise(result):
        for scores in result["scores"].values():
            scores["best_reference"] = "statistics"
            for seed in scores["per_seed"]:
                for row, score in seed.items():
                    score["accuracy"] = [*generator.normal(82.0 if row == "trained" else 80.0, 1, 10)]
                    score |= {"folds": 10, "inner": score["accuracy"], "chosen": [1.0] * 10}

    change_result(to_noise)(copy)
    text, root = shown(copy)
    kept = json.loads((copy / "result.json").read_text())["scores"]["knn"]["per_seed"]
    rows = {row: [FoldScores.of(seed[row]) for seed in kept] for row in kept[0]}
    references = [row for row in rows if row != "trained"]
    alone = [paired_test(rows["trained"], rows[row]).p for row in references]
    p = holm(alone)[references.index("statistics")]
    assert p > 1.5 * alone[references.index("statistics")]
    (verdict,) = [each for each in verdicts(root) if "better in 2 of 2" in each][:1]
    assert verdict.endswith(f"p = {p:.3f}." if p >= 0.001 else "p < 0.001.")
    assert ">graph statistics</text>" in text
    assert "adjusted (Holm) for all rows without training" in text


def test_one_seed_has_no_p(copy):
    def to_one(result):
        result["seeds"] = [0]
        for scores in result["scores"].values():
            scores["per_seed"] = scores["per_seed"][:1]

    change_result(to_one)(copy)
    text, root = shown(copy)
    assert all(each.startswith("One seed allows no test of the gain over the best row") for each in verdicts(root))
    assert not re.search("p = |p &lt; |better in|±", text)


def test_without_training_no_row_is_called_trained(few, tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["--dataset", few("MUTAG"), *QUICK[2:], "--seeds", "0", "1", "--eval", "knn", "--epochs", "0"]
    assert run([*arguments, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "untrained encoder" in printed
    assert "mean over 2 seeds without training." in printed
    assert not re.search("gain over|[^n]trained encoder", printed)
    scores = json.loads((out / "result.json").read_text())["scores"]["knn"]
    assert not {"trained", "gain", "gain_over_best"} & {*scores}
    text, root = page_of(out)
    (verdict,) = [words(each) for each in root.iter("p") if each.get("class") == "verdict"]
    assert (
        verdict
        == f"Nothing was trained; the best row without training is that of the {ROWS[scores['best_reference']]}."
    )
    assert not re.search("gain over|[^n]trained encoder|after training", text)


def test_a_run_whose_training_adds_nothing_names_what_to_try_next():
    graphs = SimpleNamespace(groups=None)

    def advice(gain, **settings):
        scores = {"trained": {}, "best_reference": "statistics", "gain_over_best": {"mean": gain}}
        task = SimpleNamespace(config=make_config(settings), dataset=graphs, rows="graphs")
        return output._next_try(task, {"scores": {"svm": scores}})

    assert advice(0.1) is None
    assert re.search(r"row without training \(graph statistics\); next, try --config best or .* `group`", advice(0.0))
    assert "--config best" not in advice(-1.0, name="best")
    assert advice(-1.0, name="best", positives="group") is None
    assert advice(-1.0, positives="pairs.csv") is None  # `best` is a recipe for TU sets
    graphs.groups = torch.tensor([0, 0, 1, 1])
    assert advice(-1.0, name="best").endswith("; next, try --positives group, which trains on its pairs")
    assert advice(-1.0, name="best", positives="group") is None


def test_snapshots_are_small_and_do_not_change_the_training(folder, few, tmp_path):
    assert (folder / "report.npz").stat().st_size < 20_000
    kept, h = np.load(folder / "report.npz"), np.load(folder / "embeddings.npz")["h"]
    for when in ("before", "after"):
        assert kept[f"{when}_positive"].sum() == h.shape[1]
        assert kept[f"{when}_map"].shape == (h.shape[1], 2)
        assert (density(kept[f"{when}_negative"]) * np.diff(EDGES)).sum() == pytest.approx(1)
    out = tmp_path / "run"
    arguments = ["--dataset", few("MUTAG"), *QUICK, "--seeds", "0", "--eval", "knn", "--report", "false"]
    assert run([*arguments, "--out", str(out)]) == 0
    assert np.array_equal(np.load(out / "embeddings.npz")["h"][0], h[0])
    assert not list(out.glob("report.*"))


def test_estimates_of_information_are_logged_and_drawn_also_by_a_resumed_run(folder, few, tmp_path):
    arguments = ["--dataset", few("MUTAG"), *QUICK[2:], "--seeds", "0", "4", "--eval", "knn", "--diagnostics", "true"]
    logs = {}
    for name in ("whole", "resumed"):
        out = tmp_path / name
        assert run([*arguments, "--out", str(out), "--epochs", "2" if name == "whole" else "1"]) == 0
        assert name == "whole" or run(["--resume", str(out), "--epochs", "2"]) == 0
        logs[name] = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    key = {(row["seed"], row["epoch"]): row for row in logs["whole"]}
    assert len(key) == len(logs["resumed"]) == 4
    names = ("mi_infonce", "mi_limit", "mi_donsker_varadhan", "mi_nwj", "jensen_shannon", "chi_square")
    for row in logs["resumed"]:
        assert {name: row[name] for name in names} == {name: key[row["seed"], row["epoch"]][name] for name in names}
        assert row["mi_limit"] == pytest.approx(np.log(16))

    text, root = page_of(tmp_path / "resumed")
    ends = {name: np.mean([row[name] for row in key.values() if row["epoch"] == 2]) for name in names}
    label = "estimates of mutual information in nats, at the end: InfoNCE {:.3g}, Donsker-Varadhan {:.3g}, NWJ {:.3g}"
    labels = [each.get("aria-label") for each in root.iter("svg")]
    shown_ends = label.format(ends["mi_infonce"], ends["mi_donsker_varadhan"], ends["mi_nwj"])
    assert [each for each in labels if each.startswith(shown_ends)]
    assert [each for each in labels if each.startswith("chi_square: seed 0 ends at")]
    assert "InfoNCE cannot exceed" in text
    assert "InfoNCE cannot exceed" not in page_of(folder)[0]


def test_a_huge_negative_estimate_does_not_hide_the_others():
    means = {"mi_infonce": [1.0, 2.0], "mi_donsker_varadhan": [2.0, -1.0], "mi_nwj": [-1e30, -1e30]}
    (axis,) = figures.information("information", means).axes
    low, high = axis.get_ylim()
    assert -1.5 < low < -1 < 2 < high < 2.5


def test_the_page_is_drawn_again_from_the_files(copy, tmp_path, capsys):
    """A link at its place is replaced, not followed."""
    before = (copy / "report.html").rename(tmp_path / "precious").read_text()
    (copy / "report.html").symlink_to(tmp_path / "precious")
    assert show([str(copy)]) == 0
    assert capsys.readouterr().out == f"{copy}/report.html\n"
    assert not (copy / "report.html").is_symlink()
    assert (copy / "report.html").read_text() == (tmp_path / "precious").read_text() == before


def shown(folder):
    """Draw the page again and return its text and root."""
    assert show([str(folder)]) == 0
    return page_of(folder)


def test_a_missing_file_leaves_out_its_sections(copy):
    for missing, left in [
        (["report.npz"], ["Scores", "Training", "Map of the embeddings", "Time", "Settings"]),
        (["result.json", "embeddings.npz"], ["Training", "Settings"]),
        (["metrics.jsonl"], ["Settings"]),
    ]:
        for name in missing:
            (copy / name).unlink()
        text, root = shown(copy)
        assert sections(root) == left
        assert ("This run has no result yet" in text) == ("Scores" not in left)


def test_any_number_of_classes(copy):
    change_arrays("embeddings.npz", y=np.arange(np.load(copy / "embeddings.npz")["h"].shape[1]) % 36)(copy)
    assert "further classes: 1" in shown(copy)[0]
    for name in ("embeddings.npz", "report.npz"):
        arrays = {key: each for key, each in np.load(copy / name).items() if key != "y" and "same_class" not in key}
        np.savez(copy / name, **arrays)
    change_result(lambda each: each.pop("scores"))(copy)
    text, root = shown(copy)
    assert "no class labels" in text
    assert "negatives of the same class" not in text
    assert "Scores" not in sections(root)


def test_a_map_of_some_graphs_gives_the_sizes_of_the_classes(copy):
    (copy / "report.npz").unlink()
    change_arrays("embeddings.npz", h=np.random.default_rng(0).normal(size=(1, 3000, 4)), y=np.arange(3000) % 2)(copy)
    text, _ = shown(copy)
    assert "class 0 (1500)" in text
    assert "2,000 of the 3,000 graphs" in text


def test_pairs_of_graphs_are_not_called_views_of_a_graph(copy):
    def to_groups(result):
        result["group_split"] = {"train": 30, "valid": 8, "test": 9}
        del result["folds"], result["inner_folds"]

    settings = yaml.safe_load((copy / "config.yaml").read_text())
    (copy / "config.yaml").write_text(yaml.safe_dump(settings | {"positives": "group"}))
    change_result(to_groups)(copy)
    text = shown(copy)[0]
    assert "the views of the two graphs of a pair" in text
    assert not re.search("two views of a graph|two fresh views|same folds|small dots", text)


def test_settings_other_than_the_defaults_are_marked(folder):
    cells = {words(cell) for cell in page_of(folder)[1].iter("mark")}
    assert {"adnce", "0.4"} < cells
    assert not {"infonce", "labels"} & cells


def test_a_falling_error_is_a_gain(copy):
    """The run is on a benchmark with one fold, several targets per graph, and a metric to minimise."""

    def to_benchmark(result):
        result["split"] = {"train": 30, "valid": 8, "test": 9}
        del result["folds"], result["inner_folds"]
        for scores in result["scores"].values():
            scores |= {"metric": "rmse", "best_reference": "statistics"}
            for row, score in ((row, score) for each in scores["per_seed"] for row, score in each.items()):
                value = [1.5 if row == "trained" else 2.0]
                score |= {"accuracy": value, "inner": value, "chosen": [1.0], "folds": 1, "metric": "rmse"}

    change_result(to_benchmark)(copy)
    change_arrays("embeddings.npz", y=np.full((47, 3), np.nan))(copy)
    text, _ = shown(copy)
    assert "knn, RMSE" in text
    assert "Training gains over the best row without training (graph statistics): +0.50" in text
    assert "split: 30 training graphs, C by 8 for validation, scored on 9" in text
    assert "class 0" not in text


DAMAGE = {
    "sweep": (lambda folder: (folder / "config.yaml").rename(folder / "sweep.yaml"), "use graphcl sweep for a sweep"),
    "no config": (lambda folder: (folder / "config.yaml").unlink(), "is not a run folder; pass one with"),
    "settings": (
        lambda folder: (folder / "config.yaml").write_text("loss: 1\nviews: 2"),
        "its files do not fit together",
    ),
    "objects": (change_arrays("embeddings.npz", h=np.array([{}])), "embeddings.npz cannot be read"),
    "points": (change_arrays("report.npz", before_map=np.zeros((10**5, 2))), "its files do not fit together"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_folder_gets_one_line(name, copy, capsys):
    damage, line = DAMAGE[name]
    (copy / "report.html").unlink()
    damage(copy)
    assert show([str(copy)]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("graphcl: ")
    assert line in error
    assert not (copy / "report.html").exists()


def test_text_of_a_folder_is_escaped(copy):
    """Without escaping, a script in a name would run when the page is opened."""
    mark = """"'><script>alert(1)</script><img src=x onerror=alert(2)>"""
    settings = yaml.safe_load((copy / "config.yaml").read_text())
    settings |= {"dataset": mark, mark: mark}
    settings["loss"]["name"] = settings["method"]["name"] = settings["views"]["first"]["name"] = mark
    (copy / "config.yaml").write_text(yaml.safe_dump(settings))

    def inject(content):
        content["scores"][mark] = content["scores"].pop("knn")
        content["seconds"][mark] = 1.0
        content.update(command=[mark], finished=mark, commit=mark)
        content["versions"] = dict.fromkeys(content["versions"], mark)
        content["hardware"] = dict.fromkeys(content["hardware"], mark)

    change_result(inject)(copy)
    lines = (json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines())
    (copy / "metrics.jsonl").write_text("\n".join(json.dumps({**line, mark: 1.0}) for line in lines))
    text, root = shown(copy)
    assert "&lt;script&gt;alert(1)" in text
    for each in root.iter():
        assert each.tag.rpartition("}")[2] not in ("script", "img", "iframe", "object", "embed")
        assert not [name for name in each.attrib if name.lower().startswith("on")]


def test_measured_and_predicted_numbers_and_rows_left_out_are_shown(few, tmp_path):
    """A page has a figure for each target and evaluator of numbers, of the first seed, and counts the rows left out."""
    rows = [
        {"seed": seed, "eval": name, "id": i, "logS": i, "logS_predicted": 2 * i, "mp": "" if i else 5.0,
         "mp_predicted": 4}
        for seed in (1, 2) for name in ("ogb", "ogb_forest", "by_class") for i in range(6)
    ]  # fmt: skip
    for name, table in (("predictions", rows), ("invalid", [{"id": 3, "line": 5, "smiles": "x"}] * 2)):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, table[0])
            writer.writeheader()
            writer.writerows(table)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(make_config({}).model_dump()))
    run = read_run(tmp_path)
    assert run.left_out == 2
    scores = {"ogb": {"metric": "rmse"}, "ogb_forest": {"metric": "r2"}, "by_class": {"metric": "acc"}}
    section = predicted_section(dataclasses.replace(run, result={"scores": scores}))
    assert [label for label, _ in section["figures"]] == [
        f"{name} of {n} test graphs, measured against predicted by {evaluator}"
        for evaluator in ("ogb", "ogb_forest") for name, n in (("logS", 6), ("mp", 1))
    ]  # fmt: skip
    _, points = section["figures"][0][1].axes[0].lines
    assert points.get_xydata().tolist() == [[i, 2 * i] for i in range(6)]
    axis = section["figures"][0][1].axes[0]
    assert axis.get_xlabel() == "measured\nRMSE 3.03, MAE 2.5, R2 -2.14"
    assert axis.get_xlim() == axis.get_ylim()
    assert predicted_section(run) is None
    assert "2 rows of the table were left out; invalid.csv lists them." in report(run)


@pytest.mark.parametrize("mode", ["probe", "finetune"])
def test_a_transfer_has_a_report(mode, saved_graphs, tmp_path):
    save_untrained(tmp_path / "e.pt", small_graphs())
    given = [str(tmp_path / "e.pt"), "--dataset", saved_graphs(), "--mode", mode, "--seeds", "0", "--out"]
    assert (
        transfer([*given, str(tmp_path / "out"), *(["--epochs", "2"] if mode == "finetune" else ["--eval", "knn"])])
        == 0
    )
    _, root = page_of(tmp_path / "out")
    assert sections(root) == ["Scores", "Training" if mode == "finetune" else "Map of the embeddings", "Settings"]
    text, result = words(root), json.loads((tmp_path / "out" / "result.json").read_text())
    (scores,) = result["scores"].values()
    assert f"{scores['trained']['mean']:.2f}" in text
    assert ("from trained" in text) == (mode == "finetune")
    assert show([str(tmp_path / "out")]) == 0
