"""Test the loading of OGB sets, with the network and standard input disabled."""

import builtins
import importlib.util
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
from graphcl.loaders.loader import make_loader
from graphcl.loaders.resident import ResidentLoader
from graphcl.models.molecule import MASK
from graphcl.registry import augmentations
from tests.datasets.graphs import one_line
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


def test_the_cache_has_ogbs_layout(archive, root, tmp_path, capfd):
    dataset = load_dataset("ogbg-molhiv", root, archive)
    assert capfd.readouterr() == ("", "graphcl: preparing ogbg-molhiv, once\n")
    load_dataset("ogbg-molhiv", root)
    assert capfd.readouterr() == ("", "")
    # the archive's own processed files are ignored, because they are pickled
    assert [path.name for path in (root / "ogbg_molhiv" / "processed").iterdir()] == ["geometric_data_processed.pt"]
    from ogb.graphproppred import PygGraphPropPredDataset

    theirs = PygGraphPropPredDataset("ogbg-molhiv", str(root))
    assert torch.equal(theirs[3].x, dataset[3].x)
    assert torch.equal(theirs.get_idx_split()["test"], dataset.benchmark.split["test"])
    other = write_home(tmp_path / "ogbg_molhiv", FILES).parent  # files that OGB's own reader has unpacked
    assert torch.equal(load_dataset("ogbg-molhiv", other).x, dataset.x)


def load(tmp_path, root, graphs, name, file, folder="scaffold", without="nothing"):
    files = {key: value for key, value in files_of(graphs, folder).items() if without not in key}
    return load_dataset(name, root, write_archive(tmp_path / "m", files, file))


def test_other_sets(tmp_path, root):
    """Several tasks with missing labels; regression; and graphs without node features, which become constant."""
    graphs = make_molecules(20, tasks=12, missing=0.3)
    tasks = load(tmp_path, root, graphs, "ogbg-moltox21", "tox21")
    assert tasks.benchmark.num_tasks == 12
    np.testing.assert_array_equal(tasks.y.numpy(), np.stack([y for *_, y in graphs]).astype(np.float32))
    assert tasks.y.isnan().any()
    graphs = make_molecules(20, metric="rmse")
    numbers = load(tmp_path, root, graphs, "ogbg-molesol", "esol")
    assert (numbers.benchmark.eval_metric, numbers.benchmark.task_type) == ("rmse", "regression")
    assert numbers.y[:, 0].tolist() == pytest.approx([y[0] for *_, y in graphs], rel=1e-6)
    bare = load(tmp_path, root, make_molecules(20), "ogbg-ppa", "ogbg_ppi_medium", "species", "node-feat")
    assert (bare.x.unique().tolist(), bare.features) == ([1.0], "constant")


def test_other_features_and_parts(dataset, root, tmp_path):
    again, degrees = (load_dataset(dataset, features=features) for features in ("labels", "degree"))
    assert torch.equal(again.x, dataset.x)
    assert degrees.x.is_floating_point()
    assert torch.equal(load_dataset("ogbg-molhiv", root, features="degree").x, degrees.x)
    assert again.benchmark is degrees.benchmark is dataset.benchmark
    one_line(
        lambda: load_dataset("ogbg-molhiv", root, features="labels+degree"),
        "`features` is 'labels+degree', but `x` of ogbg-molhiv holds category indices",
    )
    part = write_on_disk(dataset[5:15], tmp_path / "part")
    assert torch.equal(part.x, torch.cat([dataset[i].x for i in range(5, 15)]))
    assert (part.benchmark, part.y.tolist()) == (None, dataset.y[5:15, 0].tolist())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ogbg-molhvi", "'ogbg-molhvi' is not one of OGB's sets of many graphs with classes or numbers as"),
        ("ogbn-mag", "is not one of OGB's sets of many graphs"),
        ("OGBG-molhiv", "did you mean ogbg-molhiv"),
        ("ogbn-arxiv", "ogbn-arxiv is one graph, whose nodes are contrasted; use graphcl run"),
        ("molhiv", "unknown data set 'molhiv'; did you mean ogbg-molhiv"),
    ],
)
def test_names(name, words, refused):
    refused(name, words)


def test_offline_without_the_archive(refused, monkeypatch):
    def offline(*args, **kwargs):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", offline)
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    url = "http://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/hiv.zip"
    refused("ogbg-molhiv", f"cannot download {url}", "Name or service not known", f"Get {url} elsewhere", "--mirror")


def altered(path, change):
    return {path: files_of([(*change(x, ends), *rest) for x, ends, *rest in GRAPHS])[path]}


DAMAGE = [
    ({"RELEASE_v1.txt": None}, "the files have no RELEASE_v1.txt"),
    ({"raw/edge.csv.gz": None}, "cannot prepare ogbg_molhiv: one of edge.csv.gz"),
    ({"raw/edge.csv.gz": b"text"}, "cannot prepare ogbg_molhiv: Not a gzipped file"),
    ({"split/scaffold/test.csv.gz": None}, "test.csv.gz"),
    ({"split/scaffold/test.csv.gz": FILES["split/scaffold/valid.csv.gz"]}, "must be different indices in 0 .. 29"),
    (altered("raw/node-feat.csv.gz", lambda x, e: (x + 119, e)), "is beyond"),
    (altered("raw/edge.csv.gz", lambda x, e: (x, e + 99)), "missing nodes"),
]


@pytest.mark.parametrize(("changes", "words"), DAMAGE)
def test_damaged_archives(changes, words, tmp_path, refused):
    files = {path: content for path, content in {**FILES, **changes}.items() if content is not None}
    refused("ogbg-molhiv", words, mirror=write_archive(tmp_path / "m", files))


def test_an_archive_of_something_else_and_another_release(tmp_path, refused, root):
    with zipfile.ZipFile(tmp_path / "hiv.zip", "w") as archive:
        archive.writestr("other/raw/edge.csv.gz", b"")
    refused("ogbg-molhiv", "is not an archive of hiv: it holds no folder hiv, but other/raw/edge", mirror=tmp_path)
    write_home(root / "ogbg_molhiv", {path: content for path, content in FILES.items() if "RELEASE" not in path})
    refused("ogbg-molhiv", "no RELEASE_v1.txt, so they are another release of ogbg-molhiv. (if its files are damaged")


class Trap:
    def __reduce__(self):
        return Path.touch, (Path("trapped"),)


def test_code_in_the_cache_is_not_run(dataset, root, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    torch.save((Trap(), None), root / "ogbg_molhiv" / "processed" / "geometric_data_processed.pt")
    assert torch.equal(load_dataset("ogbg-molhiv", root).x, dataset.x)  # processed again
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
    one_line(lambda: open_on_disk(tmp_path / "packed"), "split.test.npy must be graph indices, int64 in [0, 30)")
