"""Load and store data sets of graphs: TU and OGB sets, a generated set, and the user's own graphs."""

from graphcl.datasets.dataset import Benchmark, GraphDataset
from graphcl.datasets.features import FEATURES
from graphcl.datasets.load import load_dataset, prepare
from graphcl.datasets.names import dataset_names
from graphcl.datasets.on_disk import MappedDataset, open_on_disk
from graphcl.datasets.write import write_on_disk

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
