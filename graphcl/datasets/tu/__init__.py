"""Load data sets of the TU collection by PyG's `TUDataset`, from a mirror or the public server."""

from graphcl.datasets.tu.load import load_folder, load_tu

__all__ = ["load_folder", "load_tu"]
