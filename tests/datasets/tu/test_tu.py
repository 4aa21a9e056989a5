"""Test TU sets: what is read, the cache, and damaged files, each of which is read or refused with one line."""

import shutil

import torch
from torch_geometric.datasets import TUDataset

from graphcl.datasets import load_dataset
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


def test_attributes_are_left_out_and_regression_is_kept_but_not_labelled(tmp_path):
    columns = "".join(f"{i}.5, nan\n" for i in range(8))
    write_zip(tmp_path / "m", node_labels=None, node_attributes=columns, edge_attributes=columns)
    dataset = load_dataset("TINY", tmp_path / "columns", tmp_path / "m")
    assert (dataset.features, dataset.num_features, dataset[0].edge_attr) == ("constant", 1, None)
    for number, (lines, kept) in enumerate([(None, None), ("0.5\n", [0.5]), ("0.5,0.5\n", [[0.5, 0.5]])]):
        write_zip(tmp_path / "m", graph_labels=None, graph_attributes=lines and 3 * lines)
        dataset = load_dataset("TINY", tmp_path / str(number), tmp_path / "m")
        assert (dataset.labelled, None if dataset[1].y is None else dataset[1].y.tolist()) == (False, kept)


DAMAGE = [
    ({"A": "1, 2\n2, 1\n3, 4\n"}, "TINY_A.txt line 3: an edge must join two of the nodes 1 to 8, in one graph"),
    ({"graph_indicator": None}, "TINY_graph_indicator.txt"),
    ({"graph_indicator": "1\n1\n1\n2\n2\n1\n2\n3\n"}, "graph_indicator.txt line 6: graphs must be numbered from 1 in"),
    ({"graph_indicator": "1\n1.5\n"}, "TINY_graph_indicator.txt: could not convert string '1.5' to int64 at row 1"),
    ({"graph_labels": "1\n0\n"}, "the slices of `y` do not fit its 2 entries and 3 graphs"),
    ({"graph_labels": "1\nyes\n1\n"}, "cannot prepare TINY: invalid literal for int() with base 10: 'yes'"),
    ({"node_labels": "1\n" * 7 + "99999999999999\n"}, "memory"),
]


def test_damaged_text(refused, tmp_path):
    for number, (changes, message) in enumerate(DAMAGE):
        refused("TINY", message, mirror=write_zip(tmp_path / "m", **changes))
        if "A" not in changes:
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


def test_names_and_roots(mirror, refused, tmp_path):
    for folder in ("a[1]", "a*", "a::b"):  # PyG's reader would expand them
        one_line(lambda folder=folder: load_dataset("TINY", tmp_path / folder, mirror), "must not hold")
    for name in ("..", "", "a\\b", "x" * 200, "/TINY", "a/../../TINY"):
        refused(name, f"file or folder '{name}' not found" if "/" in name else "data set name", mirror=mirror)
