"""Test molecules as a chemist passes them: columns with gaps, one molecule, salts, duplicates."""

import numpy as np
import pytest
import torch

from graphcl import GraphCL, load_dataset, write_on_disk
from graphcl.__main__ import main
from graphcl.models import saved
from tests.datasets.graphs import one_line

pytest.importorskip("pandas", reason="pandas is not installed")
pytest.importorskip("rdkit", reason="rdkit is not installed")
import pandas as pd
from rdkit import Chem
from rdkit.Chem.EnumerateStereoisomers import EnumerateStereoisomers, StereoEnumerationOptions
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from graphcl.extensions.molecules.source import duplicates

pytestmark = pytest.mark.filterwarnings("ignore:.*(hold no valid molecule|have no id)")  # expected

BAD = ["CCO", "C1CC", "CCN"]
SMALL = {"encoder": {"name": "molecule_gine", "hidden_channels": 8, "num_layers": 2}, "epochs": 1, "batch_size": 4}


@pytest.fixture(scope="module")
def pretrained():
    return GraphCL.pretrained("molecules")


def test_every_kind_of_column_and_one_molecule_are_embedded(pretrained, tmp_path):
    rows = ["CCO", "CCN", "CCC"]
    expected = pretrained.transform(rows)
    column = pd.Series(rows, index=[5, 3, 9])
    for source in (column, column.astype(object), np.array(rows), np.array(rows, object), tuple(rows)):
        np.testing.assert_array_equal(pretrained.transform(source), expected)
    file = tmp_path / "one.csv"
    file.write_text("smiles\nCCO\n")
    molecule = Chem.MolFromSmiles("CCO")
    for source in ("CCO", molecule, [molecule], ["CCO"], pd.DataFrame({"smiles": ["CCO"]}), column[:1], str(file)):
        np.testing.assert_allclose(pretrained.transform(source), expected[:1], atol=1e-5)
    assert len(load_dataset(molecule)) == 1
    degrees = GraphCL(features="degree", epochs=1, batch_size=2).fit(rows)
    np.testing.assert_allclose(degrees.transform(pd.Series(["CCO"])), degrees.transform(rows)[:1], atol=1e-5)
    one_line(lambda: pretrained.transform("NCI19"), "unknown data set 'NCI19'")
    one_line(lambda: GraphCL(**SMALL).fit(["CCO"]), "own holds 1 graph; contrasting graphs needs at least two.")


def stereoisomers():
    """Return stereoisomers of small molecules: chains, rings, cages, salts, centres of N, P and S, double bonds."""
    skeletons = [
        "CC(N)C(=O)O", "OC(C(O)=O)C(O)C(O)=O", "CC1CCC(C)CC1", "CC1CC(C)CC(C)C1", "CC=CC(O)C=CC", "CC1C(C)C(C)C1C",
        "[NH3+]C(C)C([O-])=O", "[Na+].CC(O)C([O-])=O", "C[N+]1(CC)CCC(C)CC1.[Cl-]", "CS(=O)CC(O)CS(C)=O",
        "CC(F)P(C)(=O)OC", "OCC(O)C(O)C(O)CO", "CC12CCC(CC1)C2(C)C", "CC=C1CC(C)C1", "OC1CCC(CC1)C1CCC(O)CC1",
        "CC(=NO)C(C)N=NC", "CC1CC(=C2CC(C)C2)C1", "Cl.NC1CC(O)C(Cc2ccccc2)O1",
    ]  # fmt: skip
    options = StereoEnumerationOptions(maxIsomers=4, unique=True, rand=0)
    found = [each for text in skeletons for each in EnumerateStereoisomers(Chem.MolFromSmiles(text), options)]
    # RDKit writes some of the molecules that it enumerates as their mirror images
    return [Chem.MolFromSmiles(Chem.MolToSmiles(each)) for each in found]


def test_an_embedding_does_not_depend_on_how_the_molecule_is_written(pretrained):
    molecules = stereoisomers()
    rng = np.random.default_rng(0)
    expected = pretrained.transform([Chem.MolToSmiles(each) for each in molecules])
    scale = np.abs(expected).max(axis=1, keepdims=True)
    assert len(np.unique((expected / scale).round(3), axis=0)) == len(molecules)
    for _ in range(3):
        written = [Chem.MolToSmiles(each, doRandom=True) for each in molecules]
        renumbered = [Chem.RenumberAtoms(each, rng.permutation(each.GetNumAtoms()).tolist()) for each in molecules]
        for source in (written, renumbered):
            np.testing.assert_allclose(pretrained.transform(source) / scale, expected / scale, atol=1e-5)


def test_an_invalid_row_stops_or_becomes_nan_in_its_place(pretrained):
    one_line(lambda: pretrained.transform(BAD), "1 of 3 rows hold", "row 1 'C1CC'; ", 'or set `invalid` to "skip".')
    skips = GraphCL.pretrained("molecules", invalid="skip")
    for rows, valid in ((BAD, [0, 2]), ([None, "CCO", "C1CC", "CCN"], [1, 3]), ([float("nan"), "CCO", "CCN"], [1, 2])):
        for source in (rows, pd.Series(rows, dtype=object), pd.DataFrame({"smiles": rows})):
            with pytest.warns(UserWarning, match=f"of {len(rows)} rows hold .*; skipped"):
                from_python = load_dataset(source)
            h = skips.transform(source)
            assert np.flatnonzero(~np.isnan(h).any(axis=1)).tolist() == valid
            assert h.shape == (len(rows), 768)
            np.testing.assert_array_equal(h[valid], pretrained.transform(["CCO", "CCN"]))
            assert skips.transform(from_python).shape == (2, 768)  # a data set has no row of the invalid molecule


@pytest.mark.filterwarnings("ignore:own")
def test_training_leaves_invalid_rows_and_their_groups_out():
    rows, groups = [*BAD, "CCCC", "CCCN"], [0, 7, 0, 1, 1]
    one_line(lambda: GraphCL(**SMALL).fit(rows), 'or set `invalid` to "skip"')
    fitted = GraphCL(invalid="skip", **SMALL).fit(rows, groups=groups)
    assert np.isnan(fitted.transform(rows)).any(axis=1).tolist() == [False, True, False, False, False]
    assert GraphCL(epochs=1).fit(["CCO", "CCN"]).description_.encoder.name == "molecule_gine"


def test_salts_are_standardised_and_counted_with_duplicates_and_gaps(tmp_path, capfd):
    table = pd.DataFrame(
        {"smiles": ["CC(=O)[O-].[Na+]", "OCC", "CCO", "CC(=O)O", "C[N+](C)(C)C"], "y": [1, None, 2, 3, 4]}
    )
    dataset = load_dataset(table, target="y", standardise=True)
    assert dataset.smiles == ["CC(=O)O", "OCC", "CCO", "CC(=O)O", "C[N+](C)(C)C"]
    assert torch.equal(dataset[0].x, dataset[3].x)
    counts = "2 of 5 molecules repeat an earlier one, 1 of 5 molecules changed by `standardise`, 1 of 5 targets missing"
    assert capfd.readouterr().err == f"graphcl: own: {counts}\n"
    load_dataset(pd.DataFrame({"smiles": ["CCO", "CCN"]}))
    assert capfd.readouterr().err == ""
    h = GraphCL.pretrained("molecules", standardise=True).transform(["CC(=O)[O-].[Na+]", "CC(=O)O"])
    np.testing.assert_allclose(h[0], h[1], atol=1e-6)
    found = load_dataset(["[CH-]1C=CC=C1.[Na+]", "C[n+]1ccccc1.[Cl-]", "c1ccccc1"], standardise=True)
    assert found.smiles == ["C1=CCC=C1", "C[n+]1ccccc1", "c1ccccc1"]  # the ring of the first loses its aromaticity
    (tmp_path / "m.smi").write_text("CC(=O)[O-].[Na+]\nxx\nCC(=O)O\n")
    with pytest.warns(UserWarning, match="1 of 3 rows"):
        packed = write_on_disk(tmp_path / "m.smi", tmp_path / "packed", standardise=True)
    assert torch.equal(packed[0].x, packed[1].x)
    assert capfd.readouterr().err == "graphcl: m: 1 of 2 molecules changed by `standardise`\n"
    assert (tmp_path / "packed" / "invalid.csv").read_text().splitlines()[1:] == ["1,2,xx,1,no valid molecule"]


def test_an_encoder_remembers_that_its_molecules_were_standardised(tmp_path):
    fitted = GraphCL(standardise=True, **SMALL).fit(["CCO", "CCN", "CC(=O)[O-].[Na+]", "CCCC"])
    fitted.save(tmp_path / "encoder.pt")
    (tmp_path / "salt.smi").write_text("CC(=O)[O-].[Na+]\nCC(=O)O\n")
    words = ["embed", str(tmp_path / "encoder.pt"), "--dataset", str(tmp_path / "salt.smi")]
    assert main([*words, "--out", str(tmp_path / "h.npz")]) == 0
    loaded = GraphCL.load(tmp_path / "encoder.pt")
    assert loaded.standardise
    for h in (np.load(tmp_path / "h.npz")["h"], loaded.transform(["CC(=O)[O-].[Na+]", "CC(=O)O"])):
        np.testing.assert_allclose(h[0], h[1], atol=1e-5)


def test_duplicates_are_those_of_canonical_smiles():
    different = ["C1CCC2CCCCC2C1", "C1CCC(C1)C1CCCC1", "F/C=C/F", "F/C=C\\F", "[13CH4]", "C", "CC(C)C", "CCCC"]
    written = [Chem.MolFromSmiles(each) for each in different]
    random = [Chem.MolToSmiles(each, doRandom=True) for each in written for _ in range(3)]
    for smiles, count in ((different, 0), (different + random, len(random))):
        dataset = load_dataset(smiles)
        assert duplicates((dataset._data, dataset.slices), smiles) == count


def test_the_split_of_a_table_is_an_attribute():
    table = pd.DataFrame({"smiles": ["C" * number for number in range(1, 41)], "y": range(40)})
    split = load_dataset(table, target="y", split="random", metric="rmse").split
    assert [len(split[part]) for part in ("train", "valid", "test")] == [32, 4, 4]
    assert torch.cat([*split.values()]).sort().values.tolist() == [*range(40)]
    assert load_dataset(table).split is None


def test_the_installed_encoder_is_read_once_and_copies_are_independent(pretrained, monkeypatch):
    expected, threads = pretrained.transform(["CCO"]), torch.get_num_threads()
    monkeypatch.setattr(saved, "read_torch_file", lambda *_: pytest.fail("the file is read again"))
    changed = GraphCL.pretrained("molecules")
    with torch.no_grad():
        for weight in changed.model_.parameters():
            weight.zero_()
    assert not np.array_equal(changed.transform(["CCO"]), expected)
    np.testing.assert_array_equal(GraphCL.pretrained("molecules").transform(["CCO"]), expected)
    assert torch.get_num_threads() == threads


def test_a_split_keeps_the_names_of_targets_and_classes():
    smiles = ["C" * number for number in range(1, 41)]
    table = pd.DataFrame({"smiles": smiles, "toxic": ["no", "yes"] * 20, "a": range(40), "b": [0, 1] * 20})
    dataset = load_dataset(table, target="toxic", split="random")
    assert (dataset.benchmark.tasks, dataset.benchmark.classes) == (("toxic",), ("no", "yes"))
    assert dataset.y[:2, 0].tolist() == [0, 1]
    assert load_dataset(table, target="toxic").classes.tolist() == ["no", "yes"]
    assert load_dataset(table, target=["a", "b"], split="random", metric="r2").benchmark.tasks == ("a", "b")


def test_the_installed_encoder_is_a_step_of_pipelines_and_tables(pretrained):
    table = pd.DataFrame({"smiles": ["CCO", "CCN", "CCC", "CCCC"] * 3, "t": range(12)}, index=range(5, 17))
    y, h = np.arange(12) % 4 > 1, pretrained.transform(table["smiles"])
    pipeline = make_pipeline(GraphCL.pretrained("molecules"), StandardScaler(), LogisticRegression())
    assert (pipeline.fit(table["smiles"], y).predict(["CCO", "CCCC"]) == [False, True]).all()
    assert cross_val_score(pipeline, table["smiles"], y, cv=2).tolist() == [1, 1]
    for column in ("smiles", ["smiles"], ["smiles", "t"]):
        for output in ("default", "pandas"):
            steps = [("m", GraphCL.pretrained("molecules"), column), ("n", StandardScaler(), ["t"])]
            both = ColumnTransformer(steps).set_output(transform=output)
            found = both.fit_transform(table)
            np.testing.assert_allclose(np.asarray(found)[:, :-1], h, atol=1e-5)
            assert [*both.get_feature_names_out()[[0, 767, 768]]] == ["m__graphcl0", "m__graphcl767", "n__t"]
        assert [*found.index] == [*table.index]


def test_fit_after_another_method_is_set_trains_the_installed_encoder():
    changed = GraphCL.pretrained("molecules").set_params(method="two_views", loss="infonce", steps=1, batch_size=2)
    before = changed.model_
    changed.set_params(first="node_drop", second="node_drop")
    assert changed.fit(["CCO", "CCN"]).model_ is not before
