"""The page that a run leaves: whole, alone, and with the run's own numbers."""

import json
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch
import yaml
from torch_geometric.data import Data, InMemoryDataset

from graphcl.commands.show import main as show
from graphcl.experiment.snapshot import EDGES
from graphcl.experiment.viz.run_report import _command, differences
from graphcl.experiment.viz.similarities import density
from graphcl.run import main as run
from tests.fuzz.watch import peak

QUICK = ["--epochs", "2", "--batch-size", "16", "--evaluation.folds", "3", "--evaluation.inner-folds", "2"]
QUICK += ["--encoder.hidden", "8", "--loss", "adnce", "--loss.sigma", "0.4"]


@pytest.fixture(scope="module")
def folder(few, tmp_path_factory):
    """The folder of a run on forty graphs of two classes, two seeds, two evaluators."""
    out = tmp_path_factory.mktemp("viz") / "run"
    words = ["--dataset", few("MUTAG"), *QUICK, "--seeds", "0", "4", "--eval", "knn,logreg", "--out", str(out)]
    assert run(words) == 0
    return out


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def page_of(folder):
    text = (folder / "report.html").read_text()
    return text, ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def sections(root):
    return [each.text for each in root.iter("h2")]


def test_the_page_is_well_formed_and_loads_nothing(folder):
    text, root = page_of(folder)
    assert len(list(root.iter("svg"))) == 16
    assert not re.search(r"https?:|src=|@import|<link|<script", text)
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(set(ids)) == len(ids)
    inside = re.findall(r'(?:href="#|url\(#)([^")]*)', text)
    assert inside
    assert set(inside) <= set(ids)
    assert set(re.findall(r'href="(.)', text)) == {"#"}


def test_it_tells_every_part(folder):
    text, root = page_of(folder)
    assert sections(root) == [
        "Accuracy in %, beside the untrained encoder's",
        "Training",
        "Map of the embeddings",
        "Similarity of positives and negatives",
        "What a negative weighs",
        "Time",
        "Settings",
    ]
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_its_numbers_are_those_of_the_result(folder):
    _, root = page_of(folder)
    result = json.loads((folder / "result.json").read_text())
    drawn = ["".join(each.itertext()).strip() for each in root.iter("text")]
    leads = ["".join(each.itertext()) for each in root.iter("p") if each.get("class") == "lead"]
    cells = ["".join(each.itertext()) for each in root.iter("td")]
    for (name, scores), lead in zip(result["scores"].items(), leads, strict=True):
        for which in ("untrained", "trained"):
            assert f"{scores[which]['mean']:.2f}" in drawn
            assert re.search(rf" {scores[which]['mean']:.2f} (% )?{which}", lead)
        assert lead.startswith(f"{name}: ")
        assert f"gain {scores['gain']['mean']:+.2f} ± {scores['gain']['std_seeds']:.2f} over seeds" in lead
        for each in scores["per_seed"]:
            assert f"{np.mean(each['trained']['accuracy']):.2f}" in cells
    for stage, value in result["seconds"].items():
        assert stage in drawn
        assert f"{value:.2f} s" in drawn


def test_what_is_kept_for_it_is_small_and_adds_up(folder):
    assert (folder / "report.npz").stat().st_size < 20_000
    kept = np.load(folder / "report.npz")
    n = np.load(folder / "embeddings.npz")["h"].shape[1]
    sizes = [16] * (n // 16) + ([n % 16] if n % 16 else [])
    for at in ("before", "after"):
        assert kept[f"{at}_positive"].sum() == n
        negatives = kept[f"{at}_negative"].sum() + kept[f"{at}_same_class"].sum()
        assert negatives == sum(size * (size - 1) for size in sizes)
        assert kept[f"{at}_map"].shape == (n, 2)
        for kind in ("positive", "negative", "same_class"):
            area = (density(kept[f"{at}_{kind}"], EDGES) * np.diff(EDGES)).sum()
            assert area == pytest.approx(1)


def test_looking_does_not_change_the_training(folder, few, tmp_path):
    out = tmp_path / "run"
    words = ["--dataset", few("MUTAG"), *QUICK, "--seeds", "0", "--eval", "knn", "--report", "false"]
    assert run([*words, "--out", str(out)]) == 0
    with_look, without = (np.load(each / "embeddings.npz")["h"][0] for each in (folder, out))
    assert np.array_equal(with_look, without)
    assert not (out / "report.html").exists()
    assert not (out / "report.npz").exists()


def test_it_is_made_again_from_the_files(copy, capsys):
    before = (copy / "report.html").read_text()
    (copy / "report.html").unlink()
    assert show([str(copy)]) == 0
    assert capsys.readouterr().out == f"{copy}/report.html\n"
    assert (copy / "report.html").read_text() == before


@pytest.mark.parametrize(
    ("missing", "left"),
    [
        (["report.npz"], ["Accuracy in %, beside", "Training", "Map of", "Time", "Settings"]),
        (["report.npz", "result.json", "embeddings.npz"], ["Training", "Settings"]),
        (["report.npz", "result.json", "embeddings.npz", "metrics.jsonl"], ["Settings"]),
    ],
)
def test_it_tells_what_the_files_allow(copy, missing, left):
    for name in missing:
        (copy / name).unlink()
    assert show([str(copy)]) == 0
    text, root = page_of(copy)
    assert len(sections(root)) == len(left)
    assert all(found.startswith(wanted) for found, wanted in zip(sections(root), left, strict=True))
    assert ("This run has no result yet" in text) == ("result.json" in missing)


def test_mistakes_are_said_in_a_line(copy, tmp_path, capsys):
    assert show([str(copy), "--out", "a.html"]) == 2
    assert "`--out` goes with --dataset; a run's report.html lies in the run's folder." in capsys.readouterr().err
    assert show([str(tmp_path)]) == 2
    assert "is not the folder of a run: give the folder of a run, such as" in capsys.readouterr().err
    (tmp_path / "sweep.yaml").touch()
    assert show([str(tmp_path)]) == 2
    assert "a sweep is drawn by python -m graphcl.sweep" in capsys.readouterr().err
    (copy / "result.json").write_text("{")
    assert show([str(copy)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"graphcl: {copy}/result.json cannot be read: ")
    assert error.count("\n") == 1


def test_without_matplotlib_a_run_goes_well_and_says_what_to_install(few, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    out = tmp_path / "run"
    words = ["--dataset", few("MUTAG"), *QUICK, "--epochs", "0", "--seeds", "0", "--eval", "knn", "--out", str(out)]
    assert run(words) == 0
    last = capsys.readouterr().out.rstrip().split("\n")[-1]
    assert last.startswith("no report.html: pictures are drawn by matplotlib (")
    assert last.endswith("); pip install 'graphcl[viz]'.")
    assert not (out / "report.html").exists()
    assert (out / "report.npz").exists()  # so that it can be drawn later
    assert show([str(out)]) == 2
    assert "pip install 'graphcl[viz]'" in capsys.readouterr().err
    monkeypatch.undo()
    assert show([str(out)]) == 0


@pytest.mark.parametrize(("classes", "told"), [(0, "no class labels"), (12, "class 11 (3)"), (40, "5 further classes")])
def test_any_number_of_classes(classes, told, tmp_path):
    generator = torch.Generator().manual_seed(0)
    ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    graphs = [
        Data(x=torch.rand(4, 3, generator=generator), edge_index=torch.cat([ring, ring.flip(0)], dim=1))
        for _ in range(max(36, 3 * classes))
    ]
    for number, graph in enumerate(graphs if classes else []):
        graph.y = torch.tensor([number % classes])
    InMemoryDataset.save(graphs, str(tmp_path / "own.pt"))
    words = ["--dataset", str(tmp_path / "own.pt"), *QUICK, "--epochs", "1", "--seeds", "0", "--eval", "knn"]
    assert run([*words, "--out", str(tmp_path / "run")]) == 0
    text, root = page_of(tmp_path / "run")
    assert told in text
    assert ("negatives of the same class" in text) == bool(classes)
    assert ("Accuracy" in sections(root)[0]) == bool(classes)


def test_settings_that_differ_from_the_defaults(folder):
    config = json.loads((folder / "result.json").read_text())["config"]
    changed = {key: (value, default) for key, value, default, differs in differences(config) if differs}
    assert changed["loss.sigma"] == ("0.4", "1.0")  # beside the default of the same loss
    assert changed["loss.name"] == ("adnce", "infonce")
    assert changed["encoder.hidden"] == ("8", "32")
    assert "loss.mu" not in changed
    assert "features" not in changed
    _, root = page_of(folder)
    assert {"".join(cell.itertext()) for cell in root.iter("td") if cell.get("class") == "changed"} == {
        value for value, _ in changed.values()
    }


def test_a_benchmarks_error_falls(copy):
    """One fold, several targets a graph, a metric that is the better the lower."""
    result = json.loads((copy / "result.json").read_text())
    result["split"] = {"train": 30, "valid": 8, "test": 9}
    del result["folds"], result["inner_folds"]
    for scores in result["scores"].values():
        for each in scores["per_seed"]:
            for name, value in (("untrained", 2.0), ("trained", 1.5)):
                each[name] |= {"accuracy": [value], "inner": [value], "chosen": [1.0], "folds": 1, "metric": "rmse"}
    (copy / "result.json").write_text(json.dumps(result))
    arrays = dict(np.load(copy / "embeddings.npz"))
    np.savez(copy / "embeddings.npz", **{**arrays, "y": np.full((len(arrays["y"]), 3), np.nan)})
    assert show([str(copy)]) == 0
    text, root = page_of(copy)
    assert sections(root)[0] == "RMSE, beside the untrained encoder's"
    assert "gain +0.50 ± 0.00 over seeds, better in 2 of 2" in text
    assert "the benchmark&#x27;s split: 30 training graphs, 8 for validation, 9 for the test" in text
    assert "class 0" not in text


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["/x/graphcl/run.py", "--loss", "dcl"], "python -m graphcl.run --loss dcl"),
        (["/x/graphcl/__main__.py", "run", "--loss", "dcl"], "graphcl run --loss dcl"),
        (["/x/bin/graphcl", "run", "--out", "a b"], "graphcl run --out 'a b'"),
        (["mine.py"], "mine.py"),
        ([], ""),
    ],
)
def test_the_command_is_shown_as_it_was_typed(words, shown):
    assert _command(words) == shown


def result(change):
    def damage(folder):
        content = json.loads((folder / "result.json").read_text())
        change(content)
        (folder / "result.json").write_text(json.dumps(content))

    return damage


def text(name, content):
    return lambda folder: (folder / name).write_text(content)


def arrays(name, **changes):
    def damage(folder):
        with np.load(folder / name) as found:
            content = dict(found)
        np.savez_compressed(folder / name, **{**content, **changes})

    return damage


HOSTILE = {
    "list": (text("result.json", "[]"), "must hold mappings"),
    "brackets": (text("result.json", "[" * 10**6), "no JSON"),
    "scores": (text("result.json", '{"scores": 3}'), "must hold mappings"),
    "no-seeds": (result(lambda each: each["scores"]["knn"]["per_seed"].clear()), "its files do not fit together"),
    "metric": (
        result(lambda each: each["scores"]["knn"]["per_seed"][0]["trained"].update(metric="a\nb")),
        "is damaged",
    ),
    "stages": (result(lambda each: each.update(seconds={f"s{i}": 1 for i in range(5000)})), "5000 scores or stages"),
    "command": (result(lambda each: each.update(command=[1])), "its files do not fit together"),
    "lines": (text("metrics.jsonl", "x"), "no JSON"),
    "no-mapping": (text("metrics.jsonl", "[]"), "must hold mappings"),
    "measures": (text("metrics.jsonl", json.dumps({f"k{i}": 1 for i in range(5000)})), "5000 measures"),
    "seed": (text("metrics.jsonl", '{"seed": [], "loss": 1}'), "its files do not fit together"),
    "settings": (text("config.yaml", "loss: 1\nviews: 2"), "its files do not fit together"),
    "bomb": (arrays("embeddings.npz", h=np.zeros((1, 40, 10**6), np.float32)), "would unpack to 16000"),
    "classes": (arrays("embeddings.npz", y=np.full(40, 10**15)), "classes from 1000000000000000 to"),
    "few-labels": (arrays("embeddings.npz", y=np.arange(3)), "its files do not fit together"),
    "objects": (arrays("embeddings.npz", h=np.array([{}])), "objects, which would be code"),
    "no-archive": (text("embeddings.npz", "PK"), "embeddings.npz cannot be read"),
    "points": (arrays("report.npz", before_map=np.zeros((10**6, 2))), "its files do not fit together"),
}


@pytest.mark.parametrize(("damage", "says"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_folder(damage, says, copy, capsys):
    (copy / "report.html").unlink()
    damage(copy)
    with peak() as found:
        assert show([str(copy)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("graphcl: ")
    assert told.count("\n") == 1
    assert says in told
    assert found[0] < 100 * 2**20
    assert not (copy / "report.html").exists()


def test_no_text_of_a_folder_becomes_a_part_of_the_page(copy):
    """A page with a script in it would run its writer's code as soon as it is looked at."""
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

    result(inject)(copy)
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    (copy / "metrics.jsonl").write_text("\n".join(json.dumps({**line, mark: 1.0}) for line in lines))
    assert show([str(copy)]) == 0
    text, root = page_of(copy)
    assert "&lt;script&gt;alert(1)" in text
    for each in root.iter():
        assert each.tag.rpartition("}")[2] not in ("script", "img", "iframe", "object", "embed")
        assert not [name for name in each.attrib if name.lower().startswith("on")]


def test_links_in_a_folder_are_not_written_through(copy, tmp_path):
    (tmp_path / "precious").write_text("kept")
    (copy / "report.html").unlink()
    (copy / "report.html").symlink_to(tmp_path / "precious")
    assert show([str(copy)]) == 0
    assert (tmp_path / "precious").read_text() == "kept"
