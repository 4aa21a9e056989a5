"""Test sets of nodes that PyG's classes and ogb load by name, from files in their formats, without the network."""

import importlib.util
import json
import socket

import numpy as np
import pytest
import torch
import torch_geometric.datasets
from scipy.sparse import csr_matrix

from graphcl.datasets import load_dataset
from graphcl.datasets.names import PYG_NAMES
from graphcl.errors import InputError
from tests.datasets.ogb_files import gz, write_archive

N = 30
EDGES = np.array([[i, (i + 1) % N] for i in range(N)])
X = np.random.default_rng(0).integers(0, 3, (N, 4)) + np.array([1, 0, 0, 0])
Y = np.arange(N) % 3


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """Make any use of the network fail."""

    def refuse(*args, **kwargs):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for variable in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)


def write_npz(folder, name):
    """Write a graph in the format of Amazon, Coauthor and CitationFull: a ring of N nodes and a self-loop."""
    edges = np.concatenate([EDGES, [[0, 0]]])
    parts = {"adj": csr_matrix((np.ones(len(edges)), edges.T), (N, N)), "attr": csr_matrix(X.astype(np.float32))}
    content = {f"{key}_{name}": getattr(m, name) for key, m in parts.items() for name in ("data", "indices", "indptr")}
    folder.mkdir(exist_ok=True)
    np.savez(folder / name, labels=Y, **content, **{f"{key}_shape": m.shape for key, m in parts.items()})
    return folder


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("Amazon-Photo", "amazon_electronics_photo.npz"),
        ("Coauthor-CS", "ms_academic_cs.npz"),
        ("CitationFull-DBLP", "dblp.npz"),
    ],
)
def test_bags_of_words_of_pyg(name, file, tmp_path, capfd):
    dataset = load_dataset(name, tmp_path / "data", write_npz(tmp_path / "mirror", file), nodes=True)
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


@pytest.mark.parametrize("name", PYG_NAMES)
def test_every_name_is_a_class_of_pyg(name):
    kind = getattr(torch_geometric.datasets, name.partition("-")[0])
    assert issubclass(kind, torch_geometric.data.InMemoryDataset)


def test_a_set_that_cannot_be_downloaded_gets_one_line(tmp_path):
    with pytest.raises(InputError, match=r"^PyG's class Amazon cannot load Amazon-Photo \(.*\); get ") as caught:
        load_dataset("Amazon-Photo", tmp_path, nodes=True)
    assert str(caught.value).endswith(
        "get amazon_electronics_photo.npz elsewhere and pass the folder as `mirror` (--mirror)."
    )
    with pytest.raises(
        InputError, match=r"^PyG's class WikiCS cannot load WikiCS \(.*nowhere.data\.json.*\); get data\.json"
    ):
        load_dataset("WikiCS", tmp_path, tmp_path / "nowhere", nodes=True)


def test_damaged_files_get_one_line(tmp_path):
    (tmp_path / "dblp.npz").write_bytes(b"text")
    for _ in range(2):
        with pytest.raises(InputError, match="PyG's class CitationFull cannot load CitationFull-DBLP") as caught:
            load_dataset("CitationFull-DBLP", tmp_path / "data", tmp_path, nodes=True)
        assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(f"delete the folder {tmp_path / 'data' / 'CitationFull'} and load again.")


def test_unknown_names(tmp_path):
    with pytest.raises(
        InputError, match=r"^'Amazon-Phot' is not a known .* did you mean Amazon-Photo or .*Known: Cora, "
    ):
        load_dataset("Amazon-Phot", tmp_path, nodes=True)
    with pytest.raises(
        InputError, match=r"^'ogbn-mag' is not supported; sets of one class per node: ogbn-arxiv, ogbn-"
    ):
        load_dataset("ogbn-mag", tmp_path, nodes=True)


@pytest.fixture
def archive(tmp_path):
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
    return write_archive(tmp_path / "mirror", files, "arxiv")


def test_ogbn(archive, tmp_path):
    dataset = load_dataset("ogbn-arxiv", tmp_path / "data", archive, nodes=True)
    graph = dataset[0]
    assert graph.x.tolist() == (X / 2).tolist()
    assert (graph.is_undirected(), graph.num_edges, dataset.y.tolist()) == (True, 2 * N, Y.tolist())
    assert {part: nodes.tolist() for part, nodes in dataset.split.items()} == {
        "train": [*range(10)], "valid": [*range(10, 20)], "test": [*range(20, 30)],
    }  # fmt: skip
    assert sorted(graph.keys()) == ["edge_index", "x", "y"]
    again = load_dataset("ogbn-arxiv", tmp_path / "data", nodes=True)  # from the cache
    assert torch.equal(again[0].edge_index, graph.edge_index)


def test_ogbn_without_its_archive(archive, tmp_path):
    (archive / "arxiv.zip").unlink()
    with pytest.raises(
        InputError, match=r"arxiv\.zip; Archives there: nothing\. Put arxiv\.zip there \(public source: http"
    ):
        load_dataset("ogbn-arxiv", tmp_path / "data", archive, nodes=True)
