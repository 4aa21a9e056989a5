"""Data sets: graphs of the TU collection, the embedded set, and the user's own."""

from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.features import FEATURES
from graphcl.datasets.load import load_dataset, prepare
from graphcl.datasets.names import dataset_names

__all__ = ["FEATURES", "GraphDataset", "dataset_names", "load_dataset", "prepare"]
