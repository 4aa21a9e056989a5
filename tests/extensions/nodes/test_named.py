"""Test sets of nodes that PyG's classes and ogb load by name, from files in their formats, without the network."""

import json
import os
import pickle
from collections import defaultdict

import numpy as np
import pytest
import torch
import torch_geometric.datasets
from scipy.sparse import csr_matrix

from graphcl.datasets import load_dataset
from graphcl.extensions.nodes.datasets import PYG_NAMES
from tests.datasets.graphs import Trap, one_line
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


def test_planetoid(tmp_path):
    _, x, y = write_planetoid(tmp_path)
    x[[506, 508]], y[[506, 508]] = 0, 0
    for mirror in (tmp_path, None):  # None: from the cache
        dataset = load_dataset("CiteSeer", tmp_path / "data", mirror, nodes=True)
        graph = dataset[0]
        torch.testing.assert_close(graph.x, x / x.sum(1, keepdim=True).clamp(min=1))
        assert graph.y.tolist() == y.tolist()
        assert (graph.is_undirected(), graph.has_self_loops(), graph.num_edges) == (True, False, 1020)
        assert {part: nodes.tolist() for part, nodes in dataset.split.items()} == {
            "train": [0, 1], "valid": [*range(2, 502)], "test": [505, 507, 509],
        }  # fmt: skip
    theirs = torch_geometric.datasets.Planetoid(str(tmp_path / "data"), "CiteSeer")
    assert torch.equal(theirs[0].y, graph.y)


OUT_OF_RANGE = csr_matrix(np.eye(2, dtype=np.float32))
OUT_OF_RANGE.indices[0] = 9
DAMAGE = [
    ({"graph": Trap()}, f"ind.citeseer.graph is damaged, or not a file of Planetoid: it needs {os.name}.mkdir, which"),
    *(({"graph": f"c{name}\n.".replace(" ", "\n").encode()}, f"it needs {name.replace(' ', '.')}, which")
      for name in ("builtins eval", "numpy load", "scipy.sparse.csr _load", "numpy.core.multiarray scalar")),
    *(({part: damage}, f"ind.citeseer.{part} is damaged") for part in ("x", "graph") for damage in (b"", b"nonsense")),
    *(({part: b"\x80\x02]q\x00."}, "cannot prepare CiteSeer") for part in ("x", "allx", "ty", "graph")),
    ({"graph": b"]r\xff\xff\xff\x3f."}, "it numbers more objects than it has bytes"),
    ({"tx": OUT_OF_RANGE}, "ind.citeseer.tx is damaged"),
    ({"graph": {0: [2**60], 1: [0]}}, "an edge joins a node that is not in the file"),
    ({"test.index": b"509\n505\nx\n"}, "cannot prepare CiteSeer: invalid literal for int"),
]  # fmt: skip


def test_damaged_planetoid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for changes, message in DAMAGE:
        write_planetoid(tmp_path, **changes)
        one_line(lambda: load_dataset("CiteSeer", tmp_path / "data", tmp_path, nodes=True), message)
        assert not (tmp_path / "sprung").exists()
        assert not (tmp_path / "data" / "CiteSeer").exists()


def write_npz(folder, name):
    """Write a graph in the format of Amazon, Coauthor and CitationFull: a ring of N nodes and a self-loop."""
    edges = np.concatenate([EDGES, [[0, 0]]])
    parts = {"adj": csr_matrix((np.ones(len(edges)), edges.T), (N, N)), "attr": csr_matrix(X.astype(np.float32))}
    content = {f"{key}_{name}": getattr(m, name) for key, m in parts.items() for name in ("data", "indices", "indptr")}
    folder.mkdir(exist_ok=True)
    np.savez(folder / name, labels=Y, **content, **{f"{key}_shape": m.shape for key, m in parts.items()})
    return folder


def test_bags_of_words_of_pyg(tmp_path):
    words = torch.from_numpy(X > 0).float()
    files = {"Amazon-Photo": "amazon_electronics_photo", "Coauthor-CS": "ms_academic_cs", "CitationFull-DBLP": "dblp"}
    for name, file in files.items():
        mirror = write_npz(tmp_path / "mirror", f"{file}.npz")
        for dataset in (load_dataset(name, tmp_path, mirror, nodes=True), load_dataset(name, tmp_path, nodes=True)):
            assert repr(dataset) == f"NodeDataset('{name}', 30 nodes, 1 graph, x: 4 columns (numbers), 3 classes)"
            torch.testing.assert_close(dataset[0].x, words / words.sum(1, keepdim=True))
            assert (dataset.y.tolist(), dataset[0].num_edges) == (Y.tolist(), 2 * N)


def test_features_of_real_numbers_are_kept(tmp_path):
    x = (X - 1.5).tolist()
    masks = dict.fromkeys(("train_masks", "val_masks", "stopping_masks"), [[True] * N] * 20)
    content = {"features": x, "labels": Y.tolist(), "links": [[int(v)] for v in EDGES[:, 1]], "test_mask": [True] * N}
    (tmp_path / "data.json").write_text(json.dumps(content | masks))
    dataset = load_dataset("WikiCS", tmp_path / "data", tmp_path, nodes=True)
    assert dataset[0].x.tolist() == x
    assert (dataset[0].num_edges, dataset.split) == (2 * N, None)


def test_every_name_is_a_class_of_pyg_and_sets_that_cannot_be_loaded_get_one_line(tmp_path):
    for name in PYG_NAMES:
        kind = getattr(torch_geometric.datasets, name.partition("-")[0])
        assert issubclass(kind, torch_geometric.data.InMemoryDataset)
    (tmp_path / "dblp.npz").write_bytes(b"text")
    for name, mirror, message in (
        ("CiteSeer", None, ["cannot download https://github.com/kimiyoung/", "pass its folder as `mirror`"]),
        ("WikiCS", tmp_path / "nowhere", ["nowhere' is not a folder with data.json"]),
        ("CitationFull-DBLP", tmp_path, ["cannot prepare CitationFull-DBLP: ", "get its files again"]),
        ("ogbn-mag", None, ["'ogbn-mag' is not supported; sets of one class per node: ogbn-arxiv, ogbn-"]),
        ("Amazon-Phot", None, ["'Amazon-Phot' is not a known", "did you mean Amazon-Photo or", "Known: Cora, "]),
    ):
        one_line(lambda name=name, at=mirror: load_dataset(name, tmp_path / "data", at, nodes=True), *message)


def test_ogbn(tmp_path):
    pytest.importorskip("ogb", reason="ogb is not installed")
    parts = {"train": range(10), "valid": range(10, 20), "test": range(20, 30)}
    rows = {
        "num-node-list": [[N]], "num-edge-list": [[N]], "edge": EDGES.tolist(), "node-feat": (X / 2).tolist(),
        "node-label": Y[:, None].tolist(), "node_year": [[2000]] * N,
    }  # fmt: skip
    files = {"RELEASE_v1.txt": b"", **{f"raw/{name}.csv.gz": gz(each) for name, each in rows.items()}}
    files |= {f"split/time/{part}.csv.gz": gz([[i] for i in nodes]) for part, nodes in parts.items()}
    dataset = load_dataset("ogbn-arxiv", tmp_path, write_archive(tmp_path / "mirror", files, "arxiv"), nodes=True)
    graph = dataset[0]
    assert graph.x.tolist() == (X / 2).tolist()
    assert (graph.is_undirected(), graph.num_edges, dataset.y.tolist()) == (True, 2 * N, Y.tolist())
    assert {part: nodes.tolist() for part, nodes in dataset.split.items()} == {k: [*v] for k, v in parts.items()}
    again = load_dataset("ogbn-arxiv", tmp_path, nodes=True)  # from the cache
    assert torch.equal(again[0].edge_index, graph.edge_index)
