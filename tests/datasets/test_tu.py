"""Test TU sets: what is read, the cache, and damaged files, each of which is read or refused with one line."""

import shutil
import zipfile

import pytest
import torch
from torch_geometric.datasets import TUDataset

from graphcl import errors
from graphcl.commands.embed import main as embed
from graphcl.datasets import load_dataset
from graphcl.errors import InputWarning
from graphcl.run import main as run
from tests.conftest import SHARED
from tests.datasets.conftest import write_folder as write
from tests.datasets.conftest import write_zip
from tests.datasets.graphs import Trap, one_line


def assert_tiny(dataset):
    assert (dataset.name, dataset.labelled, dataset.num_classes) == ("TINY", True, 2)
    assert [(graph.num_nodes, graph.num_edges) for graph in dataset] == [(3, 4), (2, 2), (3, 2)]
    assert dataset.y.tolist() == [1, 0, 1]


def test_the_cache_is_that_of_pyg(mirror, root):
    dataset = load_dataset("TINY", root, mirror)
    assert_tiny(dataset)
    # the labels are 0, 3 and 5; PyG makes one column for every value from 0 to 5
    assert dataset._data.x.argmax(1).tolist() == [0, 5, 0, 5, 5, 0, 0, 3]
    theirs = TUDataset(str(root), "TINY")
    assert torch.equal(dataset._data.x, theirs._data.x)
    assert torch.equal(dataset._data.edge_index, theirs._data.edge_index)
    shutil.rmtree(root / "TINY" / "raw")
    assert_tiny(load_dataset("TINY", root))


def test_line_ends_and_graphs_without_edges_lose_nothing(tmp_path):
    for ending in ("", "\n\n \n", "\r\n"):  # PyG's reader drops an unended last line, and fails on blank lines
        edges = "1,2\n2,1\n2,3\n3,2\n4,5\n5,4\n6,7\n7,6"
        write_zip(tmp_path / "m", graph_labels=f"1\r\n-1\r\n1{ending}", A=edges + ending)
        assert_tiny(load_dataset("TINY", tmp_path / repr(ending), tmp_path / "m"))
    for number, more in enumerate([{"edge_labels": "1\n2\n"}, {"node_labels": None}]):
        write_zip(tmp_path / "m", A="1, 2\n2, 1\n", **more)
        dataset = load_dataset("TINY", tmp_path / str(number), tmp_path / "m")
        assert [(graph.num_nodes, graph.num_edges) for graph in dataset] == [(3, 2), (2, 0), (3, 0)]


ATTRIBUTES = {
    "node_attributes": "".join(f"{i}.5, {-i}e-3\n" for i in range(8)),
    "edge_attributes": "".join(f"{i}\n" for i in range(8)),
    "edge_labels": "1\n1\n3\n3\n1\n1\n3\n3\n",
}


def equal_to_pyg(name, source, root, theirs, mirror=None):
    """Assert that `tu_features` selects the columns that PyG reads from the same files."""
    theirs = TUDataset(str(theirs), name, use_node_attr=True, use_edge_attr=True)
    for features in ("labels", "attributes", "both"):
        dataset = load_dataset(source, root, mirror, tu_features=features)
        for key, first in (("x", theirs.num_node_attributes), ("edge_attr", theirs.num_edge_attributes)):
            if (values := theirs._data.get(key)) is None:
                assert key not in dataset._data
                continue
            wanted = {"labels": values[:, first:], "attributes": values[:, :first], "both": values}[features]
            assert wanted.size(1) == 0 or torch.equal(dataset._data[key], wanted)
            assert wanted.size(1) == dataset._data[key].size(1) if wanted.size(1) else key not in dataset._data
        assert torch.equal(dataset._data.edge_index, theirs._data.edge_index)
        assert torch.equal(dataset.y, theirs.y)


def test_labels_and_attributes_are_those_of_pyg(tmp_path):
    write(tmp_path / "pyg" / "TINY" / "raw", **ATTRIBUTES)
    equal_to_pyg("TINY", write(tmp_path / "own", **ATTRIBUTES), tmp_path / "root", tmp_path / "pyg")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the public archives are not beside this checkout (../shared/tu)")
def test_labels_and_attributes_of_public_sets_are_those_of_pyg(tmp_path):
    for name in ("BZR", "PROTEINS"):
        raw = tmp_path / name / "raw"
        raw.mkdir(parents=True)
        with zipfile.ZipFile(SHARED / f"{name}.zip") as archive:
            for entry in archive.namelist():
                if entry.endswith(".txt"):
                    (raw / entry.rpartition("/")[2]).write_bytes(archive.read(entry))
        equal_to_pyg(name, name, tmp_path / "root", tmp_path, SHARED)


def test_attributes_that_are_left_out_are_named(tmp_path):
    says = r"TINY: left out TINY_node_attributes.txt \(2 columns\) and TINY_edge_attributes.txt \(1 column\)"
    with pytest.warns(InputWarning, match=says):
        load_dataset(write(tmp_path / "own", **ATTRIBUTES), tmp_path / "root")
    says = "'attributes', but TINY has no TINY_node_attributes.txt and no TINY_edge_attributes.txt; choose 'labels'"
    one_line(lambda: load_dataset(write(tmp_path / "bare"), tmp_path / "root", tu_features="attributes"), says)


def test_a_missing_attribute_makes_its_graph_invalid(tmp_path):
    folder = write(tmp_path / "own", node_attributes="1\n" * 4 + "nan\n" + "1\n" * 3)
    one_line(lambda: load_dataset(folder, tmp_path / "root", tu_features="both"), "graph 1 has nan in `x`")
    kept = load_dataset(folder, tmp_path / "root", tu_features="both", invalid="skip")
    assert kept.ids.tolist() == [0, 2]


def test_a_trained_encoder_embeds_the_columns_of_its_training(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "own", **ATTRIBUTES)
    settings = "--tu-features attributes --batch-size 3 --epochs 1 --seeds 0 --eval instance --report false"
    run(["--dataset", "./own", "--out", "run", *settings.split()])
    embed(["run", "--dataset", "./own", "--out", "h.npz"])
    assert "x: 2 columns (numbers)" in capsys.readouterr().out.split("\n")[-2]


def test_regression_is_kept_but_not_labelled(tmp_path):
    for number, (lines, kept) in enumerate([(None, None), ("0.5\n", [0.5]), ("0.5,0.5\n", [[0.5, 0.5]])]):
        write_zip(tmp_path / "m", graph_labels=None, graph_attributes=lines and 3 * lines)
        dataset = load_dataset("TINY", tmp_path / str(number), tmp_path / "m")
        assert (dataset.labelled, None if dataset[1].y is None else dataset[1].y.tolist()) == (False, kept)


def test_attributes_of_graphs_are_no_classes_and_do_not_replace_labels(tmp_path, root):
    whole = write(tmp_path / "whole", graph_labels=None, graph_attributes="3\n5\n3\n")
    for _ in range(2):  # the second time from the cache
        dataset = load_dataset(whole, root)
        assert (dataset.labelled, dataset.y.tolist()) == (False, [3, 5, 3])
    assert not load_dataset(dataset, features="degree").labelled
    both = write_zip(tmp_path / "both", graph_attributes="3\n5\n3\n")
    for _ in range(2):
        errors._SHOWN.clear()
        with pytest.warns(
            InputWarning, match="left out TINY_graph_attributes.txt, as the classes are in TINY_graph_labe"
        ):
            assert_tiny(load_dataset("TINY", root, both))
    data, slices, _, kind = torch.load(root / "TINY" / "processed" / "data.pt", weights_only=False)
    data["y"] = torch.tensor([3.0, 5.0, 3.0])  # as PyG and earlier versions read it
    torch.save(
        (data, slices, {"num_node_attributes": 0, "num_edge_attributes": 0}, kind), root / "TINY/processed/data.pt"
    )
    assert_tiny(load_dataset("TINY", root))


def test_labels_beyond_bounds_are_one_line(tmp_path, root):
    most, least = 2**63 - 1, -(2**63)
    for number, labels in enumerate(([least, most], [0, most], [most - 2**17, most], [least, 0])):
        text = "".join(f"{label}\n" for label in labels * 4)
        folder = write(tmp_path / str(number), node_labels=text)
        one_line(lambda folder=folder: load_dataset(folder, root), "is more than 65536 above the smallest")
    near = write(tmp_path / "near", node_labels=f"{most}\n{most - 2}\n" * 4)
    assert load_dataset(near, root)._data.x.argmax(1).tolist() == [2, 0] * 4


def test_strings_are_labels(tmp_path):
    strings = {
        "graph_labels": "yes\nno\nyes\n",
        "node_labels": "C\nÖ,\n".replace(",", "") * 4,
        "edge_labels": "=\n-\n" * 4,
    }
    dataset = load_dataset(write(tmp_path / "own", **strings), tmp_path / "root")
    assert dataset.y.tolist() == [1, 0, 1]
    assert dataset._data.x.argmax(1).tolist() == [0, 1] * 4
    assert dataset[0].edge_attr.argmax(1).tolist() == [1, 0, 1, 0]  # "-" comes before "="


def test_any_name_and_files_that_are_ignored(tmp_path):
    for number, name in enumerate(("my graphs", "größe", "a[1]*", "-x", "x" * 200, "a::b")):
        folder = write(tmp_path / str(number), name)
        for file in ("A", "graph_labels"):
            (folder / f"._{name}_{file}.txt").write_bytes(b"\0\5\x16\7Mac OS X")
        dataset = load_dataset(folder, tmp_path / "root")
        assert (dataset.name, dataset.y.tolist()) == (name, [1, 0, 1])


DAMAGE = [
    ({"A": "1, 2\n2, 1\n3, 4\n"}, "TINY_A.txt line 3: an edge must join two of the nodes 1 to 8, in one graph"),
    ({"A": "1, 2\n2, 9\n"}, "TINY_A.txt line 2: an edge must join two of the nodes 1 to 8, in one graph"),
    ({"A": "1 2\n2 1\n"}, "TINY_A.txt line 1: expected 2 values separated by commas, got '1 2'"),
    ({"A": "1, 2\n\n2, 1\n"}, "TINY_A.txt line 2: the line is blank; remove it, or write its values"),
    ({"A": "1, 2\n2, x\n"}, "TINY_A.txt line 2: 'x' is not a whole number"),
    ({"A": b"1, 2\n2, \xff1\n"}, "TINY_A.txt line 2: not UTF-8 text; save the file as UTF-8"),
    ({"graph_indicator": ""}, "TINY_graph_indicator.txt is empty; write the number of each node's graph, from 1"),
    ({"graph_indicator": None}, "file TINY_graph_indicator.txt not found"),
    ({"graph_indicator": "1\n1\n1\n2\n2\n1\n2\n3\n"}, "graph_indicator.txt line 6: graphs must be numbered from 1 in"),
    ({"graph_indicator": "1\n1.5\n"}, "TINY_graph_indicator.txt line 2: '1.5' is not a whole number"),
    ({"graph_labels": "1\n0\n"}, "TINY_graph_labels.txt has 2 lines for 3 graphs; write one line for each"),
    ({"graph_labels": "1\nyes\n1\n"}, "TINY_graph_labels.txt line 2: 'yes' is a string, but other labels are numbers"),
    ({"graph_labels": "1\n\n1\n"}, "TINY_graph_labels.txt line 2: the line is blank"),
    ({"graph_labels": "a\n\nb\n"}, "TINY_graph_labels.txt line 2: the line is blank"),
    ({"graph_labels": "1\n0.5\n1\n"}, "line 2: a label must be a whole number or a string, got '0.5'; other numbers "),
    ({"graph_labels": "1\nnan\n1\n"}, "line 2: a label must be a whole number or a string, got 'nan'; other numbers "),
    ({"node_labels": "1\n" * 7 + "99999999999999\n"}, "node_labels.txt line 8: a label is more than 65536 above the"),
    (
        {"node_labels": "1, 2\n" * 7 + "1\n"},
        "TINY_node_labels.txt line 8: expected 2 values separated by commas, got '1'",
    ),
    ({"edge_labels": "1\n" * 7}, "TINY_edge_labels.txt has 7 lines for 8 edges; write one line for each"),
    ({"node_attributes": "1.5\n" * 7 + "?\n"}, "TINY_node_attributes.txt line 8: '?' is not a number"),
    (
        {"node_attributes": "1.5,2\n" * 7 + "1\n"},
        "TINY_node_attributes.txt line 8: expected 2 values separated by commas",
    ),
]


def test_damaged_text(refused, tmp_path):
    for number, (changes, message) in enumerate(DAMAGE):
        refused("TINY", message, mirror=write_zip(tmp_path / "m", **changes))
        refused(write(tmp_path / f"folder-{number}", **changes), message)


def test_a_damaged_cache_is_processed_again(mirror, root, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    load_dataset("TINY", root, mirror)
    file = root / "TINY" / "processed" / "data.pt"
    for content in (b"", b"PK\x03\x04 half", Trap(), ({}, {})):
        file.write_bytes(content) if isinstance(content, bytes) else torch.save(content, file)
        torch.save(Trap(), file.with_name("pre_transform.pt"))
        for says in (f"graphcl: the cache {root / 'TINY'} cannot be read (", ""):
            assert_tiny(load_dataset("TINY", root))
            err = capfd.readouterr().err
            assert (err.startswith(says), bool(err)) == (True, bool(says))
        assert not (tmp_path / "sprung").exists()


def test_hostile_and_damaged_archives(refused, mirror, root, tmp_path):
    whole = (mirror / "TINY.zip").read_bytes()
    for content in (b"", b"<html>", whole[:-30], whole[90:]):
        (mirror / "TINY.zip").write_bytes(content)
        refused("TINY", "cannot unpack TINY.zip", mirror=mirror)
    (mirror / "OTHER.zip").write_bytes(whole)
    refused("OTHER", "is not an archive of OTHER", "TINY/TINY_A.txt", mirror=mirror)
    entries = ["../evil.txt", "TINY/../../evil.txt", "/evil.txt", "TINY/sub/../../../evil.txt"]
    load_dataset("TINY", root, write_zip(tmp_path / "m", extra=[(entry, "x") for entry in entries]))
    assert all(path.is_relative_to(root / "TINY") for path in tmp_path.rglob("evil*"))


def test_only_files_that_are_read_are_unpacked(root, tmp_path):
    extra = [("TINY/big.bin", bytes(10**6)), ("TINY/TINY_A.txt.bak", "x"), ("TINY/sub/TINY_A.txt", "x")]
    load_dataset("TINY", root, write_zip(tmp_path / "m", extra=extra))
    names = {path.name for path in root.rglob("*") if path.is_file() and path.parent.name == "raw"}
    assert names == {f"TINY_{part}.txt" for part in ("A", "graph_indicator", "graph_labels", "node_labels")}


def test_names_and_roots(mirror, refused, tmp_path):
    for folder in ("a[1]", "a*", "a::b"):  # PyG's functions would expand them
        assert_tiny(load_dataset("TINY", tmp_path / folder, mirror))
    for name in ("..", "", "a\\b", "x" * 200, "/TINY", "a/../../TINY"):
        refused(name, f"file or folder '{name}' not found" if "/" in name else "data set name", mirror=mirror)
