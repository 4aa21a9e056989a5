"""Read sources that are data sets already: a `GraphDataset`, a packed folder, a data set of another package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.disk.on_disk import is_on_disk, open_on_disk
from graphcl.datasets.own import collate_dataset
from graphcl.datasets.sources import Graphs, Request, Source
from graphcl.errors import InputError, reason
from graphcl.registry import datasets, sources


@sources.register("registered")
class Registered(Source):
    """Name of a data set that an installed package registered."""

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` is a registered name."""
        return isinstance(source, str) and source in datasets

    def read(self, source: Any, request: Request) -> object:
        """Return what the registered function returns, another source."""
        try:
            made = datasets[source](str(request.data_root))
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"cannot load {source!r} from {datasets[source].__module__}: {reason(error)}.") from error
        return Loaded().read(made, request) if isinstance(made, GraphDataset) else made


@sources.register("loaded")
class Loaded(Source):
    """Data set of `load_dataset`; it is returned unchanged, unless other features are wanted."""

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` is a `GraphDataset`."""
        return isinstance(source, GraphDataset)

    def read(self, source: Any, request: Request) -> object:
        """Return the data set or its graphs. A selection of graphs has no benchmark, as the split is of all."""
        if request.settings.features == "auto":
            return source
        benchmark = source.benchmark if source._indices is None else None
        return Graphs(source.name, *collate_dataset(source, source.name), benchmark, True, classes=source.classes)


@sources.register("packed", takes="a folder of graphcl pack")
class Packed(Source):
    """Folder that `write_on_disk` wrote; memory-mapped, with the features it was written with."""

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` is such a folder."""
        return isinstance(source, Path) and is_on_disk(source)

    def read(self, source: Any, request: Request) -> object:
        """Return the data set; raise InputError if its stored features are not those requested."""
        dataset, given = open_on_disk(source), request.settings
        for key in ("features", "degree_columns") if "degree" in given.features else ("features",):
            asked, stored = getattr(given, key), getattr(dataset, key)
            if asked not in ("auto", None, stored):
                raise InputError(f"`{key}` is {asked!r}, but {dataset.name} was written with {stored!r}; leave it out.")
        return dataset
