"""Load and store data sets of graphs: TU and OGB sets, a generated set, and the user's own graphs."""

from graphcl.datasets.dataset import Benchmark, GraphDataset
from graphcl.datasets.disk.on_disk import MappedDataset, open_on_disk
from graphcl.datasets.disk.write import write_on_disk
from graphcl.datasets.features import FEATURES
from graphcl.datasets.load import load_dataset, prepare
from graphcl.datasets.names import dataset_names

__all__ = [
    "FEATURES",
    "Benchmark",
    "GraphDataset",
    "MappedDataset",
    "dataset_names",
    "load_dataset",
    "open_on_disk",
    "prepare",
    "write_on_disk",
]
