"""A stored sweep is extended by seeds, data sets and labels; every other change is refused and changes no file."""

import os
import re
from pathlib import Path

import pytest
import yaml
from torch_geometric.data import InMemoryDataset

from graphcl.commands.sweep import main
from graphcl.errors import InputError
from graphcl.registry import losses
from graphcl.sweep import make_plan, sweep
from tests.conftest import restored, small_graphs

QUICK = "--epochs 1 --batch-size 16 --evaluation.folds 3 --evaluation.inner-folds 2 --eval knn"
QUICK += " --encoder.hidden-channels 8"
LOSS = "from graphcl.extend import losses\nfrom graphcl.losses import infonce\n"
LOSS += "@losses.register('{0}')\ndef {0}(z1, z2, *, temperature: float = 0.2):\n"
LOSS += "    return infonce(z1, z2, temperature=2 * temperature)\n"


@pytest.fixture
def stored(tmp_path, monkeypatch, inline):
    """Run a sweep of two losses, two seeds and a data set in `tmp_path/start`; return the folder of the sweep."""
    for folder in ("start", "other"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "start")
    InMemoryDataset.save(small_graphs(), "own.pt")
    InMemoryDataset.save(small_graphs(30), "two.pt")
    Path("mine.py").write_text(LOSS.format("mine"))
    Path("more.py").write_text(LOSS.format("more"))
    with restored(losses):
        words = f"--dataset own.pt {QUICK} --loss mine dcl --import mine.py --seeds 0-1 --baseline dcl --out S"
        assert main(words.split()) == 0
        yield Path("S")


def content(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.name != ".lock"}


FILE = "axes: {loss: [dcl, hcl]}\nsettings: {seeds: [5], eval: knn, epochs: 1, batch_size: 16,\n"
FILE += "  evaluation: {folds: 3, inner_folds: 2}, encoder.hidden_channels: 8}\n"
GROUPS = "axes: {kind: {a: {loss: dcl}, b: {loss: hcl}}}\n" + FILE.split("\n", 1)[1]

EXTENDED = {
    "": (6, 0),
    "--seeds 0-2": (9, 3),
    "--seeds 7": (9, 3),
    "--seeds 0": (6, 0),  # what is not mentioned stays
    "--loss hcl": (8, 2),
    "--loss mine hcl adnce": (10, 4),
    "--loss dcl": (6, 0),
    "--dataset two.pt": (12, 6),
    "--dataset own.pt two.pt --seeds 0 1 2": (18, 12),
    "--epochs 1 --eval knn": (6, 0),  # as stored
    "--encoder.num-layers 3 --lr 0.01": (6, 0),  # the defaults
    "--threads 2 --data-root elsewhere": (6, 0),  # they do not affect the result
    "--lr 0.01 0.1": (10, 4),  # a new axis that holds the stored value
    "--import more.py --loss more": (8, 2),
    "--baseline mine": (6, 0),
    "--rows dataset --columns loss": (6, 0),  # without the baseline, whose axis is none of the rows
    "file.yaml": (12, 6),  # imports and the loss `mine` stay
    "file.yaml --dataset two.pt": (24, 18),
}
REFUSED = {
    "--epochs 20": "nother sweep: `epochs` was 1 and is 20",
    "--epochs 20 --seeds 0-4": "nother sweep: `epochs` was 1 and is 20",
    "--loss.temperature 0.7": "nother sweep: `loss.temperature` was 0.2 and is 0.7",
    "--eval svm": "nother sweep: `eval` was ['knn'] and is ['svm']",
    "--eval knn svm": "nother sweep: `eval` was ['knn'] and is ['knn', 'svm']",
    "--encoder gcn": "nother sweep: `encoder.name` was 'gin' and is 'gcn'",
    "--evaluation.folds 5": "nother sweep: `evaluation.folds` was 3 and is 5",
    "--lr 0.1 0.2": "nother sweep: `lr` was 0.01 and is 0.1",
    "--recipe adnce": "nother sweep: `views.first.name` was 'random4' and is 'identity'",
    "file.yaml --batch-size 32": "nother sweep: `batch_size` was 16 and is 32",
    "short.yaml": "nother sweep: `epochs` was 1 and is 20",  # a complete sweep lacks `epochs`
    "published": " sweep, which cannot be extended by this: `table.baseline` must name one of the axes loss, recipe",
}  # fmt: skip


def test_a_stored_sweep_is_extended_or_left_alone(stored, capfd, monkeypatch):
    Path("file.yaml").write_text(FILE)
    Path("short.yaml").write_text(FILE.replace("epochs: 1,", ""))
    before = content(stored)
    for words, (cells, new) in EXTENDED.items():
        capfd.readouterr()
        assert main([*words.split(), "--out", "S", "--dry-run"]) == 0, (words, capfd.readouterr().err)
        printed = capfd.readouterr().out
        assert f"{cells} cells" in printed, (words, printed)
        assert "6 finished" in printed, (words, printed)
        assert (f"S/ holds a sweep of 6 cells, which stay; {new} are new" in printed) is bool(words)
    for words, message in REFUSED.items():
        assert main([*words.split(), "--out", "S"]) == 2, words
        (line,) = capfd.readouterr().err.splitlines()
        assert line.startswith(f"graphcl: S holds a{message}"), line
    assert content(stored) == before


def test_an_extension_keeps_cells_settings_imports_and_layout(stored, tmp_path, monkeypatch, capfd):
    """From another folder, where `../start/two.pt` is the stored `two.pt`; killed and resumed sweeps are no other."""
    before = {file: file.stat().st_mtime_ns for file in stored.glob("cells/[!.]*.json")}
    spec, rows = yaml.safe_load((stored / "sweep.yaml").read_text()), (stored / "cells.csv").read_text().splitlines()
    monkeypatch.chdir(tmp_path / "other")
    words = ["--seeds", "1-2", "--loss", "hcl", "--dataset", "../start/two.pt", "--import", "../start/more.py"]
    assert main([*words, "--out", "../start/S"]) == 0
    capfd.readouterr()
    monkeypatch.chdir(tmp_path / "start")
    assert {file: file.stat().st_mtime_ns for file in before} == before
    extended = yaml.safe_load((stored / "sweep.yaml").read_text())
    assert extended["axes"] == {"loss": ["mine", "dcl", "hcl"], "dataset": ["own.pt", "two.pt"]}
    added = {"seeds": [0, 1, 2], "imports": ["mine.py", "more.py"]}
    assert extended["settings"] == {key: value for key, value in spec["settings"].items() if key != "dataset"} | added
    assert (extended["table"], extended["folder"]) == ({"baseline": {"loss": "dcl"}}, spec["folder"])
    key = re.compile(r"\w{16}$")
    assert {key.search(row)[0] for row in rows[1:]} < {
        key.search(row)[0] for row in (stored / "cells.csv").read_text().splitlines()[1:]
    }
    os.remove(next(file for file in stored.glob("cells/*.json") if '"loss": "hcl"' in file.read_text()))
    assert main(["--seeds", "3", "--out", "S", "--dry-run"]) == 0
    assert "32 cells, 8 of them reference rows; 23 finished" in capfd.readouterr().out


def test_tables_without_their_plan_are_not_overwritten(stored, capfd):
    (stored / "sweep.yaml").unlink()
    before = content(stored)
    assert main(f"--dataset own.pt --loss hcl infonce {QUICK} --seeds 0 --out S".split()) == 2
    assert "S is not empty and not a sweep folder, without sweep.yaml; pass" in capfd.readouterr().err
    assert content(stored) == before


def test_in_python_a_plan_without_stored_cells_is_refused(stored):
    before, spec = content(stored), yaml.safe_load((stored / "sweep.yaml").read_text())
    fewer = {**spec, "settings": {**spec["settings"], "seeds": [0]}}
    other = {**spec, "settings": {**spec["settings"], "lr": 0.5}}
    for changed, message in (fewer, "the cell `mine, own.pt, seed 1` is not in the"), (other, "`lr` was 0.01 and is 0"):
        with pytest.raises(InputError, match=f"^S holds another sweep: {message}"):
            sweep(make_plan(changed), "S")
    assert content(stored) == before


def test_a_setting_that_a_stored_axis_sets_is_refused(stored, capfd):
    """It would have no effect."""
    Path("groups.yaml").write_text(GROUPS)
    assert main(["groups.yaml", "--dataset", "own.pt", "--out", "G"]) == 0
    assert main(["--loss", "infonce", "--out", "G"]) == 2
    assert "by this: its axis `kind` sets `loss`, got another, 'infonce'." in capfd.readouterr().err
