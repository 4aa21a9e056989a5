"""Test molecules from SMILES: the coding against OGB's own, tables and their errors, splits, the commands."""

import filecmp
import gzip
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch_geometric.utils import from_smiles

from graphcl import InputError, load_dataset, write_on_disk
from graphcl.extensions.molecules.encoder import ATOM_SIZES, BOND_SIZES
from tests.datasets.graphs import one_line

pytest.importorskip("rdkit", reason="rdkit is not installed")
from rdkit import Chem
from rdkit.Chem import Descriptors, rdFingerprintGenerator

from graphcl.extensions.molecules import parse
from graphcl.extensions.molecules.encoder import descriptors, ecfp4, ecfp4_counts
from graphcl.extensions.molecules.parse import molecule_graphs
from graphcl.extensions.molecules.source import scaffold_groups, split_molecules

pytestmark = pytest.mark.filterwarnings("ignore:.*(hold no valid molecule|have no id)")  # expected

SMILES = [
    "C", "CCO", "*CC", "[235U]", "[Fe+9]", "[CH3]", "F/C=C/F", "F/C=C\\F", "C[C@H](N)O", "C[C@@H](N)O", "[Na+].[Cl-]",
    "[H][H]", "FP(F)(F)(F)F", "c1ccccc1", "[NH3]->[Cu]", "[O-][N+](=O)c1cc[nH]c1", "C#N", "C1CC2CC1CC2",
]  # fmt: skip
ROWS = "id,smiles,active,logS,kind\n1,CCO,1,0.5,yes\n2,c1ccccc1,0,,no\n3,xx,1,2,yes\n4,CCN,1,3,no\n5,*CC,0,1,no\n"


def table(folder, text=ROWS, name="m.csv"):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / name


def parsed(smiles):
    return [Chem.MolFromSmiles(each) for each in smiles]


def test_the_coding_is_that_of_ogb_but_for_chirality_and_within_the_tables_of_the_encoder():
    smiles2graph = pytest.importorskip("ogb.utils.mol").smiles2graph
    for found, each in zip(load_dataset(SMILES), SMILES, strict=True):
        expected = smiles2graph(each)
        np.testing.assert_array_equal(np.delete(found.x, 1, 1), np.delete(expected["node_feat"], 1, 1), each)
        np.testing.assert_array_equal(found.edge_index, expected["edge_index"], each)
        np.testing.assert_array_equal(found.edge_attr, expected["edge_feat"], each)
    atropisomer = Chem.MolFromSmiles("Cc1cccc(I)c1-c1c(C)cccc1I |wU:7.7|")
    odd = Chem.MolFromSmiles("*" + "[Si](C)(C)" * 3 + "C")
    odd.GetAtomWithIdx(0).SetNumRadicalElectrons(9)
    data, _ = molecule_graphs((each, "|") for each in [*parsed(SMILES), atropisomer, odd])
    for values, sizes in ((data.x, ATOM_SIZES), (data.edge_attr, BOND_SIZES)):
        assert (values >= 0).all()
        assert (values < torch.tensor(sizes)).all()


CIP = [
    ("N[C@@H](C)C(=O)O", "S", ""),  # L-alanine
    ("OC[C@@H](O)C=O", "R", ""),  # D-glyceraldehyde
    ("N[C@@H](CS)C(=O)O", "R", ""),  # L-cysteine
    ("O[C@@H](C(=O)O)[C@@H](O)C(=O)O", "RR", ""),  # L-tartaric acid
    ("O[C@H](C(=O)O)[C@@H](O)C(=O)O", "RS", ""),  # meso-tartaric acid
    ("C[C@H]1CC[C@@H](C)CC1", "ss", ""),  # cis-1,4-dimethylcyclohexane
    ("C[C@H]1CC[C@H](C)CC1", "rr", ""),  # trans
    ("OC[C@H](O)[C@@H](O)[C@H](O)CO", "RSr", ""),  # ribitol, or xylitol
    ("C/C=C/C", "", "E"),
    ("OC(=O)/C=C\\C(=O)O", "", "Z"),  # maleic acid
    ("C/C=C\\[C@H](O)/C=C/C", "R", "EZ"),
    ("C[S@](=O)CC", "S", ""),
    ("C[C@H](O)[13CH3]", "", ""),  # a centre by isotopes only
    ("FC=CF |c:1|", "", "Z"),
]
"""SMILES, and the CIP labels of its atoms and of its double bonds, sorted."""


def labels(graph):
    atoms, bonds = (
        "".join(sorted(table[each] for each in column.tolist() if each))
        for table, column in (("-RSrs", graph.x[:, 1]), ("-ZEze", graph.edge_attr[::2, 1]))
    )
    return atoms, bonds


def test_stereochemistry_is_in_cip_labels():
    for found, (smiles, atoms, bonds) in zip(load_dataset([each for each, *_ in CIP]), CIP, strict=True):
        assert labels(found) == (atoms, bonds), smiles


def test_a_molecule_that_needs_too_many_comparisons_has_no_labels(monkeypatch):
    spiro = ["C[C@H]1CC2(C1)C[C@H](C)C2", "C[C@H]1CC2(C1)C[C@@H](C)C2"]
    monkeypatch.setattr("graphcl.extensions.molecules.parse.MAX_COMPARISONS", 1000)
    assert [labels(each) for each in load_dataset(["C[C@H](N)O", *spiro])] == [("R", ""), ("", ""), ("", "")]


def test_hydrogens_are_implicit_however_they_are_written():
    pairs = [
        ("[2H]C([2H])[3H]", "C"), ("[H]OCC", "CCO"), ("[2H]n1cccc1", "c1cc[nH]c1"), ("C[C@@H]([2H])O", "CCO"),
        ("[2H][C@](F)(Cl)Br", "[C@H](F)(Cl)Br"), ("F/C([2H])=C/F", "F/C=C/F"), ("[2H][2H]", "[H][H]"),
    ]  # fmt: skip
    for written, plain in pairs:
        molecule = Chem.AddHs(Chem.MolFromSmiles(plain))
        found = load_dataset([written, plain]), load_dataset([molecule, molecule])
        (first, expected), (explicit, _) = ([tuple(sorted(map(tuple, g.x.tolist()))) for g in each] for each in found)
        assert first == expected, written
        assert explicit == expected, plain


def test_the_short_way_of_common_smiles_gives_the_same_graphs():
    odd = [
        "O=N(=O)C", "OCl(=O)(=O)=O", "N->O", "[NH3][Pt]([NH3])(Cl)Cl", "C$C", "C~C", "CC(N)O |wU:1.0|", "FC=CF |c:1|",
        "c1ccc2c(c1)c1cccc3cccc2c31", "[Se]1C=CC=C1", "CC |^1:0|",
    ]  # fmt: skip
    whole, _ = molecule_graphs((each, "|") for each in parsed(SMILES + odd))
    found = load_dataset(SMILES + odd)
    for key in ("x", "edge_index", "edge_attr"):
        assert torch.equal(found._data[key], whole[key]), key


def test_all_kinds_of_sources_give_the_same_graphs(tmp_path):
    import pandas as pd

    rows = ["CCO", "c1ccccc1"]
    graphs = [from_smiles(each) for each in rows]
    expected = load_dataset(rows)
    assert expected[1].smiles == "c1ccccc1"
    assert not torch.equal(expected.x, torch.cat([graph.x for graph in graphs]))  # PyG's own coding
    assert torch.equal(load_dataset(graphs, smiles="smiles").x, expected.x)
    for source in (
        table(tmp_path, "CCO\n\nc1ccccc1\n", "m.smi"),
        table(tmp_path, "n\tsmiles\n1\tCCO\n2\tc1ccccc1\n", "m.tsv"),
        str(table(tmp_path, gzip.compress(b"n\tSMILES\n1\tCCO\n2\tc1ccccc1\n"), "m.smi.TSV.GZ")),
        table(tmp_path, "\ufeff\r\nsmiles\r\nCCO\r\nc1ccccc1\r\n", "w.CSV"),
        table(tmp_path, "n,m;smiles;k\n1;CCO;\n2;c1ccccc1;a,b\n", "semicolons.csv"),
        table(tmp_path, "n\tsmiles\n1\tCCO\n2\tc1ccccc1\n", "tabs.csv"),
        pd.DataFrame({"smiles": rows}),
        parsed(rows),
    ):
        found = load_dataset(source)
        assert torch.equal(found.x, expected.x), source
        assert torch.equal(found.edge_attr, expected.edge_attr), source
        assert found.id.tolist() == [0, 1], source


def test_every_kind_of_frame_gives_the_same_table(tmp_path):
    import pandas as pd

    arrow, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    parquet = pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("openpyxl")
    columns = {"smiles": ["CCO", "CCN", "CCC"], "id": [2**53, 2**53 + 1, None], "y": [0.5, None, 2.5]}
    parquet.write_table(arrow.table(columns), tmp_path / "m.parquet")
    texts = pd.DataFrame({**columns, "id": [str(2**53), str(2**53 + 1), None]})
    texts.to_excel(tmp_path / "m.xlsx", index=False)
    for source in (
        arrow.table(columns),
        arrow.RecordBatch.from_pydict(columns),
        polars.DataFrame(columns),
        texts.astype({"id": "Int64"}),
        tmp_path / "m.parquet",
        str(tmp_path / "m.xlsx"),
    ):
        found = load_dataset(source, target="y", group="id")
        assert found.smiles == columns["smiles"], source
        assert found.groups.tolist() == [0, 1, -1], source  # 2^53 + 1 is not a number of float64
        assert found.y.isnan().flatten().tolist() == [False, True, False], source
    one_line(lambda: load_dataset(polars.DataFrame({"a": ["C"]})), "the table has no columns 'smiles'", "Columns: a")
    for kind in (polars.Series, arrow.array, lambda rows: arrow.chunked_array([rows])):
        assert load_dataset(kind(columns["smiles"])).smiles == columns["smiles"], kind
    for name in ("m.parquet", "m.xlsx"):
        damaged = table(tmp_path, "smiles\nC\n", name)
        one_line(lambda damaged=damaged: load_dataset(damaged), f"cannot read '{damaged}': ")


def test_invalid_rows_are_left_out_and_texts_are_classes(tmp_path, capfd):
    says = r"^m: 1 of 5 rows hold no valid molecule of .* atoms: line 4 'xx'; skipped\.$"
    with pytest.warns(UserWarning, match=says):
        found = load_dataset(table(tmp_path, ROWS.replace("kind", "a kind")), target="a kind")
    assert (found.id.tolist(), found.y.tolist()) == ([1, 2, 4, 5], [1, 0, 0, 0])
    assert found.invalid == [(2, 4, "xx", 3, "no valid molecule")]
    assert capfd.readouterr().err == "graphcl: classes of a kind: 0 = no, 1 = yes\n"  # nothing from RDKit


def test_targets_are_read_as_they_stand(tmp_path):
    for cells in ((20000001, 20000002, 20000003), (-(2**53) + 1, 0, 2**53 - 1), ("1.0", "True", 3)):
        text = "smiles,y\n" + "".join(f"{'C' * (row + 1)},{cell}\n" for row, cell in enumerate(cells))
        found = load_dataset(table(tmp_path, text), target="y")
        assert found.classes[found.y].tolist() == [1 if cell == "True" else int(float(cell)) for cell in cells]
    for cell in ("", "NaT", "<NA>", "n/a", "None"):
        y = load_dataset(table(tmp_path, f"smiles,y\nC,a\nCC,{cell}\nCCC,b\n"), target="y").y
        assert (y.isnan().flatten().tolist(), y[[0, 2]].tolist()) == ([False, True, False], [[0], [1]]), cell


def test_unsanitised_molecules_become_the_graphs_of_their_smiles():
    expected = load_dataset(SMILES)
    molecules = [Chem.MolFromSmiles(each, sanitize=each == "[H][H]") for each in SMILES]
    invalid = Chem.MolFromSmiles("C(C)(C)(C)(C)C", sanitize=False)
    with pytest.warns(UserWarning, match="1 of 19 rows hold no valid molecule of at most"):
        found = load_dataset([*molecules, invalid])
    assert torch.equal(found.x, expected.x)
    assert torch.equal(found.edge_attr, expected.edge_attr)
    assert molecules[0].NeedsUpdatePropertyCache()  # the input is not changed


def test_limits(tmp_path, monkeypatch):
    monkeypatch.setattr("graphcl.extensions.molecules.parse.MAX_ATOMS", 99)
    with pytest.warns(UserWarning, match="1 of 3 rows hold no valid molecule of at most 99 atoms: row 0 'CCC"):
        assert [each.num_nodes for each in load_dataset(["C" * 100, "C" * 99, "C"])] == [99, 1]
    one_line(lambda: load_dataset(tmp_path / "none.csv"), "cannot read", "No such file")


OF_Y = {"target": "y"}
FLOAT32 = "`target` 'y' needs numbers of float32, got "
REFUSED = [
    ("smiles\n", {}, "holds no molecule"),
    ("smiles\nxx\n\nyy\n", {}, "2 of 2 rows hold no valid molecule of at most 16384 atoms: line 2 'xx', line 4 'yy'"),
    (
        ROWS,
        {"invalid": "stop"},
        "1 of 5 rows hold no valid molecule of at most 16384 atoms: line 4 'xx'; correct the rows, or set `inv",
    ),
    ("smiles,y\nC,1\nCC,low\n", OF_Y, f"{FLOAT32}'low' in line 3; correct it, or leave it empty."),
    ("smiles,y\nC,1\nCC,1.5e39\n", OF_Y, f"{FLOAT32}'1.5e39' in line 3"),
    ('smiles,y\nC,1\n"CC,0\n' + "C,1\n" * 52, OF_Y, "line 3: unexpected end of data; close the quote"),
    ("smiles,y\nC,1,2\n", OF_Y, "line 2 has 3 cells, the header 2; quote cells with commas"),
    ("smiles;y\nC;1;2\n", OF_Y, "line 2 has 3 cells, the header 2; quote cells with semicolons"),
    ("smiles;y\nC;0,5\nCC;1,5\n", OF_Y, "`target` 'y' has decimal commas, as in 0,5; write points."),
    ("a;b\nC;1\n", {}, "no columns 'smiles'; Columns: a, b."),
    (b"smiles\n\xe9\n", {}, "codec can't decode byte 0xe9 in position 7: invalid continuation byte; save it as text"),
    (ROWS, {"split": "scaffold"}, "`split` scaffold needs targets to score"),
    (ROWS, {"target": "active", "split": "random"}, "leaves the part valid empty"),
    ("synthetic", OF_Y, "`target` ['y'] is for molecules: a table (.csv"),
    ([from_smiles("C")] * 2, {"smiles": "smiles", "target": "x"}, "`x` of graph 0 must be one number or string, got"),
]


def test_an_unusable_source_is_refused_in_one_line(tmp_path):
    for given, arguments, message in REFUSED:
        source = given if isinstance(given, list) or given == "synthetic" else table(tmp_path, given)
        one_line(lambda source=source, arguments=arguments: load_dataset(source, **arguments), message)


def test_packed_molecules_are_the_loaded_ones(tmp_path, monkeypatch):
    monkeypatch.setattr("graphcl.extensions.molecules.parse.CHUNK", 2)
    file = table(tmp_path, ROWS.replace("xx", "CC"))
    loaded = load_dataset(file, target="active")
    packed = write_on_disk(file, tmp_path / "packed", target="active")
    for key in ("x", "edge_index", "edge_attr", "y", "id"):
        assert torch.equal(packed._data[key], loaded._data[key]), key
    assert torch.equal(packed.classes, loaded.classes)
    several = write_on_disk(file, tmp_path / "several", target=["active", "logS"])
    assert several.y.isnan().tolist() == [[False, row == 1] for row in range(5)]  # missing cells are kept
    assert not several.scored


def test_workers_pack_the_files_of_one_process_and_parse_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.setattr("graphcl.extensions.molecules.parse.CHUNK", 3)
    rows = [f"{'C' * number},{number % 2},{'ab'[number % 2]}" for number in range(1, 11)] + ["not one,0,a"]
    file = table(tmp_path, "\n".join(["smiles,y,group", *rows]))
    given = {"target": ["y"], "group": "group"}
    write_on_disk(file, tmp_path / "one", **given)
    seen = []

    def stopping(chunk):
        if chunk.start == 9 and len(seen) < 4:
            raise KeyboardInterrupt
        seen.append(chunk.start)
        return real(chunk)

    real = parse.parse
    monkeypatch.setattr(parse, "parse", stopping)
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyboardInterrupt):
            write_on_disk(file, tmp_path / "many", executor=pool, **given)
        assert seen == [0, 3, 6]
        seen.append(None)
        write_on_disk(file, tmp_path / "many", executor=pool, **given)
    assert seen == [0, 3, 6, None, 9]
    names = sorted(each.name for each in (tmp_path / "one").iterdir())
    assert filecmp.cmpfiles(tmp_path / "one", tmp_path / "many", names, shallow=False) == (names, [], [])
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(InputError, match=r"^only a table is parsed by many workers"):
        write_on_disk("synthetic", tmp_path / "other", executor=pool)


def test_a_scaffold_stays_in_one_part():
    rings = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "c1ccoc1", "C1CC1"]
    smiles = [ring + "C" * number for ring in rings for number in range(8)]
    assert sorted(map(sorted, scaffold_groups(smiles))) == [[*range(start, start + 8)] for start in range(0, 40, 8)]
    smiles = [*smiles[:33], *smiles[8:12], "C1CCC1", "C1CCCC1", "CC", "C"]
    found = split_molecules(smiles, torch.zeros(len(smiles), 1), "scaffold")
    of = {graph: part for part, graphs in found.items() for graph in graphs.tolist()}
    assert sorted(of) == list(range(len(smiles)))
    groups = scaffold_groups(smiles)
    assert all(len({of[graph] for graph in group}) == 1 for group in groups)
    assert groups == sorted(groups, key=len, reverse=True)


def test_a_seed_shuffles_small_groups_of_scaffolds():
    import pandas as pd

    rings = [f"C1{'C' * size}C1" for size in range(1, 60)]
    smiles = (
        ["c1ccccc1C"] * 30 + rings * 2 + rings[:22]
    )  # benzene has more than half of the 17 molecules of a test part
    smiles = [smiles[i] for i in np.random.default_rng(0).permutation(len(smiles))]
    y = torch.rand(len(smiles), 1)
    table = pd.DataFrame({"smiles": smiles, "y": y.flatten().numpy()})
    seen = []
    for seed in range(5):
        parts = load_dataset(table, target="y", split=f"scaffold-{seed}").benchmark.split
        assert torch.cat(list(parts.values())).sort().values.tolist() == list(range(len(smiles)))
        assert [len(each) for each in parts.values()] == pytest.approx([136, 17, 17], abs=3)
        of = [{smiles[i] for i in each.tolist()} for each in parts.values()]
        assert not of[0] & of[1] | of[0] & of[2] | of[1] & of[2]
        assert "c1ccccc1C" in of[0]
        seen.append(of[2])
        assert all(map(torch.equal, split_molecules(smiles, y, f"scaffold-{seed}").values(), parts.values()))
    assert all(one != two for one, two in itertools.combinations(seen, 2))
    assert not torch.equal(split_molecules(smiles, y, "random-1")["test"], split_molecules(smiles, y, "random")["test"])
    assert torch.equal(split_molecules(smiles, y, "random-0")["test"], split_molecules(smiles, y, "random")["test"])
    for wrong in ("scaffolds", "scaffold-", "scaffold-x", "random--1"):
        one_line(
            lambda wrong=wrong: load_dataset(smiles, split=wrong), "with a seed if wanted, such as scaffold-1, got"
        )


def test_a_stratified_split_balances_classes_and_values():
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(200, 1, generator=generator)
    for y, kind in (((values < 0.2).float(), "stratified"), (values, "stratified"), (values, "random")):
        parts = split_molecules(["C"] * 200, y, kind)
        assert [len(parts[part]) for part in ("train", "valid", "test")] == [160, 20, 20]
        assert torch.cat(list(parts.values())).unique().numel() == 200
        assert kind == "random" or all(abs(y[graphs].mean() - y.mean()) < 0.06 for graphs in parts.values())


def test_fingerprints_and_descriptors_are_those_of_rdkit():
    smiles = ("CCO", "OCC", "c1ccccc1O", "[Na+].[Cl-]", "*CC")
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    expected = np.stack([generator.GetFingerprintAsNumPy(each) for each in parsed(smiles)])
    np.testing.assert_array_equal(ecfp4(smiles), expected)
    counts = np.stack([generator.GetCountFingerprintAsNumPy(each) for each in parsed(smiles)])
    assert counts.max() > 1
    np.testing.assert_allclose(ecfp4_counts(smiles), np.log1p(counts), rtol=1e-6)
    rows, names = descriptors(smiles), [name for name, _ in Descriptors.descList]
    assert rows.shape == (5, len(names))
    assert rows.isfinite().all()
    assert torch.expm1(rows[0, names.index("MolWt")]).item() == pytest.approx(46.069, abs=1e-2)
