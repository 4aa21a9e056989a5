"""Test sets of nodes that PyG's classes and ogb load by name, from files in their formats, without the network."""

import importlib.util
import json
import os
import pickle
from collections import defaultdict

import numpy as np
import pytest
import torch
import torch_geometric.datasets
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from graphcl.datasets import load_dataset
from graphcl.datasets.names import PYG_NAMES
from graphcl.errors import InputError
from tests.datasets.graphs import one_line
from tests.datasets.ogb_files import gz, write_archive

N = 30
EDGES = np.array([[i, (i + 1) % N] for i in range(N)])
X = np.random.default_rng(0).integers(0, 3, (N, 4)) + np.array([1, 0, 0, 0])
Y = np.arange(N) % 3


pytestmark = pytest.mark.usefixtures("offline")


def write_planetoid(folder, **changes):
    """Write 510 nodes, of which 2 train, 500 validate and 3 test; nodes 506 and 508 lack a row, as 15 of CiteSeer."""
    x, y = np.arange(1020, dtype=np.float32).reshape(510, 2) + 1, np.eye(2, dtype=np.int32)[np.arange(510) % 2]
    order = [509, 505, 507]
    graph = defaultdict(list, {node: [(node + 1) % 510, node, (node + 1) % 510] for node in range(510)})
    files = {
        "x": csr_matrix(x[:2]), "y": y[:2], "allx": csr_matrix(x[:505]), "ally": y[:505],
        "tx": csr_matrix(x[order]), "ty": y[order], "graph": graph, "test.index": b"509\n505\n507\n",
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    for part, value in {**files, **changes}.items():
        content = value if isinstance(value, bytes) else pickle.dumps(value, protocol=2)
        (folder / f"ind.citeseer.{part}").write_bytes(content)
    return folder, torch.from_numpy(x), torch.from_numpy(y.argmax(1))


def load_planetoid(folder):
    return load_dataset("CiteSeer", folder / "data", folder, nodes=True)


def test_planetoid(tmp_path):
    _, x, y = write_planetoid(tmp_path)
    dataset = load_planetoid(tmp_path)
    graph = dataset[0]
    x[[506, 508]], y[[506, 508]] = 0, 0
    torch.testing.assert_close(graph.x, x / x.sum(1, keepdim=True).clamp(min=1))
    assert graph.y.tolist() == y.tolist()
    assert (graph.is_undirected(), graph.has_self_loops(), graph.num_edges) == (True, False, 1020)
    assert {part: nodes.tolist() for part, nodes in dataset.split.items()} == {
        "train": [0, 1], "valid": [*range(2, 502)], "test": [505, 507, 509],
    }  # fmt: skip
    again = load_dataset("CiteSeer", tmp_path / "data", nodes=True)  # from the cache
    assert torch.equal(again[0].edge_index, graph.edge_index)
    theirs = torch_geometric.datasets.Planetoid(str(tmp_path / "data"), "CiteSeer")
    assert torch.equal(theirs[0].y, graph.y)


class Code:
    def __reduce__(self):
        return os.mkdir, ("pwned",)


OUT_OF_RANGE = csr_matrix(np.eye(2, dtype=np.float32))
OUT_OF_RANGE.indices[0] = 9
DAMAGE = [
    ({"graph": Code()}, f"ind.citeseer.graph is damaged, or not a file of Planetoid: it needs {os.name}.mkdir, which"),
    *(({"graph": f"c{name}\n.".replace(" ", "\n").encode()}, f"it needs {name.replace(' ', '.')}, which")
      for name in ("builtins eval", "numpy load", "scipy.sparse.csr _load", "numpy.core.multiarray scalar")),
    *(({part: damage}, f"ind.citeseer.{part} is damaged") for part in ("x", "graph") for damage in (b"", b"nonsense")),
    *(({part: b"\x80\x02]q\x00."}, "cannot prepare CiteSeer") for part in ("x", "allx", "ty", "graph")),
    ({"tx": OUT_OF_RANGE}, "ind.citeseer.tx is damaged"),
    ({"graph": {0: [2**60], 1: [0]}}, "an edge joins a node that is not in the file"),
    ({"test.index": b"509\n505\nx\n"}, "cannot prepare CiteSeer: invalid literal for int"),
]  # fmt: skip


def test_damaged_planetoid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for changes, message in DAMAGE:
        write_planetoid(tmp_path, **changes)
        one_line(lambda: load_planetoid(tmp_path), message)
        assert not (tmp_path / "pwned").exists()
        assert not (tmp_path / "data" / "CiteSeer").exists()


@settings(deadline=None, max_examples=15)
@given(part=st.sampled_from(["x", "allx", "ally", "tx", "graph"]), place=st.floats(0, 0.999), value=st.integers(0, 255))
def test_changed_bytes_of_planetoid_are_read_or_refused(part, place, value, tmp_path_factory):
    folder, *_ = write_planetoid(tmp_path_factory.mktemp("fuzz"))
    content = bytearray((folder / f"ind.citeseer.{part}").read_bytes())
    content[int(place * len(content))] = value
    (folder / f"ind.citeseer.{part}").write_bytes(content)
    try:
        assert load_planetoid(folder)[0].validate()
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017


def write_npz(folder, name):
    """Write a graph in the format of Amazon, Coauthor and CitationFull: a ring of N nodes and a self-loop."""
    edges = np.concatenate([EDGES, [[0, 0]]])
    parts = {"adj": csr_matrix((np.ones(len(edges)), edges.T), (N, N)), "attr": csr_matrix(X.astype(np.float32))}
    content = {f"{key}_{name}": getattr(m, name) for key, m in parts.items() for name in ("data", "indices", "indptr")}
    folder.mkdir(exist_ok=True)
    np.savez(folder / name, labels=Y, **content, **{f"{key}_shape": m.shape for key, m in parts.items()})
    return folder


def test_bags_of_words_of_pyg(tmp_path):
    files = {"Amazon-Photo": "amazon_electronics_photo", "Coauthor-CS": "ms_academic_cs", "CitationFull-DBLP": "dblp"}
    for name, file in files.items():
        dataset = load_dataset(name, tmp_path / "data", write_npz(tmp_path / "mirror", f"{file}.npz"), nodes=True)
        assert repr(dataset) == f"NodeDataset('{name}', 30 nodes, 1 graph, x: 4 columns (labels), 3 classes)"
        words = torch.from_numpy(X > 0).float()
        torch.testing.assert_close(dataset[0].x, words / words.sum(1, keepdim=True))
        assert (dataset.y.tolist(), dataset[0].num_edges) == (Y.tolist(), 2 * N)
        again = load_dataset(name, tmp_path / "data", nodes=True)  # from the cache
        assert torch.equal(again[0].x, dataset[0].x)


def test_features_of_real_numbers_are_kept(tmp_path):
    x = (X - 1.5).tolist()
    masks = {"train_masks": [[True] * N] * 20, "val_masks": [[True] * N] * 20, "stopping_masks": [[True] * N] * 20}
    content = {"features": x, "labels": Y.tolist(), "links": [[int(v)] for v in EDGES[:, 1]]}
    (tmp_path / "data.json").write_text(json.dumps(content | masks | {"test_mask": [True] * N}))
    dataset = load_dataset("WikiCS", tmp_path / "data", tmp_path, nodes=True)
    assert dataset[0].x.tolist() == x
    assert (dataset[0].num_edges, dataset.split) == (2 * N, None)


def test_every_name_is_a_class_of_pyg_and_sets_that_cannot_be_loaded_get_one_line(tmp_path):
    for name in PYG_NAMES:
        kind = getattr(torch_geometric.datasets, name.partition("-")[0])
        assert issubclass(kind, torch_geometric.data.InMemoryDataset)
    (tmp_path / "dblp.npz").write_bytes(b"text")
    for name, mirror, message in (
        ("Amazon-Photo", None, ["cannot prepare Amazon-Photo: ", "Name or service not known"]),
        ("CiteSeer", None, ["cannot download https://github.com/kimiyoung/", "pass its folder as `mirror`"]),
        ("WikiCS", "nowhere", ["nowhere' is not a folder with data.json"]),
        ("CitationFull-DBLP", ".", ["cannot prepare CitationFull-DBLP: ", "get its files again"]),
        ("ogbn-mag", None, ["'ogbn-mag' is not supported; sets of one class per node: ogbn-arxiv, ogbn-"]),
        ("Amazon-Phot", None, ["'Amazon-Phot' is not a known", "did you mean Amazon-Photo or", "Known: Cora, "]),
    ):
        place = mirror and tmp_path / mirror
        one_line(lambda name=name, place=place: load_dataset(name, tmp_path / "data", place, nodes=True), *message)


def test_ogbn(tmp_path):
    if importlib.util.find_spec("ogb") is None:
        pytest.skip("ogb is not installed")
    parts = {"train": range(10), "valid": range(10, 20), "test": range(20, 30)}
    files = {
        "RELEASE_v1.txt": b"",
        "raw/num-node-list.csv.gz": gz([[N]]),
        "raw/num-edge-list.csv.gz": gz([[N]]),
        "raw/edge.csv.gz": gz(EDGES.tolist()),
        "raw/node-feat.csv.gz": gz((X / 2).tolist()),
        "raw/node-label.csv.gz": gz([[y] for y in Y.tolist()]),
        "raw/node_year.csv.gz": gz([[2000]] * N),
        **{f"split/time/{part}.csv.gz": gz([[i] for i in rows]) for part, rows in parts.items()},
    }
    dataset = load_dataset("ogbn-arxiv", tmp_path, write_archive(tmp_path / "mirror", files, "arxiv"), nodes=True)
    graph = dataset[0]
    assert graph.x.tolist() == (X / 2).tolist()
    assert (graph.is_undirected(), graph.num_edges, dataset.y.tolist()) == (True, 2 * N, Y.tolist())
    assert {part: nodes.tolist() for part, nodes in dataset.split.items()} == {k: [*v] for k, v in parts.items()}
    again = load_dataset("ogbn-arxiv", tmp_path, nodes=True)  # from the cache
    assert torch.equal(again[0].edge_index, graph.edge_index)
