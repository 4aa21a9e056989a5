"""Test the loading of OGB sets, with the network and standard input disabled."""

import builtins
import gzip
import importlib.util
import pickle
import socket
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcl.augment import two_views
from graphcl.config import build_augmentation
from graphcl.datasets import load_dataset, open_on_disk, write_on_disk
from graphcl.datasets.loader import make_loader
from graphcl.datasets.resident import ResidentLoader
from graphcl.errors import InputError
from graphcl.models.molecule import MASK
from graphcl.registry import augmentations
from tests.datasets.ogb_files import files_of, make_molecules, write_archive, write_home

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ogb") is None, reason="ogb is not installed")
GRAPHS = make_molecules(30)
FILES = files_of(GRAPHS)


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch):
    """Make any use of the network or of standard input fail."""

    def refuse(*args, **kwargs):
        raise AssertionError("the network or standard input was used")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(builtins, "input", refuse)
    monkeypatch.setattr(sys, "stdin", None)


@pytest.fixture
def archive(tmp_path):
    return write_archive(tmp_path / "archives", FILES)


@pytest.fixture
def dataset(archive, root):
    return load_dataset("ogbg-molhiv", root, archive)


@pytest.fixture
def refused(root):
    """Return a function that asserts that `load_dataset` raises a one-line InputError and leaves no files.

    The message must contain all `words`.
    """

    def check(*words, name="ogbg-molhiv", mirror=None):
        before = sorted(map(str, root.rglob("*"))) if root.exists() else []
        with pytest.raises(InputError) as caught:
            load_dataset(name, root, mirror)
        message = str(caught.value)
        assert "\n" not in message
        for word in words:
            assert word in message, message
        assert (sorted(map(str, root.rglob("*"))) if root.exists() else []) == before

    return check


def test_atoms_bonds_labels_and_split(dataset, capfd):
    assert repr(dataset) == (
        "GraphDataset('ogbg-molhiv', 30 graphs, x: 9 columns (labels), edge_attr: 3 columns, "
        "1 task (binary classification))"
    )
    for graph, (x, ends, bonds, y) in zip(dataset, GRAPHS, strict=True):
        assert graph.x.dtype == graph.edge_attr.dtype == torch.long
        assert graph.x.tolist() == x.tolist()
        # OGB lists both directions of a bond one after the other.
        assert graph.edge_index[:, ::2].T.tolist() == ends.tolist()
        assert graph.edge_index[:, 1::2].flip(0).T.tolist() == ends.tolist()
        assert graph.edge_attr[::2].tolist() == graph.edge_attr[1::2].tolist() == bonds.tolist()
        assert graph.y.tolist() == [y.tolist()]
    assert {part: graphs.tolist() for part, graphs in dataset.benchmark.split.items()} == {
        "train": list(range(18)), "valid": list(range(18, 24)), "test": list(range(24, 30)),
    }  # fmt: skip
    facts = dataset.benchmark
    assert (facts.task_type, facts.eval_metric) == ("binary classification", "rocauc")
    assert (facts.num_tasks, dataset.labelled, dataset.scored, dataset.y.dtype) == (1, False, True, torch.float32)


def test_the_readers_output_is_not_shown(archive, root, capfd):
    load_dataset("ogbg-molhiv", root, archive)
    assert capfd.readouterr() == ("", "graphcl: preparing ogbg-molhiv, once\n")
    load_dataset("ogbg-molhiv", root)
    assert capfd.readouterr() == ("", "")


def test_the_cache_has_ogbs_layout(dataset, root):
    assert sorted(path.name for path in root.iterdir()) == ["ogbg_molhiv"]
    assert sorted(path.name for path in (root / "ogbg_molhiv").iterdir()) == [
        "RELEASE_v1.txt", "mapping", "processed", "raw", "split",
    ]  # fmt: skip
    # The archive's own processed files are ignored, because they are pickled.
    assert [path.name for path in (root / "ogbg_molhiv" / "processed").iterdir()] == ["geometric_data_processed.pt"]
    from ogb.graphproppred import PygGraphPropPredDataset

    theirs = PygGraphPropPredDataset("ogbg-molhiv", str(root))
    assert torch.equal(theirs[3].x, dataset[3].x)
    assert torch.equal(theirs.get_idx_split()["test"], dataset.benchmark.split["test"])


def test_files_unpacked_by_ogb_are_read_in_place(root, archive):
    write_home(root / "ogbg_molhiv", FILES)
    assert len(load_dataset("ogbg-molhiv", root)) == 30
    assert (root / "ogbg_molhiv" / "processed" / "geometric_data_processed.pt").is_file()


def test_missing_labels_and_several_tasks(tmp_path, root):
    graphs = make_molecules(20, tasks=12, missing=0.3)
    dataset = load_dataset("ogbg-moltox21", root, write_archive(tmp_path / "m", files_of(graphs), "tox21"))
    assert dataset.benchmark.num_tasks == 12
    np.testing.assert_array_equal(dataset.y.numpy(), np.stack([y for *_, y in graphs]).astype(np.float32))
    assert dataset.y.isnan().any()


def test_regression(tmp_path, root):
    graphs = make_molecules(20, metric="rmse")
    dataset = load_dataset("ogbg-molesol", root, write_archive(tmp_path / "m", files_of(graphs), "esol"))
    assert (dataset.benchmark.eval_metric, dataset.benchmark.task_type) == ("rmse", "regression")
    assert dataset.y[:, 0].tolist() == pytest.approx([y[0] for *_, y in graphs], rel=1e-6)


def test_without_node_features_they_are_constant(tmp_path, root):
    files = {key: value for key, value in files_of(make_molecules(20), "species").items() if "node-feat" not in key}
    archives = write_archive(tmp_path / "m", files, "ogbg_ppi_medium")
    dataset = load_dataset("ogbg-ppa", root, archives)
    assert (dataset.x.unique().tolist(), dataset.features) == ([1.0], "constant")


def test_other_features(dataset, root):
    assert load_dataset("ogbg-molhiv", root, features="degree").x.is_floating_point()
    with pytest.raises(
        InputError, match=r"`features` is 'labels\+degree', but `x` of ogbg-molhiv holds category indices"
    ):
        load_dataset("ogbg-molhiv", root, features="labels+degree")


def test_names(refused):
    refused("unknown data set 'ogbg-molhvi'; did you mean ogbg-molhiv", name="ogbg-molhvi")
    refused("'ogbg-code2' is not supported: its targets are sequences", name="ogbg-code2")
    refused("'ogbn-mag' is not supported, only OGB's sets of many graphs", name="ogbn-mag")
    refused("ogbn-arxiv is one graph, whose nodes are contrasted; use graphcl run", name="ogbn-arxiv")
    refused("'OGBG-molhiv' is not supported", "did you mean ogbg-molhiv", name="OGBG-molhiv")
    refused("unknown data set 'molhiv'; did you mean ogbg-molhiv", name="molhiv")


def test_offline_without_the_archive(refused, monkeypatch):
    def offline(*args, **kwargs):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", offline)
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    url = "http://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/hiv.zip"
    refused(f"cannot download {url}", "Name or service not known", "Get hiv.zip elsewhere", "--mirror FOLDER")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"RELEASE_v1.txt": None}, ["has no RELEASE_v1.txt in it"]),
        ({"raw/edge.csv.gz": None}, ["OGB's reader cannot make graphs of ogbg-molhiv", "No necessary file"]),
        ({"raw/edge.csv.gz": gzip.compress(bytes(2**25))}, ["edge.csv.gz unpacks to more than 16777216 bytes"]),
        ({"raw/edge.csv.gz": b"text"}, ["OGB's reader cannot make graphs of ogbg-molhiv", "gzip"]),
        ({"split/scaffold/test.csv.gz": None}, ["OGB's reader cannot make graphs", "test.csv.gz"]),
        ({"raw/node-feat.csv.gz": "atoms"}, ["of `x`", "is beyond [119, 5"]),
        ({"split/scaffold/test.csv.gz": "overlap"}, ["the parts of its split must be different indices in 0 .. 29"]),
    ],
)
def test_damaged_archives(change, words, tmp_path, refused):
    files = dict(FILES)
    for path, content in change.items():
        if content == "atoms":
            x = [(np.where(x == x.max(), 119, x), *rest) for x, *rest in GRAPHS]
            content = files_of(x)[path]
        elif content == "overlap":
            content = FILES["split/scaffold/valid.csv.gz"]
        files[path] = content
    kept = {path: content for path, content in files.items() if content is not None}
    refused(*words, mirror=write_archive(tmp_path / "m", kept))


def test_archives_of_something_else(tmp_path, refused):
    folder = tmp_path / "m"
    folder.mkdir()
    with zipfile.ZipFile(folder / "hiv.zip", "w") as archive:
        archive.writestr("other/raw/edge.csv.gz", b"")
    refused("is the wrong archive: no hiv/raw/* in it. It holds: other/raw/edge.csv.gz.", mirror=folder)
    with zipfile.ZipFile(folder / "hiv.zip", "a") as archive:
        archive.writestr("hiv/raw/../../evil", b"")
    refused("leads out of the folder", mirror=folder)


def test_another_release_is_refused_without_a_question(root, refused):
    write_home(root / "ogbg_molhiv", {path: content for path, content in FILES.items() if "RELEASE" not in path})
    refused(f"the folder {root / 'ogbg_molhiv'} has no RELEASE_v1.txt")


class Trap:
    def __reduce__(self):
        return Path.touch, (Path("trapped"),)


def test_code_in_the_cache_is_not_run(dataset, root, refused, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    path = root / "ogbg_molhiv" / "processed" / "geometric_data_processed.pt"
    torch.save((Trap(), None), path)
    refused("the cached copy of ogbg-molhiv cannot be read", "delete the folder")
    path.write_bytes(pickle.dumps(Trap()))
    refused("the cached copy of ogbg-molhiv cannot be read")
    assert not (tmp_path / "trapped").exists()


NEEDS_NUMBERS = {"compose", "one_of", "feature_mask", "drop_and_mask"}
"""Augmentations without a default, and those of real numbers."""


@pytest.mark.parametrize("name", [name for name in augmentations if name not in NEEDS_NUMBERS])
def test_augmentations_keep_categories(name, dataset):
    (batch,) = ResidentLoader(dataset, 30)
    augment = build_augmentation({"name": name})
    view, _ = two_views(batch, augment, augment, torch.Generator().manual_seed(0))
    assert view.x.dtype == view.edge_attr.dtype == torch.long
    there = {*map(tuple, batch.x.tolist()), (MASK,) * 9}
    assert {*map(tuple, view.x.tolist())} <= there
    assert view.edge_attr.size(0) == view.edge_index.size(1)
    if name == "attribute_mask":
        assert (view.x == MASK).all(dim=1).any()


def test_on_disk(dataset, tmp_path):
    mapped = write_on_disk(dataset, tmp_path / "packed")
    assert repr(mapped) == repr(dataset).replace("GraphDataset", "MappedDataset")
    for part, graphs in dataset.benchmark.split.items():
        assert torch.equal(mapped.benchmark.split[part], graphs)
    assert {**vars(mapped.benchmark), "split": None} == {**vars(dataset.benchmark), "split": None}
    for ours, theirs in zip(make_loader(mapped, 8), make_loader(dataset, 8), strict=True):
        assert torch.equal(ours.x, theirs.x)
        assert torch.equal(ours.y, theirs.y)
    np.save(tmp_path / "packed" / "split.test.npy", np.array([30]))
    with pytest.raises(InputError, match=r"split\.test\.npy must be graph indices, int64 in \[0, 30\)"):
        open_on_disk(tmp_path / "packed")


def test_parts_of_it_and_other_features(dataset, tmp_path):
    again = load_dataset(dataset, features="labels")
    assert torch.equal(again.x, dataset.x)
    assert again.benchmark is dataset.benchmark
    degrees = load_dataset(dataset, features="degree")
    assert degrees.x.is_floating_point()
    assert degrees.benchmark is dataset.benchmark
    part = write_on_disk(dataset[5:15], tmp_path / "part")
    assert torch.equal(part.x, torch.cat([dataset[i].x for i in range(5, 15)]))
    assert (part.benchmark, part.y.tolist()) == (None, dataset.y[5:15, 0].tolist())
