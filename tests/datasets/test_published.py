"""Compare the real TU archives with their published statistics, and limit the loading time."""

import time

import pytest
import torch
from torch_geometric.datasets import TUDataset

from graphcl.datasets import load_dataset
from graphcl.datasets.names import TESTED_ARCHIVES

# name: graphs, classes, mean nodes, mean edges, node labels (0: none)
PUBLISHED = {
    "MUTAG": (188, 2, 17.93, 19.79, 7),
    "PROTEINS": (1113, 2, 39.06, 72.82, 3),
    "NCI1": (4110, 2, 29.87, 32.30, 37),
    "IMDB-BINARY": (1000, 2, 19.77, 96.53, 0),
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

    files = {name: tu_archives / f"{name}.zip" for name in TESTED_ARCHIVES}
    assert {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()} == TESTED_ARCHIVES
