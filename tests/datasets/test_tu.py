"""Test TU sets: reading, the cache, and every kind of invalid text file."""

import os
import shutil

import pytest
import torch
from torch_geometric.datasets import TUDataset

import graphcl.datasets.tu as tu
from graphcl.datasets import load_dataset


def assert_tiny(dataset):
    assert dataset.name == "TINY"
    assert [graph.num_nodes for graph in dataset] == [3, 2, 3]
    assert [graph.num_edges for graph in dataset] == [4, 2, 2]
    assert dataset.y.tolist() == [1, 0, 1]
    assert dataset.labelled
    assert dataset.num_classes == 2


def test_graphs_and_node_labels(mirror, root):
    dataset = load_dataset("TINY", root, mirror)
    assert_tiny(dataset)
    assert dataset.features == "labels"
    # The labels are 0, 3 and 5; PyG makes one column for every value from 0 to 5.
    assert dataset._data.x.argmax(1).tolist() == [0, 5, 0, 5, 5, 0, 0, 3]
    assert dataset[2].edge_index.tolist() == [[0, 1], [1, 0]]


def test_same_cache_as_pyg(mirror, root):
    dataset = load_dataset("TINY", root, mirror)
    theirs = TUDataset(str(root), "TINY")
    assert torch.equal(dataset._data.x, theirs._data.x)
    assert torch.equal(dataset._data.edge_index, theirs._data.edge_index)


def test_second_load_needs_no_mirror(mirror, root):
    load_dataset("TINY", root, mirror)
    shutil.rmtree(mirror)
    shutil.rmtree(root / "TINY" / "raw")
    assert_tiny(load_dataset("TINY", root))
    assert_tiny(load_dataset("TINY", root, mirror))


def test_mirror_is_only_read(mirror, root):
    mirror.chmod(0o555)
    (mirror / "TINY.zip").chmod(0o444)
    before = (mirror / "TINY.zip").read_bytes()
    load_dataset("TINY", root, mirror)
    assert os.listdir(mirror) == ["TINY.zip"]
    assert (mirror / "TINY.zip").read_bytes() == before
    assert sorted(os.listdir(root / "TINY")) == ["processed", "raw"]
    assert os.listdir(root) == ["TINY"]


def test_raw_files_put_there_by_hand(root, write_folder):
    write_folder(root / "TINY" / "raw")
    assert_tiny(load_dataset("TINY", root))
    assert (root / "TINY" / "processed" / "data.pt").is_file()


@pytest.mark.parametrize("ending", ["", "\n\n \n", "\r\n"])
def test_line_ends_lose_nothing(ending, root, tmp_path, write_zip):
    # PyG's reader drops a last line without a line end, and fails on blank lines.
    write_zip(tmp_path / "m", graph_labels=f"1\r\n-1\r\n1{ending}", A="1,2\n2,1\n2,3\n3,2\n4,5\n5,4\n6,7\n7,6" + ending)
    assert_tiny(load_dataset("TINY", root, tmp_path / "m"))


def test_last_graphs_without_edges_are_kept(root, tmp_path, write_zip):
    # PyG's reader drops these graphs, because its edge slices end with the last edge.
    write_zip(tmp_path / "m", A="1, 2\n2, 1\n", edge_labels="1\n2\n")
    dataset = load_dataset("TINY", root, tmp_path / "m")
    assert [graph.num_nodes for graph in dataset] == [3, 2, 3]
    assert [graph.num_edges for graph in dataset] == [2, 0, 0]
    assert dataset[2].edge_attr.shape == (0, 2)


@pytest.mark.parametrize("labels", ["1\n2\n3\n", None])
def test_last_graphs_without_edges_and_node_labels(labels, root, tmp_path, write_zip):
    write_zip(tmp_path / "m", A="1, 2\n2, 1\n", node_labels=None, graph_labels=labels)
    dataset = load_dataset("TINY", root, tmp_path / "m")
    assert [graph.x.shape for graph in dataset] == [(3, 1), (2, 1), (3, 1)]


def test_attributes_are_left_out(root, tmp_path, write_zip):
    numbers = "".join(f"{i}.5, nan\n" for i in range(8))
    write_zip(tmp_path / "m", node_labels=None, node_attributes=numbers, edge_attributes=numbers)
    dataset = load_dataset("TINY", root, tmp_path / "m")
    assert (dataset.features, dataset.num_features, dataset[0].edge_attr) == ("constant", 1, None)
    assert [graph.num_nodes for graph in dataset] == [3, 2, 3]


@pytest.mark.parametrize(("numbers", "kept"), [(None, None), ("0.5\n", [0.5]), ("0.5,0.5\n", [[0.5, 0.5]])])
def test_regression_is_kept_but_not_labelled(numbers, kept, root, tmp_path, write_zip):
    parts = {"graph_labels": None, "graph_attributes": numbers and 3 * numbers}
    dataset = load_dataset("TINY", root, write_zip(tmp_path / "m", **parts))
    assert (dataset.labelled, dataset.num_classes) == (False, 0)
    assert (None if dataset[1].y is None else dataset[1].y.tolist()) == kept


TEXT_ERRORS = {
    "crossing edge": ({"A": "1, 2\n2, 1\n3, 4\n"}, "TINY_A.txt line 3", "joins graph 1 with graph 2"),
    "node 0": ({"A": "1, 2\n0, 1\n"}, "TINY_A.txt line 2", "numbered 1 to 8"),
    "node 9": ({"A": "1, 2\n2, 1\n1, 9\n"}, "TINY_A.txt line 3", "numbered 1 to 8"),
    "garbage edge": ({"A": "1, 2\n2; 1\n"}, "TINY_A.txt line 2", "2 whole numbers", "'2; 1'"),
    "three ends": ({"A": "1, 2\n2, 1, 3\n"}, "TINY_A.txt line 2", "2 whole numbers", "'2, 1, 3'"),
    "one end in all lines": ({"A": "1\n2\n"}, "TINY_A.txt line 1", "2 whole numbers"),
    "blank line": ({"A": "1, 2\n\n2, 1\n"}, "TINY_A.txt line 2", "got nothing"),
    "huge node": ({"A": "1, 2\n99999999999999999999, 1\n"}, "TINY_A.txt line 2", "whole numbers"),
    "one edge": ({"A": "1, 2\n"}, "TINY_A.txt has 1 line", "at least two"),
    "empty edges": ({"A": "\n"}, "TINY_A.txt is empty"),
    "empty indicator": ({"graph_indicator": ""}, "TINY_graph_indicator.txt is empty"),
    "unsorted": ({"graph_indicator": "1\n1\n1\n2\n2\n1\n2\n3\n"}, "graph_indicator.txt line 6", "ascending"),
    "graph without node": ({"graph_indicator": "1\n1\n1\n3\n3\n4\n4\n4\n"}, "line 4", "a graph has no node"),
    "starts at 0": ({"graph_indicator": "0\n0\n0\n1\n1\n2\n2\n2\n"}, "line 1", "first graph must be 1, got 0"),
    "real indicator": ({"graph_indicator": "1\n1.5\n"}, "TINY_graph_indicator.txt line 2", "whole number", "'1.5'"),
    "too few graph labels": ({"graph_labels": "1\n0\n"}, "TINY_graph_labels.txt has 2 lines", "3 graphs"),
    "too many graph labels": ({"graph_labels": "1\n0\n1\n1\n"}, "TINY_graph_labels.txt has 4 lines", "3 graphs"),
    "huge graph label": ({"graph_labels": "1\n99999999999999999999\n1\n"}, "labels.txt line 2", "whole number"),
    "word as graph label": ({"graph_labels": "1\nyes\n1\n"}, "TINY_graph_labels.txt line 2", "'yes'"),
    "too few node labels": ({"node_labels": "1\n0\n"}, "TINY_node_labels.txt has 2 lines", "8 nodes"),
    "ragged node labels": ({"node_labels": "1,2\n0\n" + "1,1\n" * 6}, "TINY_node_labels.txt line 2", "2 whole"),
    "huge node label": ({"node_labels": "1\n" * 7 + "99999999999\n"}, "TINY_node_labels.txt", "too many for one-hot"),
    "many node labels": (
        {
            "A": "1, 2\n2, 1\n",
            "graph_indicator": "1\n" * 4000 + "2\n",
            "graph_labels": "1\n2\n",
            "node_labels": "".join(f"{5 * i}\n" for i in range(4001)),
        },
        "TINY_node_labels.txt",
        "labels from 0 to 20000 are too many for one-hot columns",
        "renumber them",
    ),
    "too few edge labels": ({"edge_labels": "1\n"}, "TINY_edge_labels.txt has 1 lines", "8 edges"),
    "binary attributes": ({"node_attributes": b"1\n\xff\xfe\n"}, "TINY_node_attributes.txt line 2", "number"),
    "few attributes": ({"node_attributes": "0.5\n"}, "TINY_node_attributes.txt has 1 lines", "8 nodes"),
    "one graph": (
        {"A": "1, 2\n2, 1\n", "graph_indicator": "1\n1\n", "graph_labels": "1\n", "node_labels": "1\n0\n"},
        "TINY holds 1 graph; contrasting graphs needs at least two",
    ),
    "no indicator": ({"graph_indicator": None}, "no TINY_graph_indicator.txt"),
}


@pytest.mark.parametrize("case", TEXT_ERRORS)
def test_wrong_text_files(case, refused, tmp_path, write_zip):
    changes, *words = TEXT_ERRORS[case]
    refused("TINY", "TINY.zip", *words, mirror=write_zip(tmp_path / "m", **changes))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half"])
def test_damaged_cache_says_what_to_delete(content, mirror, root, refused):
    load_dataset("TINY", root, mirror)
    (root / "TINY" / "processed" / "data.pt").write_bytes(content)
    refused("TINY", "cached copy of TINY", f"delete the folder {root / 'TINY' / 'processed'} and load again")
    shutil.rmtree(root / "TINY" / "processed")
    assert_tiny(load_dataset("TINY", root))  # processed again from the remaining raw files


def test_code_in_the_cache_is_not_run(mirror, root, refused, tmp_path):
    load_dataset("TINY", root, mirror)
    torch.save(Trap(str(tmp_path / "sprung")), root / "TINY" / "processed" / "data.pt")
    refused("TINY", "cached copy of TINY", "delete the folder")
    assert not (tmp_path / "sprung").exists()


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_half_written_raw_folder(root, refused):
    (root / "TINY" / "raw").mkdir(parents=True)
    (root / "TINY" / "raw" / "TINY_graph_labels.txt").write_text("1\n")
    refused("TINY", str(root / "TINY" / "raw"), "delete this folder", "TINY_A.txt is missing")


def test_paths_with_a_nul_character(refused, mirror):
    refused("TINY", "`mirror` 'a\\x00b' holds a NUL character", mirror="a\0b")
    with pytest.raises(ValueError, match=r"`data_root` 'a\\x00b' holds a NUL character"):
        load_dataset("TINY", "a\0b", mirror)


def test_interruption_leaves_nothing(mirror, root, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tu, "check_text", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_dataset("TINY", root, mirror)
    assert not root.exists()


def test_failure_of_the_reader_is_one_line(mirror, refused, monkeypatch):
    def fail(*_):
        raise IndexError("first\nsecond")

    monkeypatch.setattr(tu._Reader, "process", fail)
    refused("TINY", "PyG's reader cannot make graphs of TINY", "first second", mirror=mirror)


def test_root_is_a_file(mirror, tmp_path, refused):
    (tmp_path / "root").write_text("")
    refused("TINY", "cannot prepare TINY", "root", mirror=mirror)


@pytest.mark.parametrize("folder", ["a[1]", "a*", "a::b"])
def test_root_that_pyg_would_expand(folder, mirror, tmp_path):
    with pytest.raises(ValueError, match=r"must not hold"):
        load_dataset("TINY", tmp_path / folder, mirror)


@pytest.mark.parametrize("name", ["..", "", ".hidden", "a\\b", "x" * 200, "a\0b"])
def test_names_stay_under_root(name, mirror, refused):
    refused(name, "data set name", mirror=mirror)


@pytest.mark.parametrize("name", ["/TINY", "a/../../TINY"])
def test_names_with_separators_are_paths(name, mirror, refused):
    refused(name, "file or folder", "not found", mirror=mirror)
