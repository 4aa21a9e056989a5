"""Compare the real archives with the published statistics of their sets."""

import pytest

from graphcl.datasets import load_dataset
from tests.conftest import SHARED

# name: graphs, classes, mean nodes, mean edges, node labels (0: none)
PUBLISHED = {
    "BZR": (405, 2, 35.75, 38.36, 53),
    "IMDB-BINARY": (1000, 2, 19.77, 96.53, 0),
    "MUTAG": (188, 2, 17.93, 19.79, 7),
    "PTC_MR": (344, 2, 14.29, 14.69, 18),
}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the public archives are not beside this checkout (../shared/tu)")
def test_published_counts(tmp_path):
    for name, published in PUBLISHED.items():
        dataset = load_dataset(name, tmp_path, SHARED)
        graphs, data = len(dataset), dataset._data
        nodes, edges = round(data.num_nodes / graphs, 2), round(data.num_edges / 2 / graphs, 2)
        labels = dataset.num_features if dataset.features == "labels" else 0
        assert (graphs, dataset.num_classes, nodes, edges, labels) == published, name
    dataset = load_dataset("Cora", tmp_path, SHARED.with_name("node"), nodes=True)
    assert (len(dataset.y), dataset._data.num_edges, len(dataset.split["test"])) == (2708, 10556, 1000)
