"""Test the loading of OGB sets, with the network and standard input disabled."""

import builtins
import shutil
import sys

import numpy as np
import pytest
import torch

from graphcl.config import build_augmentation
from graphcl.datasets import load_dataset, write_on_disk
from graphcl.extensions.molecules.encoder import MASK
from graphcl.loaders.loader import make_loader
from graphcl.loaders.resident import ResidentLoader
from graphcl.registry import augmentations
from tests.datasets.graphs import Trap, one_line
from tests.datasets.ogb_files import files_of, make_molecules, write_archive

pytest.importorskip("ogb", reason="ogb is not installed")
GRAPHS = make_molecules(30)
FILES = files_of(GRAPHS)


@pytest.fixture(autouse=True)
def nothing_from_outside(offline, monkeypatch):
    """Make any use of the network or of standard input fail."""
    monkeypatch.setattr(builtins, "input", lambda *args: 1 / 0)
    monkeypatch.setattr(sys, "stdin", None)


@pytest.fixture
def dataset(tmp_path, root):
    return load_dataset("ogbg-molhiv", root, write_archive(tmp_path / "archives", FILES))


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
    assert facts.split["train"].tolist() == [*range(18)]
    assert (facts.task_type, facts.eval_metric) == ("binary classification", "rocauc")
    assert (facts.num_tasks, dataset.labelled, dataset.scored, dataset.y.dtype) == (1, False, True, torch.float32)


def test_the_cache_has_ogbs_layout(dataset, root, tmp_path, capfd):
    # the archive's own processed files are ignored, because they are pickled
    assert [path.name for path in (root / "ogbg_molhiv" / "processed").iterdir()] == ["geometric_data_processed.pt"]
    from ogb.graphproppred import PygGraphPropPredDataset

    theirs = PygGraphPropPredDataset("ogbg-molhiv", str(root))
    assert torch.equal(theirs[3].x, dataset[3].x)
    assert torch.equal(theirs.get_idx_split()["test"], dataset.benchmark.split["test"])
    unpacked(tmp_path / "other", FILES)
    assert torch.equal(load_dataset("ogbg-molhiv", tmp_path / "other").x, dataset.x)
    assert capfd.readouterr() == ("", "graphcl: preparing ogbg-molhiv, once\n")


def test_other_sets(tmp_path, root):
    """Several tasks with missing labels; regression; and graphs without node features, which become constant."""
    graphs = make_molecules(20, tasks=12, missing=0.3)
    tasks = load_dataset("ogbg-moltox21", root, write_archive(tmp_path, files_of(graphs), "tox21"))
    assert tasks.benchmark.num_tasks == 12
    np.testing.assert_array_equal(tasks.y.numpy(), np.stack([y for *_, y in graphs]).astype(np.float32))
    assert tasks.y.isnan().any()
    graphs = make_molecules(20, metric="rmse")
    numbers = load_dataset("ogbg-molesol", root, write_archive(tmp_path, files_of(graphs), "esol"))
    assert (numbers.benchmark.eval_metric, numbers.benchmark.task_type) == ("rmse", "regression")
    assert numbers.y[:, 0].tolist() == pytest.approx([y[0] for *_, y in graphs], rel=1e-6)
    files = files_of(graphs, "species")
    del files["raw/node-feat.csv.gz"]
    bare = load_dataset("ogbg-ppa", root, write_archive(tmp_path, files, "ogbg_ppi_medium"))
    assert (bare.x.unique().tolist(), bare.features) == ([1.0], "constant")


def test_other_features_and_parts(dataset, root, tmp_path):
    again, degrees = (load_dataset(dataset, features=features) for features in ("labels", "degree"))
    assert torch.equal(again.x, dataset.x)
    assert degrees.x.is_floating_point()
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
        ("ogbn-arxiv", "ogbn-arxiv is one graph, whose nodes are contrasted; use graphcl run"),
        ("molhiv", "unknown data set 'molhiv'; did you mean ogbg-molhiv"),
    ):
        refused(name, words)


def unpacked(root, files):
    """Write the files of an archive into `root`, as OGB's own reader does."""
    shutil.unpack_archive(write_archive(root, files, "ogbg_molhiv") / "ogbg_molhiv.zip", root)


def altered(path, change):
    return {path: files_of([(*change(x, ends), *rest) for x, ends, *rest in GRAPHS])[path]}


DAMAGE = [
    ({"raw/edge.csv.gz": None}, "cannot prepare ogbg_molhiv: one of edge.csv.gz"),
    ({"split/scaffold/test.csv.gz": None}, "test.csv.gz"),
    ({"split/scaffold/test.csv.gz": FILES["split/scaffold/valid.csv.gz"]}, "must be different indices in 0 .. 29"),
    (altered("raw/node-feat.csv.gz", lambda x, e: (x + 119, e)), "is beyond"),
    (altered("raw/edge.csv.gz", lambda x, e: (x, e + 99)), "nodes, numbered from 0"),
]


def test_damaged_archives(tmp_path, refused, root):
    for changes, words in DAMAGE:
        files = {path: content for path, content in {**FILES, **changes}.items() if content is not None}
        refused("ogbg-molhiv", words, mirror=write_archive(tmp_path / "m", files))
    unpacked(root, {path: content for path, content in FILES.items() if "RELEASE" not in path})
    refused("ogbg-molhiv", "no RELEASE_v1.txt, so they are another release of ogbg-molhiv. (if its files are damaged")


def test_code_in_the_cache_is_not_run(dataset, root, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    torch.save((Trap(), None), root / "ogbg_molhiv" / "processed" / "geometric_data_processed.pt")
    assert torch.equal(load_dataset("ogbg-molhiv", root).x, dataset.x)  # processed again
    assert not (tmp_path / "sprung").exists()


def test_augmentations_keep_categories(dataset):
    (batch,) = ResidentLoader(dataset, 30)
    there = {*map(tuple, batch.x.tolist()), (MASK,) * 9}
    for name in set(augmentations) - {"compose", "one_of", "feature_mask", "drop_and_mask"}:
        view = build_augmentation({"name": name})(batch, torch.Generator().manual_seed(0))
        assert view.x.dtype == view.edge_attr.dtype == torch.long, name
        assert {*map(tuple, view.x.tolist())} <= there, name
        assert name != "attribute_mask" or (view.x == MASK).all(dim=1).any()


def test_on_disk(dataset, tmp_path, monkeypatch):
    write_on_disk(dataset, tmp_path / "packed")
    monkeypatch.setitem(sys.modules, "ogb", None)  # a packed set is read without ogb
    mapped = load_dataset(tmp_path / "packed")
    assert repr(mapped) == repr(dataset).replace("GraphDataset", "MappedDataset")
    for part, graphs in dataset.benchmark.split.items():
        assert torch.equal(mapped.benchmark.split[part], graphs)
    assert mapped.benchmark.eval_metric == dataset.benchmark.eval_metric
    assert torch.equal(next(iter(make_loader(mapped, 30))).y, dataset.y)
