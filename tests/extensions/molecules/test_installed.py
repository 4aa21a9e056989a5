"""Test the encoders that are installed with graphcl: the file, its names in every command, and what it knows."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphcl import GraphCL, ResidentLoader, embed, load_dataset, load_encoder
from graphcl.commands.embed import main
from graphcl.extensions.molecules import PRETRAINED
from graphcl.models.saved import installed_encoders
from tests.datasets.graphs import one_line

pytest.importorskip("rdkit", reason="the extra `molecules` is not installed")
SMILES = ["CCO", "c1ccccc1", "CC(=O)Oc1ccccc1C(=O)O", "[Na+].[Cl-]", "C[C@H](N)C(=O)O", "C/C=C/C"]


def test_the_wheel_holds_every_installed_encoder():
    project = Path(__file__).parents[3].joinpath("pyproject.toml").read_text()
    assert '"graphcl.extensions.molecules" = ["pretrained/*.pt"]' in project
    assert PRETRAINED.stat().st_size < 10e6
    assert [*installed_encoders()] == ["molecules"]


def test_every_way_to_the_encoder_gives_the_same_embeddings(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("molecules").mkdir()  # which does not hide the encoder
    Path("table.csv").write_text("\n".join(["smiles", *SMILES]))
    main(["molecules", "--dataset", "table.csv", "--out", "h.npz"])
    assert "768 numbers per graph" in capsys.readouterr().out
    found = np.load("h.npz")["h"]
    encoder, description = load_encoder("molecules")
    assert (description.dataset, description.settings["method"]["name"]) == ("chemicals", "clip")
    assert np.array_equal(found, embed(encoder, ResidentLoader(load_dataset(SMILES), 8))[0].numpy())
    assert np.array_equal(found, GraphCL.pretrained("molecules").transform(SMILES))
    assert np.isfinite(found).all()


def test_a_run_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("molecules").mkdir()
    Path("molecules/config.yaml").touch()
    one_line(lambda: load_encoder("molecules"), "also a run's folder; write ./molecules for the folder")
    for folder in ("./molecules", Path("molecules")):
        one_line(lambda: load_encoder(folder), "no seed of molecules is finished")  # noqa: B023, called at once
    one_line(lambda: GraphCL.pretrained("atoms"), "no encoder 'atoms' is installed; choose from: molecules.")
    one_line(lambda: load_encoder("atoms"), "or the name of an installed encoder: molecules")


def test_related_molecules_are_neighbours():
    """Each second molecule is the nearest one of the molecule before it."""
    pairs = ["CCO", "CCCO", "c1ccccc1", "Cc1ccccc1", "CC(=O)O", "CCC(=O)O", "CCN(CC)CC", "CCCN(CC)CC"]
    h = torch.from_numpy(GraphCL.pretrained("molecules").transform(pairs))
    distances = torch.cdist(h, h).fill_diagonal_(torch.inf)
    assert distances.argmin(dim=1)[::2].tolist() == [1, 3, 5, 7]
