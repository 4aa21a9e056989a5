"""Test the loading of OGB sets, with the network and standard input disabled."""

import builtins
import importlib.util
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
def nothing_from_outside(offline, monkeypatch):
    """Make any use of the network or of standard input fail."""
    monkeypatch.setattr(builtins, "input", lambda *args: 1 / 0)
    monkeypatch.setattr(sys, "stdin", None)


@pytest.fixture
def archive(tmp_path):
    return write_archive(tmp_path / "archives", FILES)


@pytest.fixture
def dataset(archive, root):
    return load_dataset("ogbg-molhiv", root, archive)


def test_atoms_bonds_labels_and_split(dataset, capfd):
    columns = "x: 9 columns (labels), edge_attr: 3 columns"
    assert repr(dataset) == f"GraphDataset('ogbg-molhiv', 30 graphs, {columns}, 1 task (binary classification))"
    for graph, (x, ends, bonds, y) in zip(dataset, GRAPHS, strict=True):
        assert graph.x.dtype == graph.edge_attr.dtype == torch.long
        assert graph.x.tolist() == x.tolist()
        # OGB lists both directions of a bond one after the other.
        assert graph.edge_index[:, ::2].T.tolist() == ends.tolist()
        assert graph.edge_index[:, 1::2].flip(0).T.tolist() == ends.tolist()
        assert graph.edge_attr[::2].tolist() == graph.edge_attr[1::2].tolist() == bonds.tolist()
        assert graph.y.tolist() == [y.tolist()]
    facts = dataset.benchmark
    assert [facts.split[part].tolist() for part in ("train", "valid")] == [[*range(18)], [*range(18, 24)]]
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
    says = "`features` is 'labels+degree', but `x` of ogbg-molhiv holds category indices"
    one_line(lambda: load_dataset("ogbg-molhiv", root, features="labels+degree"), says)
    part = write_on_disk(dataset[5:15], tmp_path / "part")
    assert torch.equal(part.x, torch.cat([dataset[i].x for i in range(5, 15)]))
    assert (part.benchmark, part.y.tolist()) == (None, dataset.y[5:15, 0].tolist())


def test_names_and_offline_without_the_archive(refused):
    url = "http://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/hiv.zip"
    refused("ogbg-molhiv", f"cannot download {url}", "Name or service not known", f"Get {url} elsewhere", "--mirror")
    for name, words in (
        ("ogbg-molhvi", "'ogbg-molhvi' is not one of OGB's sets of many graphs with classes or numbers; did you mean"),
        ("ogbn-mag", "is not one of OGB's sets of many graphs"),
        ("OGBG-molhiv", "did you mean ogbg-molhiv"),
        ("ogbn-arxiv", "ogbn-arxiv is one graph, whose nodes are contrasted; use graphcl run"),
        ("molhiv", "unknown data set 'molhiv'; did you mean ogbg-molhiv"),
    ):
        refused(name, words)


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


def test_damaged_archives(tmp_path, refused, root):
    for changes, words in DAMAGE:
        files = {path: content for path, content in {**FILES, **changes}.items() if content is not None}
        refused("ogbg-molhiv", words, mirror=write_archive(tmp_path / "m", files))
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


def test_augmentations_keep_categories(dataset):
    (batch,) = ResidentLoader(dataset, 30)
    there = {*map(tuple, batch.x.tolist()), (MASK,) * 9}
    for name in set(augmentations) - {"compose", "one_of", "feature_mask", "drop_and_mask"}:
        augment = build_augmentation({"name": name})
        view, _ = two_views(batch, augment, augment, torch.Generator().manual_seed(0))
        assert view.x.dtype == view.edge_attr.dtype == torch.long, name
        assert {*map(tuple, view.x.tolist())} <= there, name
        assert view.edge_attr.size(0) == view.edge_index.size(1), name
        assert name != "attribute_mask" or (view.x == MASK).all(dim=1).any()


def test_on_disk(dataset, tmp_path, monkeypatch):
    mapped = write_on_disk(dataset, tmp_path / "packed")
    monkeypatch.setitem(sys.modules, "ogb", None)  # a packed set is read without ogb
    mapped = load_dataset(tmp_path / "packed")
    assert repr(mapped) == repr(dataset).replace("GraphDataset", "MappedDataset")
    for part, graphs in dataset.benchmark.split.items():
        assert torch.equal(mapped.benchmark.split[part], graphs)
    assert {**vars(mapped.benchmark), "split": None} == {**vars(dataset.benchmark), "split": None}
    assert torch.equal(next(iter(make_loader(mapped, 30))).y, dataset.y)
    np.save(tmp_path / "packed" / "split.test.npy", np.array([30]))
    one_line(lambda: open_on_disk(tmp_path / "packed"), "split.test.npy must be graph indices, int64 in [0, 30)")
