"""Compare the real TU archives with their published statistics, and limit the loading time."""

import time

import pytest
import torch
from torch_geometric.datasets import TUDataset

from graphcl.datasets import load_dataset

# name: graphs, classes, mean nodes, mean edges, node labels (0: none)
PUBLISHED = {
    "MUTAG": (188, 2, 17.93, 19.79, 7),
    "PROTEINS": (1113, 2, 39.06, 72.82, 3),
    "NCI1": (4110, 2, 29.87, 32.30, 37),
    "IMDB-BINARY": (1000, 2, 19.77, 96.53, 0),
}

ARCHIVES = {
    "IMDB-BINARY": "b291ec8b26d85c70faa2ba0a2433e1f407ed2ef5d0fc072d36b9a95e49a1bb27",
    "MUTAG": "66112bc67b33235364e6e75edbbcbd61294b865897e05988bb67ebea8cb5a517",
    "NCI1": "5d2820d9caf54b6a66c99478b4c8d44a0e7ca6d2bd123ed63e721ab4062851b6",
    "PROTEINS": "2da8de15284b88edabca2888ce5444d62f364ed41159260977088c4e53d4d848",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_counts(name, tu_archives, tmp_path):
    graphs, classes, nodes, edges, labels = PUBLISHED[name]
    dataset = load_dataset(name, tmp_path, tu_archives)
    assert len(dataset) == graphs
    assert dataset.num_classes == classes
    assert dataset._data.num_nodes / graphs == pytest.approx(nodes, abs=0.005)
    assert dataset._data.num_edges / 2 / graphs == pytest.approx(edges, abs=0.005)
    assert (dataset.features, dataset.num_features) == (("labels", labels) if labels else ("constant", 1))

    start = time.perf_counter()
    again = load_dataset(name, tmp_path)
    assert time.perf_counter() - start < 2
    assert torch.equal(again.x, dataset.x)
    if name == "MUTAG":  # PyG reads the others in seconds
        theirs = TUDataset(str(tmp_path), name)
        assert torch.equal(again[graphs - 1].edge_index, theirs[graphs - 1].edge_index)


def test_checksums_are_of_these_archives(tu_archives):
    import hashlib

    files = {name: tu_archives / f"{name}.zip" for name in ARCHIVES}
    assert {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()} == ARCHIVES
