"""Test molecules on the command line: a run with reference rows, its split, embeddings and errors."""

import json

import numpy as np
import pytest
import torch

from graphcl.__main__ import main
from graphcl.extensions.molecules.encoder import side_by_side

pytest.importorskip("rdkit", reason="rdkit is not installed")

LINE = "--encoder.hidden_channels 8 --encoder.num_layers 2 --batch-size 16 --epochs 1 --seeds 0 --report false"
SMALL = LINE.split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with `m.csv`: hydrocarbons (0) and alcohols (1) on ten rings, and an invalid last row."""
    place = tmp_path_factory.mktemp("molecules")
    rings = [f"C1{'C' * size}C1" for size in range(1, 7)] + ["c1ccccc1", "c1ccncc1", "c1ccoc1", "c1ccsc1"]
    rows = [f"{ring}{'C' * size}{'O' * (size % 2)},{size % 2},{size / 2}" for ring in rings for size in range(1, 6)]
    (place / "m.csv").write_text("\n".join(["smiles,alcohol,size", *rows, "C((,1,2", ""]))
    return place


def test_a_run_scores_classical_rows_on_the_split_and_its_encoder_embeds(folder, capsys):
    file, out = str(folder / "m.csv"), folder / "run"
    words = ["--dataset", file, "--target", "alcohol", "--split", "scaffold", "--eval", "ogb", "ogb_forest"]
    assert main(["run", *words, *SMALL, "--out", str(out)]) == 0
    result = json.loads((out / "result.json").read_text())
    assert result["config"]["encoder"]["name"] == "molecule_gine"
    assert result["split"] == {"train": 40, "valid": 5, "test": 5}
    rows = {"untrained", "ecfp4", "ecfp4_counts", "descriptors", "descriptors+trained", "trained"}
    for scores in (result["scores"]["ogb"], result["scores"]["ogb_forest"]):
        assert scores["metric"] == "rocauc"
        assert rows <= scores.keys()
        assert scores["best_reference"] not in ("trained", "descriptors+trained")
    printed = capsys.readouterr().out
    assert "ECFP4 fingerprints" in printed
    assert f"invalid rows: 1, in {out / 'invalid.csv'}" in printed
    assert (out / "invalid.csv").read_text() == "row,line,smiles,id,reason\n50,52,C((,50,no valid molecule\n"

    arrays = folder / "h.npz"
    assert main(["embed", str(out), "--dataset", file, "--out", str(arrays)]) == 0
    assert (folder / "h.npz.invalid.csv").read_text() == (out / "invalid.csv").read_text()
    kept = np.load(arrays)
    assert (kept["h"].shape, kept["id"].tolist()) == ((50, 8), list(range(50)))


def test_columns_side_by_side_are_standardised():
    h = side_by_side(torch.tensor([[1e6, 7], [3e6, 7]]), torch.tensor([[-1e-3], [1e-3]]))
    torch.testing.assert_close(h, torch.tensor([[-1, 0, -1], [1, 0, 1]], dtype=torch.float64))


def test_classes_without_a_split_are_scored_on_folds(folder):
    out = folder / "folds"
    words = ["--target", "alcohol", "--eval", "knn", *SMALL, "--out", str(out)]
    assert main(["run", "--dataset", str(folder / "m.csv"), *words]) == 0
    assert json.loads((out / "result.json").read_text())["folds"] == 10


def test_a_mistake_is_one_line_and_writes_nothing(folder, capsys):
    out = folder / "none"
    for words, message in (
        ("--target size", "`target` size holds several tasks, numbers or missing cells, which"),
        ("--target sise", "has no columns 'sise'; did you mean size or smiles?"),
        ("--target smiles", "`target` 'smiles' is the column of the SMILES; name a column of values"),
        ("--target size,size", "`target` names a column twice, got size, size; name each once."),
        ("--target alcohol --invalid stop", "atoms: line 52 'C(('; correct"),
        ("--encoder gin", "encoder molecule_gine, or features degree"),
    ):
        assert main(["run", "--dataset", str(folder / "m.csv"), *words.split(), *SMALL, "--out", str(out)]) == 2
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("graphcl: ")]
        (line,) = (line for line in lines if not line.startswith("graphcl: warning: "))
        assert message in line
        assert not out.exists()
