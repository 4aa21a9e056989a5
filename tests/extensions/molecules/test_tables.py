"""Test the columns of tables of molecules: ids in every output, cells that are not numbers, contradictory rows."""

import numpy as np
import pandas as pd
import pytest
from torch_geometric.data import Data

from graphcl import GraphCL, errors, load_dataset
from graphcl.__main__ import main
from graphcl.commands.embed import COMMAND, Embed, embed
from graphcl.errors import InputWarning
from graphcl.system.arrays import decode
from tests.datasets.graphs import one_line

pytestmark = pytest.mark.filterwarnings("ignore:.*(hold no valid molecule|have no id)")  # expected

pytest.importorskip("rdkit", reason="rdkit is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

SMALL = ["--encoder.hidden_channels", "8", "--encoder.num_layers", "2", "--epochs", "1", "--report", "false"]
FERROCENE = "[Fe+2].c1cc[cH-]c1.c1cc[cH-]c1"


@pytest.fixture
def table(tmp_path):
    def write(text, name="m.csv"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    errors._SHOWN.clear()
    return write


IDS = [
    ("m.csv", "id,smiles\n7,CCO\n3,CCN\n", {}, [7, 3]),
    ("m.csv", "smiles,ID\nCCO,7\nCCN,-3\n", {}, [7, -3]),
    ("m.tsv", "id\tsmiles\n007\tCCO\n8\tCCN\n", {}, ["007", "8"]),  # as whole numbers, 007 would be 7
    ("m.csv", "id,smiles\n9223372036854775808,CCO\n1,CCN\n", {}, ["9223372036854775808", "1"]),
    ("m.csv", "id,smiles\n7,CCO\n,CCN\n", {}, ["7", "row 1"]),
    ("m.csv", "id,smiles\n,CCO\n,CCN\n", {}, [0, 1]),
    ("m.csv", "id,name,smiles\n7,a,CCO\n3,b,CCN\n", {"id": "name"}, ["a", "b"]),
    ("m.csv", "Id,ID,smiles\n7,a,CCO\n3,b,CCN\n", {}, [0, 1]),  # which of the two is not clear
    ("m.csv", "Id,id,smiles\n7,a,CCO\n3,b,CCN\n", {}, ["a", "b"]),
    ("m.smi", "CCO ethanol\nCCN |c:1| ethyl amine\t0.5\n", {}, ["ethanol", "ethyl amine"]),
    ("m.smi", "CCO\nCCN\n", {}, [0, 1]),
    ("m.smi", "CCO 12\nCCN\n", {}, ["12", "row 1"]),
]


@pytest.mark.parametrize(("name", "text", "settings", "ids"), IDS)
def test_the_ids_of_a_file_are_those_of_its_graphs(name, text, settings, ids, table):
    assert load_dataset(table(text, name), **settings).ids.tolist() == ids


def test_the_ids_of_frames_and_graphs():
    frame = pd.DataFrame({"smiles": ["CCO", "xx", "CCN"], "id": [7.0, 8.0, 3.0]})
    assert load_dataset(frame).ids.tolist() == [7, 3]
    assert load_dataset(frame.assign(id=[7.0, 8.0, None])).ids.tolist() == ["7", "row 2"]
    assert load_dataset(frame.assign(id=["a", None, "b"])).ids.tolist() == ["a", "b"]
    graphs = [Data(smiles="CCO", id="a", y=1), Data(smiles="CCN", id="b", y=0)]
    assert load_dataset(graphs, smiles="smiles").ids.tolist() == ["a", "b"]


@pytest.mark.parametrize("kind", [int, "c{}".format])
def test_every_output_has_the_ids_of_the_table(kind, table, tmp_path):
    ids = [kind(100 - row) for row in range(20)]
    rows = [f"{key},{'C' * (row + 1)}{'NO'[row % 2]},{row % 2}" for row, key in enumerate(ids)]
    file = str(table("\n".join(["id,smiles,y", *rows, f"{kind(3)},xx,1", ""])))
    assert main(["run", "--dataset", file, "--target", "y", "--eval", "knn", *SMALL, "--out", str(tmp_path / "r")]) == 0
    words = ["embed", str(tmp_path / "r"), "--dataset", file, "--out"]
    for out in ("h.npz", "h.csv", "h.parquet", "h"):
        assert main([*words, str(tmp_path / out)]) == 0, out  # each with its list of invalid rows
    assert main(["pack", "--dataset", file, "--out", str(tmp_path / "p")]) == 0
    assert main(["embed", str(tmp_path / "r"), "--dataset", str(tmp_path / "p"), "--out", str(tmp_path / "p.npz")]) == 0
    for name in ("r/embeddings.npz", "h.npz", "p.npz"):
        stored = np.load(tmp_path / name)
        found = stored["id"].tolist() if "id" in stored else decode(stored["id.text"], stored["id.slices"])
        assert found == ids, name
    assert pd.read_csv(tmp_path / "h.csv")["id"].tolist() == ids
    for name in ("h.parquet", "h"):
        assert pd.read_parquet(tmp_path / name)["id"].tolist() == ids, name
    for name in ("r/invalid.csv", "h.npz.invalid.csv", "h.csv.invalid.csv", "h/_invalid.csv", "p/invalid.csv"):
        assert pd.read_csv(tmp_path / name).to_numpy().tolist() == [[20, 22, "xx", kind(3), "no valid molecule"]], name
    assert main([*words, str(tmp_path / "h.npz"), "--force"]) == 0
    (tmp_path / "h.npz").unlink()
    (tmp_path / "h.npz.invalid.csv").write_text("mine")
    given = Embed(encoder="molecules", dataset=file, out=str(tmp_path / "h.npz"))
    one_line(lambda: embed(given), "h.npz.invalid.csv exists already; pass --force to replace it")


FLOAT32 = "`target` 'y' needs numbers of float32, got "
REFUSED = [
    ("smiles,y\nC,1\nCC,>5\nCCC,2\nCCCC,n.d.\n", {"target": "y"}, f"{FLOAT32}'>5' in line 3, 'n.d.' in line 5; "),
    ("smiles,y,z\nC,1,x\nCC,>5,2\n", {"target": ["y", "z"]}, "'>5' in line 3; `target` 'z' needs numbers"),
    ("smiles;y\nC;1\nCC;0,5\n", {"target": "y"}, "got '0,5' in line 3"),
    ("a b,smiles\n1,C\n", {"target": "a"}, "no columns 'a'"),
    ("canonical_smiles,y\nC,1\n", {}, "by `smiles` (--smiles canonical_smiles). Columns: canonical_smiles, y."),
    ("smiles,y\nC,1\n", {"id": "name"}, "no columns 'name'"),
]


@pytest.mark.parametrize(("text", "settings", "line"), REFUSED)
def test_a_wrong_column_or_cell_is_one_line(text, settings, line, table):
    file = table(text)
    one_line(lambda: load_dataset(file, **settings), line)


def test_rows_with_invalid_targets_are_listed_and_left_out(table):
    file = table("id,smiles,y\na,C,1.5\nb,CC,>5\nc,xx,2\nd,CCC,n.d.\ne,CCCC,3\n")
    line = (
        "m: 1 of 5 rows hold no valid molecule .*: line 4 'xx'; 2 of 5 rows have an invalid target: line 3 '>5' in `y`"
    )
    with pytest.warns(InputWarning, match=line):
        dataset = load_dataset(file, target="y", invalid="skip")
    assert (dataset.ids.tolist(), dataset.y.flatten().tolist()) == (["a", "e"], [1.5, 3])
    assert [(row.row, row.line, row.id, row.smiles) for row in dataset.invalid] == [
        (1, 3, "b", "CC"), (2, 4, "c", "xx"), (3, 5, "d", "CCC"),
    ]  # fmt: skip
    assert dataset.invalid[2].reason == "'n.d.' in `y` is not a number of float32"


@pytest.mark.parametrize(
    ("words", "names"),
    [(["log P (exp)"], ["log P (exp)"]), (["a,b"], ["a", "b"]), (["a", "b"], ["a", "b"])],
)
def test_a_target_may_have_blanks_in_its_name(words, names, table):
    given = COMMAND.parse(["molecules", "--dataset", "m", "--out", "h.npz", "--target", *words])
    file = table("smiles,log P (exp),a,b\nC,1,2,4\nCC,2,3,3\n")
    dataset = load_dataset(file, target=given.target)
    expected = pd.read_csv(file)[names].to_numpy()
    y = dataset.classes[dataset.y][:, None] if dataset.labelled else dataset.y
    np.testing.assert_array_equal(y, expected)


def test_only_invalid_molecules_are_a_warning_and_rows_of_nan():
    errors._SHOWN.clear()
    with pytest.warns(InputWarning, match="own: 1 of 1 rows hold no valid molecule .*: row 0 'nope'; nothing is left"):
        assert np.isnan(GraphCL.pretrained("molecules", invalid="skip").transform(["nope"])).all()
