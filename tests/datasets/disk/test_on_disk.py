"""Test data sets on disk: same graphs as in memory, constant memory use, one-line messages for damaged files."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, OnDiskDataset

from graphcl.commands.pack import main as pack
from graphcl.datasets import MappedDataset, load_dataset, open_on_disk, write_on_disk
from graphcl.datasets.disk import pieces, write
from graphcl.datasets.disk.npy import npy_header
from graphcl.datasets.disk.on_disk import VERSION
from graphcl.errors import InputTypeError
from graphcl.loaders.loader import make_loader
from graphcl.loaders.resident import ResidentLoader
from graphcl.run import main as run
from tests.conftest import small_graphs
from tests.datasets.graphs import Held, one_line
from tests.datasets.graphs import graphs_with as any_graphs
from tests.strategies import assert_same_batch, assert_same_graphs, seeded

graphs_with = partial(any_graphs, keys=("x", "y"))
BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "on_disk.py"


def whole(dataset):
    return ResidentLoader(dataset, 3).batch(torch.arange(len(dataset)))


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a data set on disk."""
    graphs = graphs_with(keys=("x", "y", "edge_attr"))
    for graph in graphs:
        del graph.node_id, graph.edge_id
    write_on_disk(graphs, tmp_path / "graphs")
    return tmp_path / "graphs"


# -- the same graphs ---------------------------------------------------------------------------------------------------

ATTRIBUTES = {
    "plain": {},
    "no-features": {"keys": ("y",)},
    "no-labels": {"keys": ("x",)},
    "every-level": {"keys": ("x", "pos", "node_flag", "edge_attr", "edge_weight", "y", "target", "ragged", "scale")},
    "whole-numbers": {"keys": ("x",), "more": lambda i: {"y": 7 - 3 * (i % 2), "level": i}},
    "regression": {"keys": ("x",), "more": lambda i: {"y": i / 2}},
    "faces": {"more": lambda i: {"face": torch.arange(i).repeat(3, 1), "root_index": torch.tensor([i])}},
    "three-axes": {"more": lambda i: {"cube": torch.rand(i + 2, 2, 3), "none": torch.zeros(i + 2, 0)}},
    "dtypes": {"more": lambda i: {"a": torch.ones(1).half(), "b": torch.ones(2).short(), "c": torch.ones(1) * 1j}},
    "empty-parts": {"more": lambda i: {"rest": torch.arange(i % 2), "never": torch.zeros(0)}},
}


@pytest.mark.parametrize("attributes", ATTRIBUTES.values(), ids=ATTRIBUTES.keys())
def test_graphs_on_disk_are_those_in_memory(attributes, tmp_path):
    held = load_dataset(graphs_with(**attributes))
    mapped = write_on_disk(held, tmp_path / "graphs")
    for dataset in (mapped, open_on_disk(str(tmp_path / "graphs")), load_dataset(f"{tmp_path}/graphs")):
        assert isinstance(dataset, MappedDataset)
        assert (dataset.name, dataset.features, len(dataset)) == (held.name, held.features, len(held))
        assert dataset.labelled == held.labelled
        assert dataset.classes is held.classes is None or torch.equal(dataset.classes, held.classes)
        assert_same_batch(whole(dataset), whole(held))
        assert_same_graphs(list(dataset), list(held))


@pytest.mark.parametrize("features", ["labels", "constant", "degree", "labels+degree"])
def test_features_are_stored(features, tmp_path):
    graphs = graphs_with()
    write_on_disk(graphs, tmp_path / "graphs", features=features, max_degree=2)
    held, mapped = load_dataset(graphs, features=features, max_degree=2), load_dataset(tmp_path / "graphs")
    assert mapped.features == features
    assert torch.equal(mapped._data.x, held._data.x)
    assert load_dataset(tmp_path / "graphs", features=features).features == features
    assert mapped.degree_columns == held.degree_columns == (3 if "degree" in features else 0)
    if "degree" in features:
        one_line(lambda: load_dataset(tmp_path / "graphs", features=features, degree_columns=5), "is 5", "with 3")
    other = "constant" if features == "degree" else "degree"
    one_line(lambda: load_dataset(tmp_path / "graphs", features=other), f"{other!r}", f"{features!r}", "'auto'")


class Database(OnDiskDataset):
    """PyG's own on-disk data set."""

    @property
    def raw_file_names(self):
        return []

    def process(self):
        self.extend(graphs_with())


FORMS = {
    "generator": lambda graphs, tmp_path: iter(graphs),
    "batches": lambda graphs, tmp_path: (Batch.from_data_list(graphs[i : i + 3]) for i in (0, 3, 6)),
    "data-sets-and-graphs": lambda graphs, tmp_path: iter([graphs[0], Held(graphs[1:5]), graphs[5], graphs[6]]),
    "subset": lambda graphs, tmp_path: iter([Held(graphs)[:4], Held(graphs)[4:]]),
    "pygs-on-disk": lambda graphs, tmp_path: Database(str(tmp_path / "database"), log=False),
}


@pytest.mark.parametrize("group", [1, 3, 4096])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_every_form_of_a_source(form, group, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "_GROUP", group)
    monkeypatch.setattr(write, "_PIECE", 64)
    graphs = graphs_with()
    mapped = write_on_disk(form(graphs, tmp_path), tmp_path / "graphs")
    assert_same_batch(whole(mapped), whole(load_dataset(graphs)))


def test_classes_are_numbered_over_all_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(write, "_PIECE", 16)
    graphs = graphs_with(lambda i: {"y": [9, 9, -4, 9, 5, 5][i]}, count=6, keys=("x",))
    mapped = write_on_disk((graphs[i : i + 2] for i in (0, 2, 4)), tmp_path / "graphs", name="odd")
    assert mapped.classes.tolist() == [-4, 5, 9]
    assert mapped.y.tolist() == [2, 2, 0, 2, 1, 1]
    assert mapped.name == "odd"


def test_a_part_of_a_data_set_on_disk(folder):
    mapped = open_on_disk(folder)
    held = list(mapped)
    for chosen in (slice(2, 6), slice(0, 3), slice(6, 7), slice(0, 6, 2)):
        part = mapped[chosen]
        assert_same_batch(whole(part), Batch.from_data_list([held[i] for i in range(7)[chosen]]))
    (x,) = (held["x"][0] for _, held in ResidentLoader(mapped[2:6], 2)._levels if "x" in held)
    assert x.data_ptr() == mapped._data.x.data_ptr()


@pytest.mark.parametrize("chosen", [slice(2, 6), [5, 1, 3]], ids=str)
@pytest.mark.parametrize("features", ["labels", "degree"])
def test_a_part_is_written_as_a_part(chosen, features, tmp_path):
    held = load_dataset(graphs_with(), features=features)
    mapped = write_on_disk(held, tmp_path / "whole")
    for number, part in enumerate((held[chosen], mapped[chosen])):
        again = write_on_disk(part, tmp_path / str(number))
        assert again.features == features
        assert [graph.node_id.tolist() for graph in again] == [graph.node_id.tolist() for graph in part]
        assert all(torch.equal(graph.x, own.x) for graph, own in zip(again, part, strict=True))


def test_numpy_reads_the_files(folder):
    mapped = open_on_disk(folder)
    for key in ("x", "edge_index", "edge_attr", "y"):
        assert np.array_equal(np.load(folder / f"{key}.npy", allow_pickle=False), mapped._data[key].numpy())
    # Attributes with equal slices (`edge_index` and `edge_attr`) share one file.
    assert {file.name.partition(".")[0] for file in folder.glob("*.slices.npy")} == {"edge_index", "x", "y"}


def test_writing_into_a_tensor_leaves_the_files_alone(folder):
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    for value in open_on_disk(folder)._data._store.values():
        value.zero_()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


# -- writing -----------------------------------------------------------------------------------------------------------


def mixed(**change):
    return iter([*graphs_with(count=3), *graphs_with(count=3, **change)])


UNWRITABLE = {
    "none": (lambda: iter([]), "no graph; contrasting graphs needs at least two"),
    "one": (lambda: iter(graphs_with(count=1)), "1 graph; contrasting graphs needs at least two"),
    "no-graph": (lambda: iter([*graphs_with(), "text"]), "graph 1 must be a torch_geometric.data.Data, got str"),
    "number": (lambda: 5, "`source` must be"),
    "text": (lambda: graphs_with(keys=("x", "name")), "`name` cannot be stored, only tensors and numbers"),
    "mixed-types": (lambda: mixed(more=lambda i: {"y": 0.5}), "cannot be put together"),
    "missing-attribute": (lambda: mixed(keys=("x",)), "graph 1 has no `y`"),
    "other-width": (lambda: mixed(more=lambda i: {"x": torch.ones(i + 2, 5)}), "`x` of graph 1 has shape [2, 5]"),
    "other-dtype": (lambda: mixed(more=lambda i: {"y": torch.tensor([0.5])}), "of float32, before it was"),
    "nan": (lambda: mixed(more=lambda i: {"x": torch.full((i + 2, 2), torch.nan)}), "(graphs from 2 on): `x` has"),
    "bfloat16": (lambda: graphs_with(more=lambda i: {"e": torch.ones(1).bfloat16()}), "`e`, [7] of bfloat16, cannot"),
}


@pytest.mark.parametrize(("source", "message"), UNWRITABLE.values(), ids=UNWRITABLE)
def test_a_failed_write_leaves_nothing(source, message, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "_GROUP", 2)
    one_line(lambda: write_on_disk(source(), tmp_path / "graphs"), message)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_writer_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "_GROUP", 2)

    def interrupted():
        yield from graphs_with()
        assert not (tmp_path / "graphs").exists()
        assert list(tmp_path.iterdir()) != []
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_on_disk(interrupted(), tmp_path / "graphs")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, lambda target: target.symlink_to("nowhere")])
def test_nothing_is_overwritten(make, tmp_path):
    make(tmp_path / "graphs")
    one_line(lambda: write_on_disk(graphs_with(), tmp_path / "graphs"), "graphs' exists already")
    assert [each.name for each in tmp_path.iterdir()] == ["graphs"]


def test_folders_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    for path, words in (("nowhere", ["nowhere' not found"]), ("file", ["file' not found"]), ("", ["graphcl pack"])):
        one_line(lambda path=path: open_on_disk(tmp_path / path), *words)
    one_line(lambda: write_on_disk(graphs_with(), tmp_path / "file" / "graphs"), "cannot write", "file/graphs")
    for make in (lambda: write_on_disk(graphs_with(), 5), lambda: open_on_disk(b"x")):
        with pytest.raises(InputTypeError, match="`folder` must be a path"):
            make()


# -- damage ------------------------------------------------------------------------------------------------------------


def meta(**changes):
    def damage(folder):
        file = folder / "graphcl.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return damage


def raw(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def array(name, values):
    return lambda folder: np.save(folder / name, values, allow_pickle=True)


def other_slices(folder):
    meta(attributes={**SAME, "edge_attr": "edge_attr", "y": "y"})(folder)
    cut = np.load(folder / "edge_index.slices.npy")
    cut[1] = 0
    np.save(folder / "edge_attr.slices.npy", cut)


SAME = {"x": "x", "edge_index": "edge_index"}
DAMAGE = {
    "no-file": (lambda folder: (folder / "x.npy").unlink(), "file x.npy not found"),
    "cut-off": (lambda folder: os.truncate(folder / "x.npy", 300), "x.npy has 300 bytes, but its header claims"),
    "no-npy": (raw("x.npy", b"text" * 99), "x.npy is not a .npy file"),
    "empty": (raw("x.npy", b""), "x.npy is not a .npy file"),
    "huge-and-empty": (raw("x.npy", npy_header(torch.float32, (0, 10**15))), "of shape (0, 1000000000000000)"),
    "pickle": (array("x.npy", np.array([{}, "a"])), "'|O'"),
    "other-order": (array("x.npy", np.ones((35, 2), ">f4")), "'>f4'"),
    "fortran": (array("x.npy", np.ones((35, 2), np.float32, "F")), "Fortran"),
    "whole-numbers": (array("x.npy", np.ones((35, 2), np.int32)), "x.npy must be [N, F] of floating numbers or int64"),
    "other-length": (array("x.npy", np.ones((34, 2), np.float32)), "x.npy has 34 entries, but x.slices.npy ends at 35"),
    "edges-across": (array("edge_index.npy", np.ones((3, 48), np.int64)), "[2, E] of int64, got [3, 48]"),
    "classes": (array("y.npy", np.ones(7, np.float32)), "y.npy must be [7] of int64"),
    "other-classes": (array("y.npy", np.full(7, 99)), "y.npy must be in [0, 7)"),
    "slices": (array("x.slices.npy", np.ones(8, np.int64)), "x.slices.npy must be [8] of int64, start at 0 and ascend"),
    "falling-slices": (array("x.slices.npy", np.array([0, 2, 5, 4, 14, 20, 27, 35])), "start at 0 and ascend"),
    "other-slices": (other_slices, "slices of edge_attr.npy and edge_index.npy differ"),
    "no-json": (raw("graphcl.json", b"{"), "JSON"),
    "deep-json": (raw("graphcl.json", b"[" * 10**6), "JSON"),
    "version": (meta(version=1), f"`version` is 1, but this library reads {VERSION}"),
    "lines-in-the-name": (meta(name="a\nb"), "`name`"),
    "features": (meta(features="pretty"), "got pretty"),
    "degree-columns": (meta(degree_columns=-1), "`degree_columns`"),
    "many-degrees": (meta(degree_columns=10**9), "`degree_columns` is 1000000000, but x.npy has 2 columns"),
    "other-count": (meta(num_graphs=8), "for 8 graphs"),
    "huge-count": (meta(num_graphs=10**30), "`num_graphs`"),
    "no-edges": (meta(attributes={"x": "x"}), "`attributes` must map x, edge_index"),
    "escape": (meta(attributes={**SAME, "../../etc/passwd": "x"}), "'../../etc/passwd' cannot be stored"),
    "pygs-own": (meta(attributes={**SAME, "ptr": "x"}), "'ptr' cannot be stored"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_reported_in_one_line(damage, message, folder):
    damage(folder)
    one_line(lambda: open_on_disk(folder), str(folder), message)
    one_line(lambda: load_dataset(str(folder)), message)


# -- command lines -----------------------------------------------------------------------------------------------------


def test_runs_from_disk_and_from_memory_are_the_same(tmp_path, capsys, saved_graphs):
    """With category features, a run gives equal embeddings from a .pt file and from a folder on disk."""
    held, packed = saved_graphs(molecules=True), str(tmp_path / "graphs")
    assert pack(["--dataset", held, "--out", packed, "--categories"]) == 0
    assert "36 graphs, x: 9 columns (labels), edge_attr: 3 columns, 2 classes" in capsys.readouterr().out
    line = "--encoder molecule_gine --encoder.hidden_channels 8 --encoder.num_layers 2 --epochs 2 --seeds 0 --eval knn"
    words = f"{line} --batch-size 16 --report false".split()
    for dataset, out in ((held, "a"), (packed, "b")):
        assert run(["--dataset", dataset, "--out", str(tmp_path / out), *words]) == 0
    a, b = (np.load(tmp_path / out / "embeddings.npz")["h"] for out in "ab")
    assert np.array_equal(a, b)
    assert run(["--dataset", packed, "--out", str(tmp_path / "c"), "--shuffle-window", "16", *words]) == 0


def test_pack_shows_its_progress(tmp_path, capsys, monkeypatch):
    written = []
    monkeypatch.setattr("tqdm.tqdm.update", lambda bar, size: written.append(size))
    assert pack(["--dataset", "synthetic", "--out", str(tmp_path / "new")]) == 0
    files = [*(tmp_path / "new").iterdir()]
    assert sum(written) == sum(
        np.load(each).nbytes for each in files if each.name.count(".") == 1 and "npy" in each.name
    )
    printed = capsys.readouterr()
    assert printed.out.startswith("loading synthetic ...\n")
    assert printed.out.endswith(f"; {sum(each.stat().st_size for each in files) / 1e6:.1f} MB in {tmp_path}/new\n")
    assert printed.err == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "`--dataset` and `--out` must be given"),
        ("--dataset synthetic", "--out"),
        ("--dataset synthetic --out EXISTS", "exists already"),
        ("--dataset ./nowhere --out new", "'nowhere'"),
        ("--dataset synthetic --out new --max-degree 0", "max_degree"),
        ("--dataset synthetic --out new --data x", "--data"),
    ],
)
def test_mistakes_on_packs_command_line(words, told, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "EXISTS").mkdir()
    assert pack(words.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("graphcl: ")
    assert error.count("\n") == 1
    assert told in error
    assert [each.name for each in tmp_path.iterdir()] == ["EXISTS"]


# -- edges are checked when they are read ------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [-1, 10**15, 30])
def test_edges_that_leave_their_graph(end, tmp_path, capfd):
    """Every way to read the graphs raises an InputError that names `edge_index.npy`, without out-of-bounds access."""
    folder = write_on_disk(small_graphs(12, labelled=False), tmp_path / "graphs").folder
    edges = np.load(folder / "edge_index.npy")
    edges[1, 40] = end
    np.save(folder / "edge_index.npy", edges)
    dataset = open_on_disk(folder)
    says = "edge_index.npy has an edge that leaves its graph; write the folder again."
    one_line(lambda: list(ResidentLoader(dataset, 3)), says)
    one_line(lambda: list(make_loader(dataset, 3)), says)
    one_line(lambda: list(dataset), says)
    assert run(["--dataset", str(folder), "--epochs", "1", "--seeds", "0", "--out", str(folder / "run")]) == 2
    assert says in capfd.readouterr().err


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="tells memory on Linux only")
def test_memory_does_not_grow_with_the_graphs(tmp_path):
    """Test anonymous memory only: the system can reclaim the pages of mapped files."""
    words = ["--graphs", "60000", "--shard", "5000", "--steps", "8", "--out", str(tmp_path / "graphs")]
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARK.parents[1])}
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *words], capture_output=True, text=True, check=True, env=environment
    )
    found = json.loads(done.stdout)
    assert found["disk_mb"] > 75
    assert found["train_anonymous_mb"] < 64
    assert found["write_anonymous_mb"] < 160  # one shard, in several copies while it is generated
    assert not (tmp_path / "graphs").exists()


def test_a_set_far_larger_than_the_memory_can_be_mapped(folder):
    """Map a sparse file of 8 TB; its pages are neither read nor reserved before the first access."""
    rows = 2**40
    header = npy_header(torch.float32, (rows, 2))
    try:
        with (folder / "x.npy").open("wb") as file:
            file.write(header)
            file.truncate(len(header) + rows * 8)
    except OSError:
        pytest.skip("no file of 8 TB here")
    slices = np.load(folder / "x.slices.npy")
    slices[-1] = rows
    np.save(folder / "x.slices.npy", slices)
    mapped = open_on_disk(folder)
    assert mapped._data.x.shape == (rows, 2)
    assert mapped[1].x.sum() == 0
    assert ResidentLoader(mapped, 3, True, seeded(0)).batch(torch.tensor([2, 0])).num_nodes == 6
