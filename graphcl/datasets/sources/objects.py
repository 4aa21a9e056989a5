"""Read data sets by name, and Python objects: PyG's `Data`, graphs of networkx and igraph, and matrices."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.utils.data
from torch import Tensor
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.data.data import BaseData

from graphcl.datasets.collate import collate_dataset, collate_graphs
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.names import SYNTHETIC
from graphcl.datasets.preparation import read_pieces
from graphcl.datasets.settings import Attributes, Loading
from graphcl.datasets.sources import Graphs, Pieces, Request, Source
from graphcl.datasets.synthetic import synthetic
from graphcl.errors import InputError, InputTypeError, reason, warn
from graphcl.registry import datasets, sources

_KEPT = ("id", "group", "part", "project")
"""Attributes of networkx graphs that are kept as they are, besides `y`."""


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


@sources.register("synthetic")
class Synthetic(Source):
    """The generated set, which needs no file and no network."""

    place = 60
    names = (SYNTHETIC,)

    def read(self, source: Any, request: Request) -> object:
        """Return the generated graphs."""
        return Graphs(SYNTHETIC, *collate_graphs(synthetic(), SYNTHETIC))


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

    def pieces(self, source: Any, request: Request) -> Pieces | None:
        """Return the graphs in pieces, unless they are in memory."""
        return None if isinstance(source, InMemoryDataset) else read_pieces(source, request.settings)


_LISTED = "a list of torch_geometric.data.Data, of networkx or igraph graphs, or of adjacency matrices"


@sources.register("graphs", takes=_LISTED)
class GraphList(Source):
    """List of graphs or one graph: PyG's `Data`, of networkx or of igraph, or a square matrix of NumPy or SciPy.

    Entry (i, j) of a matrix is the weight of the edge from i to j.
    """

    place = 110
    settings = frozenset(Attributes.model_fields)

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` is a list or tuple, or one graph."""
        return isinstance(source, list | tuple) or _is_graph(source)

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs."""
        return collate_objects([source] if _is_graph(source) else source, "own", request.settings)

    def pieces(self, source: Any, request: Request) -> Pieces | None:
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

    def pieces(self, source: Any, request: Request) -> Pieces | None:
        """Return the graphs in pieces."""
        return read_pieces(source, request.settings)


def collate_objects(graphs: Iterable[Any], name: str, settings: Loading) -> Graphs:
    """Return the graphs of a list, converted to PyG's `Data`; `name` is the name of the data set."""
    graphs = [_of_igraph(graph) if _is_kind(graph, "igraph") else graph for graph in graphs]
    if any(map(_is_matrix, graphs)):
        graphs = _convert_matrices(graphs, name)
    if any(_is_kind(graph, "networkx") for graph in graphs):
        graphs = _convert_networkx(graphs, name, settings)
    elif keys := [key for key in Attributes.model_fields if getattr(settings, key)]:
        raise InputError(f"`{keys[0]}` names attributes of networkx graphs; {name} holds none.")
    return Graphs(name, *collate_graphs(graphs, name), directions=True)


def _is_kind(graph: object, package: str) -> bool:
    """Return whether `graph` is a graph of networkx or igraph, without importing them."""
    return package in sys.modules and isinstance(graph, sys.modules[package].Graph)


def _is_matrix(graph: object) -> bool:
    """Return whether `graph` is a matrix of NumPy or a sparse one of SciPy, without importing SciPy."""
    sparse = sys.modules.get("scipy.sparse")
    return (isinstance(graph, np.ndarray) and graph.ndim == 2) or (sparse is not None and sparse.issparse(graph))


def _is_graph(source: object) -> bool:
    of_library = _is_kind(source, "networkx") or _is_kind(source, "igraph")
    return isinstance(source, BaseData) or of_library or _is_matrix(source)


def _of_igraph(graph: Any) -> Any:
    """Return an igraph graph as a networkx graph, without igraph's indices and without names that are strings."""
    network = graph.to_networkx()
    for *_, values in (*network.nodes(data=True), *network.edges(data=True)):
        values.pop("_igraph_index", None)
        if isinstance(values.get("name"), str):
            del values["name"]
    return network


def _convert_matrices(graphs: Sequence[Any], what: str) -> list[Any]:
    """Return `graphs` with each adjacency matrix converted to `Data`; entry (i, j) is an edge from i to j if not zero.

    Values become `edge_weight`, unless all values of all matrices are 1.

    Raises:
        InputError: a matrix is not square, or does not hold real numbers.
    """
    converted, weighted = list[Any](), False
    for number, graph in enumerate(graphs):
        if not _is_matrix(graph):
            converted.append(graph)
            continue
        if graph.shape[0] != graph.shape[1] or graph.dtype.kind not in "biuf":
            got = f"{list(graph.shape)} of {graph.dtype}"
            raise InputError(f"{what}: graph {number} must be a square adjacency matrix of real numbers, got {got}.")
        if isinstance(graph, np.ndarray):
            ends = np.nonzero(graph)
            values = np.asarray(graph)[ends]
        else:
            rows = graph.tocsr(copy=True)
            rows.sum_duplicates()
            rows.eliminate_zeros()
            entries = rows.tocoo()
            ends, values = (entries.row, entries.col), entries.data
        weighted = weighted or bool((values != 1).any())
        edges = torch.from_numpy(np.stack(ends).astype(np.int64))
        weight = torch.from_numpy(values.astype(np.float64))
        converted.append(Data(edge_index=edges, edge_weight=weight, num_nodes=graph.shape[0]))
    for data, graph in zip(converted, graphs, strict=True):
        if data is not graph and not weighted:
            del data.edge_weight
    return converted


def _convert_networkx(graphs: Sequence[Any], what: str, settings: Loading) -> list[Data]:
    """Return networkx graphs converted to PyG's `Data`; a `Data` in the list is kept.

    Nodes keep their order. An undirected edge is listed in both directions, in the order of PyG's `from_networkx`. The
    node attributes `settings.node_attrs` become the columns of `x`, in this order, the edge attributes
    `settings.edge_attrs` those of `edge_attr`, `settings.edge_weight` the `edge_weight`, and the graph attributes "y",
    "id", "group", "part" and "project" attributes of the `Data`. Other attributes are dropped, those of edges and
    graphs with a warning.

    Raises:
        InputError: an attribute differs in length within a graph, is not numeric, or is missing on some nodes or edges;
            "y" is neither numeric nor a string; or nodes have attributes but no "x", unless features need no `x`.
    """
    converted, dropped = list[Data](), set[str]()
    for number, graph in enumerate(graphs):
        if isinstance(graph, Data):
            converted.append(copy.copy(graph))
        elif _is_kind(graph, "networkx"):
            converted.append(_convert(graph, number, what, settings, dropped))
        else:
            raise InputTypeError(f"{what}: graph {number} must be a networkx graph, got {type(graph).__name__}.")
    for key, size in (("x", "num_nodes"), ("edge_attr", "num_edges"), ("edge_weight", "num_edges")):
        rows = next((data[key] for data in converted if key in data), None)
        for data in converted:
            if rows is not None and getattr(data, size) == 0:
                data[key] = rows[:0]
    for data in converted:
        if "x" in data:
            del data.num_nodes
    if dropped:
        warn(
            f"{what}: ignored {', '.join(sorted(dropped)[:3])}; networkx graphs are read for 'x' of nodes, 'edge_attr' "
            "and 'edge_weight' of edges (or the names in `node_attrs`, `edge_attrs` and `edge_weight`), and 'y', 'id', "
            "'group', 'part' and 'project' of `graph.graph`"
        )
    return converted


def _convert(graph: Any, number: int, what: str, settings: Loading, dropped: set[str]) -> Data:
    """Return the `Data` of one graph; add what is dropped to `dropped`."""
    nodes = {node: place for place, node in enumerate(graph)}
    edges = [values for *_, values in graph.edges(data=True)]
    rows = {id(values): row for row, values in enumerate(edges)}  # both directions of an edge share its attributes
    directed = [
        (nodes[source], nodes[target], rows[id(values)])
        for source, neighbours in graph.adjacency()
        for target, entry in neighbours.items()
        for values in (entry.values() if graph.is_multigraph() else (entry,))
    ]
    *ends, edge_rows = torch.tensor(directed, dtype=torch.long).view(-1, 3).T
    data = Data(edge_index=torch.stack(ends), num_nodes=len(nodes))
    attributes = [values for _, values in graph.nodes(data=True)]
    of_nodes, of_edges = f"{what}: nodes of graph {number}", f"{what}: edges of graph {number}"
    x = _columns(attributes, settings.node_attrs, "x", of_nodes)
    if x is not None:
        data.x = x
    elif any(attributes) and settings.features not in ("constant", "degree"):
        other = sorted({str(key) for values in attributes for key in values})
        got = f"the nodes of graph {number} have {' and '.join(map(repr, other[:3]))}, but no 'x'"
        advice = "set 'x' to numbers, name attributes in `node_attrs`, or choose features 'constant' or 'degree'"
        raise InputError(f"{what}: {got}; {advice}.")
    weight = [settings.edge_weight] if settings.edge_weight else []
    weights = _columns(edges, weight, "edge_weight", of_edges)
    if weights is not None:
        data.edge_weight = weights[edge_rows].double().squeeze(1)
    names: list[str] = settings.edge_attrs
    if edges and names == ["all"]:
        names = [key for key in edges[0] if key not in weight]
    columns = _columns(edges, names, "edge_attr", of_edges)
    if columns is not None:
        data.edge_attr = columns[edge_rows]
    read = {*(weight or ["edge_weight"]), *(names or ["edge_attr"])}
    dropped |= {f"edge attribute {key!r}" for values in edges for key in values if key not in read}
    dropped |= {f"graph attribute {key!r}" for key in graph.graph if key not in ("y", *_KEPT)}
    for key in ("y", *_KEPT):
        value = graph.graph.get(key)
        if key == "y" and value is not None and not isinstance(value, str):
            value = _numbers(value, f"{what}: graph attribute 'y' of graph {number}")
            value = value.reshape(1, -1) if value.numel() > 1 else value.reshape(1)
        if value is not None:
            data[key] = value.item() if isinstance(value, np.generic) else value
    return data


def _columns(attributes: Sequence[Mapping[str, Any]], names: Sequence[str], default: str, what: str) -> Tensor | None:
    """Return the attributes `names` of nodes or edges side by side, as a matrix of numbers.

    "all" means the attributes of the first; without names, `default` is used, and None is returned if none has it.
    """
    if attributes and names == ["all"]:
        names = list(attributes[0])
    columns = []
    for key in names or [default]:
        rows = [values[key] for values in attributes if key in values]
        if len(rows) < len(attributes) and (rows or names):
            raise InputError(f"{what}: {len(attributes) - len(rows)} of {len(attributes)} have no {key!r}.")
        if rows:
            columns.append(_numbers(rows, f"{what}: {key!r}").reshape(len(rows), -1))
    return torch.cat(columns, dim=1) if columns else None


def _numbers(values: object, name: str) -> Tensor:
    array = np.empty(0, object)
    with contextlib.suppress(ValueError, TypeError, RuntimeError):  # rows of different lengths
        array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} must be numbers, the same count each; got {str(values)[:60]}.")
    return torch.from_numpy(np.array(array, dtype=np.float64 if array.dtype.kind == "f" else np.int64))
