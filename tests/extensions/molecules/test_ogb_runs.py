"""Test OGB sets on the command line: training, the score on the split, and sweeps."""

import json

import numpy as np
import pytest

from graphcl.config import make_config
from graphcl.datasets import load_dataset
from graphcl.evaluate import ogb
from graphcl.experiment import encoder_input
from graphcl.run import main
from graphcl.sweep.plan import make_plan
from graphcl.sweep.run_cells import run_cell
from graphcl.sweep.table import make_table
from graphcl.sweep.write import to_markdown
from tests.datasets.ogb_files import files_of, make_molecules, write_archive
from tests.methods.small import OF_GRAPHS
from tests.trials import try_settings

pytest.importorskip("ogb", reason="ogb is not installed")
SMALL = ["--encoder.hidden_channels", "8", "--encoder.num_layers", "2", "--batch-size", "16", "--epochs", "1"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a subfolder `archives`, which holds an OGB set of classes and one of numbers."""
    folder = tmp_path_factory.mktemp("ogb")
    write_archive(folder / "archives", files_of(make_molecules(40)), "hiv")
    write_archive(folder / "archives", files_of(make_molecules(40, metric="rmse")), "esol")
    return folder


def where(place):
    return ["--mirror", str(place / "archives"), "--data-root", str(place / "root")]


def test_a_run_is_scored_on_the_split(place, tmp_path, capsys):
    out = tmp_path / "run"
    words = ["--config", "ogb", *where(place), *SMALL, "--seeds", "0", "1", "--report", "false", "--out", str(out)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "ROC-AUC %   ± seeds\nogb, " in printed
    assert "split: 24 training graphs, C by 8 for validation, scored on 8; mean over 2 seeds at" in printed

    result = json.loads((out / "result.json").read_text())
    assert result["split"] == {"train": 24, "valid": 8, "test": 8}
    assert (result["config"]["encoder"]["name"], result["config"]["eval"]) == ("molecule_gine", ["ogb"])
    assert result["versions"]["ogb"] != "not installed"
    scores, arrays = result["scores"]["ogb"], np.load(out / "embeddings.npz")
    assert (scores["metric"], arrays["h"].shape, arrays["y"].shape) == ("rocauc", (2, 40, 8), (40, 1))
    benchmark = load_dataset("ogbg-molhiv", place / "root").benchmark
    again = [ogb(h, arrays["y"], split=benchmark.split, eval_metric="rocauc") for h in arrays["h"]]
    assert [each["trained"]["accuracy"] for each in scores["per_seed"]] == [list(each.accuracy) for each in again]
    assert scores["trained"]["mean"] == pytest.approx(np.mean([each.mean for each in again]))
    assert scores["gain"]["mean"] == pytest.approx(scores["trained"]["mean"] - scores["untrained"]["mean"])


def test_test_labels_change_nothing_but_the_score(place, tmp_path, monkeypatch):
    """Flipped test labels change neither the embeddings nor C; the test score in percent, s, becomes 100 - s."""
    found = []
    for flip in (False, True):

        def load(*arguments, flip=flip, **options):
            dataset = load_dataset(*arguments, **options)
            if flip:
                test = dataset.benchmark.split["test"]
                dataset._data.y[test] = 1 - dataset._data.y[test]
            return dataset

        monkeypatch.setattr(encoder_input, "load_dataset", load)
        out = tmp_path / str(flip)
        words = ["--dataset", "ogbg-molhiv", *where(place), *SMALL, "--seeds", "0", "--report", "false"]
        assert main([*words, "--out", str(out)]) == 0
        score = json.loads((out / "result.json").read_text())["scores"]["ogb"]["per_seed"][0]["trained"]
        found.append((score["chosen"], score["inner"], np.load(out / "embeddings.npz")["h"], score["accuracy"]))
    (c, inner, h, test), (c_flipped, inner_flipped, h_flipped, test_flipped) = found
    assert (c, inner) == (c_flipped, inner_flipped)
    assert np.array_equal(h, h_flipped)
    assert test_flipped == pytest.approx([100 - test[0]])


def test_what_does_not_fit_is_one_line(place, tmp_path, saved_graphs, capsys):
    for dataset, words, line in (
        ("ogbg-molhiv", "--eval svm", "`eval` svm does not fit ogbg-molhiv, which is scored on its own split; pass"),
        ("ogbg-molhiv", "--encoder gin", "encoder `gin` needs real numbers in `x`, but the `x` of ogbg-molhiv"),
        (saved_graphs(), "--encoder molecule_gine", "encoder `molecule_gine` needs `edge_attr`"),
    ):
        assert main(["--dataset", dataset, *words.split(), *where(place), "--out", str(tmp_path / "run")]) == 2
        assert f"graphcl: {line}" in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


def test_every_method_takes_it_with_its_encoder(place):
    assert make_config({"dataset": "ogbg-molhiv", "features": "degree"}).encoder["name"] == "gin"
    settings = {"dataset": "ogbg-molhiv", "encoder": {"name": "auto", "hidden_channels": 8}}
    facts = {"num_layers": 5, "readout": "mean", "jk": "last"}
    assert make_config(settings).encoder == {"name": "molecule_gine", "hidden_channels": 8, **facts}
    dataset = load_dataset("ogbg-molhiv", place / "root", place / "archives")
    for name in OF_GRAPHS:
        try_settings(make_config({**settings, "method": name}), dataset)


def test_a_sweep_over_sets_of_both_kinds(place):
    settings = {"data_root": str(place / "root"), "mirror": str(place / "archives"), "seeds": [0, 1], "epochs": 1}
    settings |= {"encoder.hidden_channels": 8, "encoder.num_layers": 2, "batch_size": 16}
    plan = make_plan({"settings": settings, "axes": {"dataset": ["ogbg-molhiv", "ogbg-molesol"], "lr": [0.001, 0.1]}})
    records = {cell.key: run_cell(cell.config) for cell in plan.tasks}
    assert {record["status"] for record in records.values()} == {"done"}
    table = make_table(plan, records, "ogb")
    for column, choose in (("ogbg-molhiv", max), ("ogbg-molesol", min)):
        means = {row: round(table.entries[row, column].mean, 2) for row in table.rows}
        for row, mean in means.items():
            assert table.is_best(row, column) == (mean == choose(means.values()))
    row = table.rows[0]
    error, before = table.entries[row, "ogbg-molesol"].mean, table.references[row, "ogbg-molesol"]["untrained"].mean
    assert table.gains[row, "ogbg-molesol"].mean == pytest.approx(before - error)
    text = to_markdown(table)
    assert "### ogb: ROC-AUC in %, RMSE" in text
    assert "in the metric's unit, a lower error is a gain (p):" in text
