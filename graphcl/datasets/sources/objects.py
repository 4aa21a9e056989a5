"""Read graphs from Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import torch.utils.data
from torch_geometric.data import Batch, InMemoryDataset
from torch_geometric.data.data import BaseData

from graphcl.datasets.matrices import convert_matrices, is_matrix
from graphcl.datasets.networks import convert_networkx, from_igraph, is_igraph, is_networkx
from graphcl.datasets.own import collate_dataset, collate_graphs
from graphcl.datasets.pieces import read_pieces
from graphcl.datasets.settings import Attributes
from graphcl.datasets.sources import Graphs, Pieces, Request, Source
from graphcl.errors import InputError
from graphcl.registry import sources


@sources.register("data_set", takes="a PyG data set")
class DataSet(Source):
    """PyG data set; tensors in memory are shared, not copied."""

    place = 100

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` is a data set whose graphs have an index."""
        return isinstance(source, torch.utils.data.Dataset) and hasattr(source, "__len__")

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs of the data set."""
        name = str(getattr(source, "name", None) or type(source).__name__)
        return Graphs(name, *collate_dataset(source, name))

    def pieces(self, source: Any, request: Request, folder: Path, executor: Executor | None) -> Pieces | None:
        """Return the graphs in pieces, unless they are in memory."""
        return None if isinstance(source, InMemoryDataset) else read_pieces(source, request.settings)


_LISTED = "a list of torch_geometric.data.Data, of networkx or igraph graphs, or of adjacency matrices"


@sources.register("graphs", takes=_LISTED)
class GraphList(Source):
    """List of graphs or one graph: PyG's `Data`, of networkx or of igraph, or a square matrix of NumPy or SciPy."""

    place = 110
    settings = frozenset(Attributes.model_fields)

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` is a list or tuple, or one graph."""
        return isinstance(source, list | tuple) or _is_graph(source)

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs."""
        return collate_objects([source] if _is_graph(source) else source, "own", request)

    def pieces(self, source: Any, request: Request, folder: Path, executor: Executor | None) -> Pieces | None:
        """Return a list of batches, data sets or lists of graphs in pieces."""
        nested = Batch | torch.utils.data.Dataset | list | tuple
        several = not _is_graph(source) and any(isinstance(entry, nested) for entry in source)
        return read_pieces(source, request.settings) if several else None


@sources.register("stream")
class Stream(Source):
    """Generator or another iterable, which is read into a list."""

    place = 120

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` can be iterated and is neither a dict nor bytes; other kinds are claimed before."""
        return isinstance(source, Iterable) and not isinstance(source, Mapping | bytes | bytearray)

    def read(self, source: Any, request: Request) -> object:
        """Return the list."""
        return list(source)

    def pieces(self, source: Any, request: Request, folder: Path, executor: Executor | None) -> Pieces | None:
        """Return the graphs in pieces."""
        return read_pieces(source, request.settings)


def collate_objects(graphs: Any, name: str, request: Request) -> Graphs:
    """Return the graphs of a list, converted to PyG's `Data`; `name` is the name of the data set."""
    if any(map(is_matrix, graphs)):
        graphs = convert_matrices(graphs, name)
    graphs = [from_igraph(graph) if is_igraph(graph) else graph for graph in graphs]
    if any(map(is_networkx, graphs)):
        graphs = convert_networkx(graphs, name, request.settings)
    elif set_keys := [key for key in Attributes.model_fields if getattr(request.settings, key)]:
        raise InputError(f"`{set_keys[0]}` names attributes of networkx graphs; {name} holds none.")
    return Graphs(name, *collate_graphs(graphs, name), directions=True)


def _is_graph(source: object) -> bool:
    return isinstance(source, BaseData) or is_networkx(source) or is_igraph(source) or is_matrix(source)
