"""Load and store data sets of graphs: TU and OGB sets, a generated set, and the user's own graphs."""

from typing import TYPE_CHECKING, Any

from graphcl.errors import load_module as _load

if TYPE_CHECKING:
    from graphcl.datasets.dataset import Benchmark as Benchmark
    from graphcl.datasets.dataset import GraphDataset as GraphDataset
    from graphcl.datasets.load import load_dataset as load_dataset
    from graphcl.datasets.names import dataset_names as dataset_names
    from graphcl.datasets.on_disk import MappedDataset as MappedDataset
    from graphcl.datasets.on_disk import open_on_disk as open_on_disk
    from graphcl.datasets.preparation import prepare as prepare
    from graphcl.datasets.settings import FEATURES as FEATURES
    from graphcl.datasets.write import write_on_disk as write_on_disk
else:
    _MODULES = {
        "Benchmark": "dataset",
        "FEATURES": "settings",
        "GraphDataset": "dataset",
        "MappedDataset": "on_disk",
        "dataset_names": "names",
        "load_dataset": "load",
        "open_on_disk": "on_disk",
        "prepare": "preparation",
        "write_on_disk": "write",
    }
    __all__ = list(_MODULES)

    def __getattr__(name: str) -> Any:
        """Return a public name; import torch only here, as help texts need the settings only."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(_load(f"{__name__}.{_MODULES[name]}"), name)
