"""Load and store data sets of graphs: TU and OGB sets, a generated set, and the user's own graphs."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcl.datasets.dataset import Benchmark as Benchmark
    from graphcl.datasets.dataset import GraphDataset as GraphDataset
    from graphcl.datasets.disk.on_disk import MappedDataset as MappedDataset
    from graphcl.datasets.disk.on_disk import open_on_disk as open_on_disk
    from graphcl.datasets.disk.write import write_on_disk as write_on_disk
    from graphcl.datasets.load import load_dataset as load_dataset
    from graphcl.datasets.load import prepare as prepare
    from graphcl.datasets.names import dataset_names as dataset_names
    from graphcl.datasets.settings import FEATURES as FEATURES
else:
    _NAMES = (
        "Benchmark FEATURES GraphDataset MappedDataset dataset_names load_dataset open_on_disk prepare write_on_disk"
    )
    __all__ = _NAMES.split()

    def __getattr__(name: str) -> Any:
        """Return a public name; import torch only here, as help texts need the settings only."""
        for module in ("settings", "names", "load", "disk.write") if name in __all__ else ():
            if hasattr(found := importlib.import_module(f"{__name__}.{module}"), name):
                return getattr(found, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
