"""Test data sets on disk: same graphs as in memory, constant memory use, one-line messages for damaged files."""

import json
import os
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, OnDiskDataset

from graphcl.commands.pack import main as pack
from graphcl.config import make_config
from graphcl.datasets import MappedDataset, load_dataset, open_on_disk, preparation, write_on_disk
from graphcl.datasets.on_disk import npy_header
from graphcl.graphs.compact import Compact
from graphcl.loaders.loader import _expanded, make_loader
from graphcl.loaders.resident import ResidentLoader
from graphcl.run import main as run
from tests.conftest import small_graphs
from tests.datasets import graphs as any_graphs
from tests.datasets.graphs import Held, one_line
from tests.memory import peak
from tests.strategies import assert_same_batch, assert_same_graphs, seeded
from tests.trials import run_seed

graphs_with = partial(any_graphs.graphs_with, keys=("x", "y"))


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


ATTRIBUTES = {
    "no-features": {"keys": ("y",)},
    "every-level": {"keys": ("x", "pos", "node_flag", "edge_attr", "edge_weight", "y", "target", "ragged", "scale")},
    "whole-numbers": {"keys": ("x",), "more": lambda i: {"y": 7 - 3 * (i % 2), "level": i}},
    "regression-and-faces": {"more": lambda i: {"y": i / 2, "face": torch.arange(i).repeat(3, 1)}},
    "three-axes": {"more": lambda i: {"cube": torch.rand(i + 2, 2, 3), "rest": torch.arange(i % 2)}},
    "strings": {"more": lambda i: {"id": "" if i == 2 else f"graph ü{i}", "note": "same"}},
    "dtypes": {"more": lambda i: {"a": torch.ones(1).half(), "b": torch.ones(2).short(), "c": torch.ones(1) * 1j}},
}


def test_graphs_on_disk_are_those_in_memory(tmp_path):
    for name, attributes in ATTRIBUTES.items():
        held = load_dataset(graphs_with(**attributes))
        mapped = write_on_disk(held, tmp_path / name)
        for dataset in (mapped, load_dataset(f"{tmp_path}/{name}")):
            assert isinstance(dataset, MappedDataset)
            assert repr(dataset) == repr(held).replace("GraphDataset", "MappedDataset"), name
            assert dataset.classes is held.classes is None or torch.equal(dataset.classes, held.classes)
            assert_same_batch(whole(dataset), whole(held))
            assert_same_graphs(list(dataset), list(held))


def test_features_are_stored(tmp_path):
    for features, other in (("labels", "degree"), ("degree", "constant"), ("labels+degree", "labels")):
        held = load_dataset(graphs_with(), features=features, max_degree=2)
        write_on_disk(graphs_with(), tmp_path / features, features=features, max_degree=2)
        mapped = load_dataset(tmp_path / features, features=features)
        assert torch.equal(mapped._data.x, held._data.x)
        assert (mapped.features, mapped.degree_columns) == (features, held.degree_columns)
        one_line(lambda at=tmp_path / features, other=other: load_dataset(at, features=other), f"{other!r}", features)


SEVEN = graphs_with(lambda i: {"y": [9, 9, -4, 9, 5, 5, 9][i]}, keys=("x",))


class Database(OnDiskDataset):
    raw_file_names = ()

    def process(self):
        self.extend(SEVEN)


def test_every_form_of_a_source(tmp_path, monkeypatch):
    forms = {
        "generator": lambda: iter(SEVEN),
        "batches": lambda: (Batch.from_data_list(SEVEN[i : i + 3]) for i in (0, 3, 6)),
        "data-sets-and-graphs": lambda: iter([SEVEN[0], Held(SEVEN[1:5]), SEVEN[5], Held(SEVEN)[6:]]),
        "pygs-on-disk": lambda: Database(str(tmp_path / "database"), log=False),
    }
    for group in (1, 3, 4096):
        monkeypatch.setattr(preparation, "_GROUP", group)
        for name, form in forms.items():
            mapped = write_on_disk(form(), tmp_path / f"{name}-{group}", name="odd")
            assert (mapped.name, mapped.classes.tolist()) == ("odd", [-4, 5, 9])  # numbered over all pieces
            assert_same_batch(whole(mapped), whole(load_dataset(SEVEN)))


def test_a_part_of_a_data_set_on_disk(tmp_path):
    given = load_dataset(graphs_with(keys=("x",)), features="degree")
    mapped = write_on_disk(given, tmp_path / "whole")
    for chosen in (slice(2, 6), slice(6, 7), slice(0, 6, 2)):
        assert_same_batch(whole(mapped[chosen]), Batch.from_data_list(list(mapped)[chosen]))
    for number, source in enumerate((given, mapped)):
        part = source[[5, 1, 3]]
        again = write_on_disk(part, tmp_path / str(number))
        assert again.features == "degree"
        assert_same_graphs(list(again), list(part))


def test_numpy_reads_the_files_and_writing_into_a_tensor_leaves_them_alone(folder):
    mapped = open_on_disk(folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    for key in ("x", "edge_index", "edge_attr", "y"):
        stored = getattr(mapped._data[key], "raw", mapped._data[key])  # the bytes of compact columns
        assert np.array_equal(np.load(folder / f"{key}.npy", allow_pickle=False), stored.numpy())
    for value in mapped._data._store.values():
        getattr(value, "raw", value).zero_()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def mixed(**change):
    return iter([*graphs_with(count=3), *graphs_with(count=3, **change)])


def interrupted(place):
    yield from graphs_with()
    assert not (place / "graphs").exists()
    raise KeyboardInterrupt


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "_GROUP", 2)
    for source, message in (
        (iter([*graphs_with(), "text"]), "graph 1 must be a torch_geometric.data.Data, got str"),
        (mixed(more=lambda i: {"y": torch.tensor([0.5])}), "`y` of the graphs from 2 on is [2] of float32; use one"),
        (
            mixed(more=lambda i: {"x": torch.full((i + 2, 2), torch.nan)}),
            "(graphs from 2 on): 1 of 2 graphs are invalid: graph 3 has nan in `x`",
        ),
        (graphs_with(more=lambda i: {"../e": 1}), "attribute '../e' cannot be stored"),
    ):
        one_line(lambda source=source: write_on_disk(source, tmp_path / "graphs"), message)
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyboardInterrupt):
        write_on_disk(interrupted(tmp_path), tmp_path / "graphs")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "link").symlink_to("nowhere")
    one_line(lambda: write_on_disk(graphs_with(), tmp_path / "link"), "link' exists already")
    one_line(lambda: open_on_disk(tmp_path / "link"), "link is not a data set on disk: graphcl.json not found")


SAME = {"x": "x", "edge_index": "edge_index"}
DAMAGE = [
    ({"x.npy": None}, "file x.npy not found"),
    ({"x.npy": npy_header(torch.float32, (35, 2))}, "x.npy has 256 bytes, but its header claims"),
    ({"x.npy": b"text" * 99}, "x.npy is not a .npy file"),
    ({"x.npy": npy_header(torch.float32, (0, 10**15))}, "of shape (0, 1000000000000000)"),
    ({"x.npy": np.array([{}, "a"])}, "'|O'"),
    ({"x.npy": np.ones((35, 2), np.float32, "F")}, "Fortran"),
    ({"x.npy": np.ones((34, 2), np.float32)}, "x.npy must be of 35 entries, as x.slices.npy, got [34, 2] of"),
    ({"x.slices.npy": np.ones(8, np.int64)}, "x.slices.npy must be [8] of int64, start at 0 and ascend"),
    ({"graphcl.json": b"[" * 10**6}, "JSON"),
    ({"graphcl.json": {"version": 1}}, "`version` must be 3, got 1. Write the folder again."),
    ({"graphcl.json": {"attributes": {"x": "x"}}}, "`attributes` must map x, edge_index"),
    ({"graphcl.json": {"attributes": {**SAME, "../../etc/passwd": "x"}}}, "'../../etc/passwd' cannot be stored"),
]


def test_damage_is_reported_in_one_line(folder):
    for number, (changes, message) in enumerate(DAMAGE):
        damaged = shutil.copytree(folder, folder.with_name(str(number)))
        for name, content in changes.items():
            file = damaged / name
            if content is None:
                file.unlink()
            elif isinstance(content, dict):
                file.write_text(json.dumps(json.loads(file.read_text()) | content))
            else:
                file.write_bytes(content) if isinstance(content, bytes) else np.save(file, content)
        one_line(lambda damaged=damaged: load_dataset(str(damaged)), str(damaged), message)


def test_edges_that_leave_their_graph(tmp_path):
    """Every way to read the graphs raises an InputError that names `edge_index.npy`, without out-of-bounds access."""
    mapped = write_on_disk(small_graphs(12, labelled=False), tmp_path / "graphs")
    nodes, says = mapped[2].num_nodes, "edge_index.npy has an edge that leaves its graph; write it again."
    edges = mapped._data.edge_index.numpy().copy()
    for end in (-1, nodes, 10**15):
        edges[1, int(mapped.slices["edge_index"][2])] = end
        np.save(mapped.folder / "edge_index.npy", edges)
        dataset = open_on_disk(mapped.folder)
        for read in (lambda data: ResidentLoader(data, 3), lambda data: make_loader(data, 3), list):
            one_line(lambda read=read, dataset=dataset: list(read(dataset)), says)


def test_features_that_are_not_finite(tmp_path):
    graphs = small_graphs(12, labelled=False, edge_attr=True)
    for graph in graphs:
        graph.x, graph.edge_attr = graph.x / 3, graph.edge_attr / 3  # which no compact column holds
    for key in ("x", "edge_attr"):
        for value in (np.nan, np.inf, -1e30):
            mapped = write_on_disk(graphs, tmp_path / f"{key}{value}")
            values = np.load(mapped.folder / f"{key}.npy")
            values[-1, 1] = value
            np.save(mapped.folder / f"{key}.npy", values)
            dataset, says = open_on_disk(mapped.folder), f"{key}.npy has a value that is NaN, infinite or beyond 1e+15"
            for read in (lambda data: ResidentLoader(data, 3), lambda data: make_loader(data, 3), list):
                one_line(lambda read=read, dataset=dataset: list(read(dataset)), says)
            one_line(lambda dataset=dataset: ResidentLoader(dataset[6:], 3, device="meta"), says)
            ResidentLoader(dataset[:6], 3, device="meta")


def test_compact_columns_are_exact_though_later_graphs_need_a_finer_layout(tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "_GROUP", 4)
    generator, graphs = torch.Generator().manual_seed(0), small_graphs(12)
    for number, graph in enumerate(graphs):
        kind = torch.nn.functional.one_hot(torch.randint(20, (graph.num_nodes,), generator=generator), 20).float()
        count = torch.randint(9, (graph.num_nodes, 2), generator=generator) / (1 if number < 9 else 3)
        graph.x = torch.cat([kind, count], 1)
        if number > 5:
            graph.x[0, :20] = torch.arange(20) < 2  # two categories at once
    mapped = write_on_disk(iter(graphs), tmp_path / "graphs")
    meta = json.loads((mapped.folder / "graphcl.json").read_text())["compact"]["x"]
    assert (meta["kinds"], meta["widths"]) == (["code8", "code8", "float32"], [1, 19, 2])
    assert mapped._data.x.nbytes == mapped._data.x.size(0) * 10
    assert_same_batch(whole(mapped), whole(load_dataset(graphs)))
    again = write_on_disk(mapped, tmp_path / "again")
    assert torch.equal(again._data.x, mapped._data.x)


def test_a_large_set_in_memory_is_compact_and_trains_the_same(tmp_path, monkeypatch):
    settings = {"encoder": {"name": "gin", "hidden_channels": 8}, "epochs": 2, "batch_size": 12, "seeds": [0]}
    config, held = make_config({**settings, "eval": "none"}), load_dataset(small_graphs(edge_attr=True))
    monkeypatch.setattr(preparation, "_LARGE", 1)
    compact = load_dataset(small_graphs(edge_attr=True))
    assert compact._data.x.nbytes == held._data.x.nbytes / 12
    assert compact.fingerprint() == held.fingerprint()
    assert repr(compact) == repr(held)
    a, b = (run_seed(config, dataset, 0).h for dataset in (held, compact))
    assert torch.equal(a, b)
    on_device = ResidentLoader(compact, 4)
    on_device.expands = False
    batch = next(iter(on_device))
    assert isinstance(batch.x, Compact)
    assert_same_batch(_expanded(batch), next(iter(ResidentLoader(held, 4))))
    single = load_dataset(small_graphs(1))
    assert type(single[0].x) is torch.Tensor
    assert torch.equal(write_on_disk(single, tmp_path / "one")[0].x, small_graphs(1)[0].x)


def test_runs_from_disk_and_from_memory_are_the_same(tmp_path, capsys, saved_graphs):
    """With category features, a run gives equal embeddings from a .pt file and from a folder on disk."""
    held, packed = saved_graphs(molecules=True), str(tmp_path / "graphs")
    assert pack(["--dataset", held, "--out", packed, "--categories"]) == 0
    printed = capsys.readouterr().out
    assert "36 graphs, x: 9 columns (labels), edge_attr: 3 columns, 2 classes" in printed
    assert printed.endswith(f" MB in {packed}\n")
    line = "--encoder molecule_gine --encoder.hidden_channels 8 --encoder.num_layers 2 --epochs 2 --seeds 0 --eval knn"
    words = f"{line} --batch-size 16 --report false".split()
    for dataset, out in ((held, "a"), (packed, "b")):
        assert run(["--dataset", dataset, "--out", str(tmp_path / out), *words]) == 0
    a, b = (np.load(tmp_path / out / "embeddings.npz")["h"] for out in "ab")
    assert np.array_equal(a, b)


def test_memory_does_not_grow_with_the_graphs(tmp_path):
    edges = torch.tensor([[0, 1], [1, 0]])
    shard = Held([Data(x=torch.rand(8, 512), edge_index=edges) for _ in range(128)])  # 2 MB
    write_on_disk((shard for _ in range(2)), tmp_path / "few")
    with peak() as grown:
        mapped = write_on_disk((shard for _ in range(48)), tmp_path / "graphs")
    assert mapped._data.x.nbytes == 48 * 2**21
    assert grown[0] < 32 * 2**20


def test_a_set_far_larger_than_the_memory_can_be_mapped(folder):
    """Map a sparse file of 1 TB; its pages are neither read nor reserved before the first access."""
    rows = 2**37
    header = npy_header(torch.float32, (rows, 2))
    (folder / "x.npy").write_bytes(header)
    os.truncate(folder / "x.npy", len(header) + rows * 8)
    slices = np.load(folder / "x.slices.npy")
    slices[-1] = rows
    np.save(folder / "x.slices.npy", slices)
    mapped = open_on_disk(folder)
    assert mapped._data.x.shape == (rows, 2)
    assert mapped[1].x.sum() == 0
    assert ResidentLoader(mapped, 3, True, seeded(0)).batch(torch.tensor([2, 0])).num_nodes == 6
