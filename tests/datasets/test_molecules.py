"""Test molecules from SMILES: the coding against OGB's own, tables and their errors, splits, the commands."""

import gzip

import numpy as np
import pytest
import torch
from torch_geometric.utils import from_smiles

from graphcl import InputError, load_dataset, write_on_disk
from graphcl.models.molecule import ATOM_SIZES, BOND_SIZES, MoleculeGINE

pytest.importorskip("rdkit", reason="rdkit is not installed")
from rdkit import Chem

from graphcl.datasets.molecule_split import scaffold_groups, split_molecules
from graphcl.datasets.molecules import molecule_graphs

SMILES = [
    "C", "CCO", "*CC", "[235U]", "[Fe+9]", "[CH3]", "F/C=C/F", "F/C=C\\F", "C[C@H](N)O", "C[C@@H](N)O", "[Na+].[Cl-]",
    "[H][H]", "FP(F)(F)(F)F", "c1ccccc1", "[NH3]->[Cu]", "[2H]C", "[O-][N+](=O)c1cc[nH]c1", "C#N", "C1CC2CC1CC2",
]  # fmt: skip
ROWS = "id,smiles,active,logS,kind\n1,CCO,1,0.5,yes\n2,c1ccccc1,0,,no\n3,xx,1,2,yes\n4,CCN,1,3,no\n5,*CC,0,1,no\n"


def table(folder, text=ROWS, name="m.csv"):
    (folder / name).write_text(text)
    return folder / name


def parsed(smiles):
    return [Chem.MolFromSmiles(each) for each in smiles]


def test_the_coding_is_that_of_ogb():
    smiles2graph = pytest.importorskip("ogb.utils.mol").smiles2graph
    data, slices = molecule_graphs(parsed(SMILES))
    for number, each in enumerate(SMILES):
        expected = smiles2graph(each)
        atoms = slice(*slices["x"][number : number + 2])
        edges = slice(*slices["edge_index"][number : number + 2])
        np.testing.assert_array_equal(data.x[atoms], expected["node_feat"], each)
        np.testing.assert_array_equal(data.edge_index[:, edges], expected["edge_index"], each)
        np.testing.assert_array_equal(data.edge_attr[edges], expected["edge_feat"], each)


def test_every_category_has_a_row_in_the_tables_of_the_encoder():
    atropisomer = Chem.MolFromSmiles("Cc1cccc(I)c1-c1c(C)cccc1I |wU:7.7|")
    odd = Chem.MolFromSmiles("*" + "[Si](C)(C)" * 3 + "C")
    odd.GetAtomWithIdx(0).SetNumRadicalElectrons(9)
    data, _ = molecule_graphs([*parsed(SMILES), atropisomer, odd])
    for values, sizes in ((data.x, ATOM_SIZES), (data.edge_attr, BOND_SIZES)):
        assert (values >= 0).all()
        assert (values < torch.tensor(sizes)).all()
    MoleculeGINE(9, 3, hidden=4, layers=1)(data.x, data.edge_index, edge_attr=data.edge_attr)


def test_all_kinds_of_sources_give_the_same_graphs(tmp_path):
    import pandas as pd

    rows = ["CCO", "c1ccccc1"]
    (tmp_path / "m.csv.gz").write_bytes(gzip.compress(b"SMILES\nCCO\nc1ccccc1\n"))
    sources = {
        "smi": table(tmp_path, "CCO ethanol\n\nc1ccccc1\n", "m.smi"),
        "tsv": table(tmp_path, "n\tsmiles\n1\tCCO\n2\tc1ccccc1\n", "m.tsv"),
        "gz": str(tmp_path / "m.csv.gz"),
        "frame": pd.DataFrame({"smiles": rows}),
        "molecules": parsed(rows),
    }
    expected = load_dataset(rows)
    assert expected[1].smiles == "c1ccccc1"
    for name, source in sources.items():
        found = load_dataset(source)
        assert torch.equal(found.x, expected.x), name
        assert torch.equal(found.edge_attr, expected.edge_attr), name
        assert found.id.tolist() == [0, 1], name


def test_graphs_of_from_smiles_are_read_again_in_this_coding():
    graphs = [from_smiles(each) for each in ("CCO", "CCN")]
    for number, graph in enumerate(graphs):
        graph.y = torch.tensor([float(number)])
    found = load_dataset(graphs, smiles="smiles", target="y")
    assert torch.equal(found.x, load_dataset(["CCO", "CCN"]).x)
    assert not torch.equal(found.x, torch.cat([graph.x for graph in graphs]))
    assert found.y.tolist() == [0, 1]


def test_invalid_rows_are_named_and_left_out(tmp_path, capfd):
    with pytest.warns(UserWarning, match=r"^m: 1 row holds no valid molecule: line 4 'xx'; left out\.$"):
        found = load_dataset(table(tmp_path), target="active")
    assert (found.id.tolist(), found.y.tolist()) == ([0, 1, 3, 4], [1, 0, 1, 0])
    assert capfd.readouterr().err == ""  # nothing from RDKit


def test_several_targets_keep_missing_cells(tmp_path):
    text = ROWS.replace("3,xx,1,2,yes\n", "")
    found = load_dataset(table(tmp_path, text), target=["active", "logS"])
    assert found.y.isnan().tolist() == [[False, False], [False, True], [False, False], [False, False]]
    assert not found.scored


def test_texts_are_classes_in_alphabetical_order(tmp_path, capsys):
    found = load_dataset(table(tmp_path, ROWS.replace("xx", "CC")), target="kind")
    assert found.y.tolist() == [1, 0, 1, 0, 0]
    assert capsys.readouterr().err == "graphcl: classes of kind: 0 = no, 1 = yes\n"


def test_a_large_molecule_is_read():
    assert load_dataset(["C" * 10_000, "C"])[0].num_nodes == 10_000


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("", {}, "is empty"),
        ("smiles\n", {}, "holds no molecule"),
        ("a,b\nC,C\n", {}, "has no column `smiles`; name one by `smiles`. Columns: a, b."),
        (ROWS, {"smiles": "smile"}, "has no column 'smile'; did you mean smiles? Columns: active, id, kind"),
        (ROWS, {"target": "logP"}, "has no column 'logP'; did you mean logS"),
        (
            "smiles\nxx\n\nyy\n",
            {},
            "2 of 2 rows hold no valid molecule: line 2 'xx', line 4 'yy'; no molecule",
        ),
        (ROWS, {"invalid": "stop"}, "1 row holds no valid molecule: line 4 'xx'; correct the row"),
        (ROWS, {"invalid": "drop"}, "`invalid` must be skip or stop, got 'drop'."),
        ("smiles,y\nC,1\nCC,low\n", {"target": "y"}, "holds numbers, but 'low' in line 3; leave missing cells empty."),
        ("smiles,y\nC,a\nCC,a\n", {"target": "y"}, "holds only 'a'; two classes are needed."),
        (ROWS, {"target": ["kind", "active"]}, "holds strings such as 'no'"),
        (ROWS, {"split": "scaffold"}, "`split` scaffold needs targets to score"),
        (ROWS, {"metric": "rmse"}, "`metric` rmse scores a split; pass `split` too"),
        (ROWS, {"target": "active", "split": "random"}, "leaves the part valid empty"),
        (
            ROWS,
            {"target": "logS", "split": "random", "metric": "ap"},
            "needs targets of 0 or 1, but logS holds other",
        ),
        (ROWS, {"target": "logS", "split": "random", "metric": "acc"}, "needs targets of whole numbers from 0"),
        (ROWS, {"target": "logS", "split": "time"}, "`split` must be one of random, stratified, scaffold, got 'time'."),
        ("smiles\nC\n", {}, "m holds 1 graph; contrasting graphs needs at least two."),
    ],
)
def test_an_unusable_table_is_refused_in_one_line(tmp_path, text, arguments, message):
    with pytest.raises(InputError) as caught:
        load_dataset(table(tmp_path, text), **arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_are_refused_where_there_are_none(tmp_path):
    with pytest.raises(InputError, match="a list has none; give a pandas DataFrame"):
        load_dataset(["C", "CC"], target="y")
    with pytest.raises(InputError, match="its lines are SMILES"):
        load_dataset(table(tmp_path, "C\nCC\n", "m.smi"), target="y")
    with pytest.raises(InputError, match=r"`target` 'y' is for molecules: \.csv"):
        load_dataset("synthetic", target="y")
    with pytest.raises(InputError, match="cannot read"):
        load_dataset(tmp_path / "missing.csv")


def test_packed_molecules_are_the_loaded_ones(tmp_path, monkeypatch):
    monkeypatch.setattr("graphcl.datasets.smiles.CHUNK", 2)
    file = table(tmp_path, ROWS.replace("xx", "CC"))
    loaded = load_dataset(file, target="active")
    packed = write_on_disk(file, tmp_path / "packed", target="active")
    for key in ("x", "edge_index", "edge_attr", "y", "id"):
        assert torch.equal(packed._data[key], loaded._data[key]), key
    assert torch.equal(packed.classes, loaded.classes)
    several = write_on_disk(file, tmp_path / "several", target=["active", "logS"])
    assert torch.equal(several.y.isnan(), load_dataset(file, target=["active", "logS"]).y.isnan())


def test_a_scaffold_stays_in_one_part():
    rings = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "c1ccoc1", "C1CC1"]
    smiles = [ring + "C" * number for ring in rings for number in range(8)]
    groups = scaffold_groups(smiles)
    assert sorted(map(sorted, groups)) == [list(range(start, start + 8)) for start in range(0, 40, 8)]
    parts = split_molecules(smiles, torch.zeros(40, 1), "random")
    assert {part: len(graphs) for part, graphs in parts.items()} == {"train": 32, "valid": 4, "test": 4}
    smiles = [*smiles[:33], *smiles[8:12], "C1CCC1", "C1CCCC1", "CC", "C"]
    found = split_molecules(smiles, torch.zeros(len(smiles), 1), "scaffold")
    of = {graph: part for part, graphs in found.items() for graph in graphs.tolist()}
    assert sorted(of) == list(range(len(smiles)))
    assert all(len({of[graph] for graph in group}) == 1 for group in scaffold_groups(smiles))
    sizes = [len(group) for group in scaffold_groups(smiles)]
    assert sizes == sorted(sizes, reverse=True)


def test_a_stratified_split_balances_classes_and_values():
    generator = torch.Generator().manual_seed(0)
    for y in ((torch.rand(200, 1, generator=generator) < 0.2).float(), torch.rand(200, 1, generator=generator)):
        parts = split_molecules(["C"] * 200, y, "stratified")
        assert [len(parts[part]) for part in ("train", "valid", "test")] == [160, 20, 20]
        assert torch.cat(list(parts.values())).unique().numel() == 200
        assert all(abs(y[graphs].mean() - y.mean()) < 0.06 for graphs in parts.values())
    with pytest.raises(InputError, match="takes one target, got 2"):
        split_molecules(["C"] * 200, torch.zeros(200, 2), "stratified")
