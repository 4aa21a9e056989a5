"""Read data sets by name: OGB's, the generated set, and the TU collection."""

from __future__ import annotations

from typing import Any

from graphcl.datasets.names import SYNTHETIC
from graphcl.datasets.ogb import load_ogb
from graphcl.datasets.own import collate_graphs
from graphcl.datasets.sources import Graphs, Request, Source
from graphcl.datasets.synthetic import synthetic
from graphcl.datasets.tu.load import load_tu
from graphcl.registry import sources


@sources.register("ogb")
class Ogb(Source):
    """Set of the Open Graph Benchmark, with its split and metric."""

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` begins as one of OGB's names."""
        return isinstance(source, str) and source.lower().startswith(("ogbg-", "ogbn-", "ogbl-"))

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs of the set, whose `x` holds category indices."""
        graphs, benchmark = load_ogb(source, request.data_root, request.mirror)
        return Graphs(source, *graphs, benchmark, True)


@sources.register("synthetic")
class Synthetic(Source):
    """The generated set, which needs no file and no network."""

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` is the name of the set."""
        return isinstance(source, str) and source == SYNTHETIC

    def read(self, source: Any, request: Request) -> object:
        """Return the generated graphs."""
        return Graphs(SYNTHETIC, *collate_graphs(synthetic(), SYNTHETIC))


@sources.register("tu", takes="a name of dataset_names()")
class TU(Source):
    """Set of the TU collection: from the cache, else from the mirror or the server."""

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` is a name; other names are claimed before."""
        return isinstance(source, str)

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs of the set."""
        return Graphs(source, *load_tu(source, request.data_root, request.mirror, request.settings.tu_features))
