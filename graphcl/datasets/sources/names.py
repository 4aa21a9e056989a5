"""Read data sets that have a name, and those that are ready: registered, loaded, packed, nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphcl.datasets.collate import collate_dataset, collate_graphs
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.names import SYNTHETIC
from graphcl.datasets.on_disk import is_on_disk, open_on_disk
from graphcl.datasets.preparation import read_pieces
from graphcl.datasets.sources import Graphs, Pieces, Request, Source
from graphcl.datasets.synthetic import synthetic
from graphcl.errors import InputError, reason
from graphcl.registry import datasets, sources


@sources.register("registered")
class Registered(Source):
    """Name of a data set that an installed package registered."""

    place = 10
    settings = frozenset({"mirror", "tu_features"})  # what the function returns is checked in turn

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

    place = 20

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` is a `GraphDataset`."""
        return isinstance(source, GraphDataset)

    def read(self, source: Any, request: Request) -> object:
        """Return the data set or its graphs. A selection of graphs has no benchmark, as the split is of all."""
        if request.settings.features == "auto":
            return source
        benchmark = source.benchmark if source._indices is None else None
        graphs, targets = collate_dataset(source, source.name), source.classes is None
        return Graphs(source.name, *graphs, benchmark, True, classes=source.classes, targets=targets)

    def pieces(self, source: Any, request: Request) -> Pieces | None:
        """Return a selection of graphs in pieces, as the tensors of the data set hold all graphs."""
        return None if source._indices is None else read_pieces(source, request.settings)


@sources.register("packed", takes="a folder of graphcl pack")
class Packed(Source):
    """Folder that `write_on_disk` wrote; memory-mapped, with the features it was written with."""

    place = 30

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` is such a folder."""
        return isinstance(source, Path) and is_on_disk(source)

    def read(self, source: Any, request: Request) -> object:
        """Return the data set; raise InputError if its stored features are not those requested."""
        dataset, settings = open_on_disk(source), request.settings
        for key in ("features", "degree_columns"):
            asked, stored = getattr(settings, key), getattr(dataset, key)
            if asked not in ("auto", None, stored) and (key == "features" or "degree" in settings.features):
                raise InputError(f"`{key}` is {asked!r}, but {dataset.name} was written with {stored!r}; leave it out.")
        return dataset


@sources.register("synthetic")
class Synthetic(Source):
    """The generated set, which needs no file and no network."""

    place = 60
    names = (SYNTHETIC,)

    def read(self, source: Any, request: Request) -> object:
        """Return the generated graphs."""
        return Graphs(SYNTHETIC, *collate_graphs(synthetic(), SYNTHETIC))
