"""Read graphs of networkx from files, and convert them to PyG's `Data`."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import from_networkx

from graphcl.datasets.settings import Loading
from graphcl.errors import InputError, InputTypeError, one_line, reason, warn
from graphcl.system.files import read_json

SUFFIXES = (".graphml", ".gml", ".json")
"""Endings of files of graphs that networkx reads."""
_KEPT = ("id", "group", "part", "project")
"""Graph attributes that are kept as they are, besides `y`."""


def is_networkx(graph: object) -> bool:
    """Return True if `graph` is a networkx graph, without importing networkx."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(graph, networkx.Graph)


def is_igraph(graph: object) -> bool:
    """Return True if `graph` is an igraph graph, without importing igraph."""
    igraph = sys.modules.get("igraph")
    return igraph is not None and isinstance(graph, igraph.Graph)


def from_igraph(graph: Any) -> Any:
    """Return an igraph graph as a networkx graph, without igraph's indices and without names that are strings."""
    found = graph.to_networkx()
    for values in (*(each for _, each in found.nodes(data=True)), *(each for *_, each in found.edges(data=True))):
        values.pop("_igraph_index", None)
        if isinstance(values.get("name"), str):
            del values["name"]
    return found


def read_networks(path: Path) -> list[Any]:
    """Return the networkx graphs in a GraphML or node-link JSON file, or the one in a GML file.

    Raises:
        InputError: the file cannot be read, an edge ends at a node that is not listed, or a node is listed twice.
    """
    networkx = importlib.import_module("networkx")
    kind = path.suffix.lower()
    try:
        if kind == ".graphml":
            return _read_graphml(path, networkx)
        if kind == ".json":
            content = read_json(path)
            return [_node_link(each, networkx) for each in (content if isinstance(content, list) else [content])]
        graph = networkx.read_gml(path, label=None)  # labels may be missing or occur twice
        for _, values in graph.nodes(data=True):
            values.pop("label", None)
        return [graph]
    except Exception as error:  # the parsers raise any kind
        name = "node-link JSON" if kind == ".json" else kind[1:]
        fault = reason(error) if isinstance(error, InputError) else f"{type(error).__name__}: {reason(error)}"
        raise InputError(f"file {str(path)!r} is not a graph of networkx in {name} ({fault.rstrip('.')}).") from None


def _read_graphml(path: Path, networkx: Any) -> list[Any]:
    """Return all graphs of a GraphML file; several get the ids that the file gives them, if these differ."""
    reader = networkx.GraphMLReader()
    header = f'<graphml xmlns="{reader.NS_GRAPHML}">'.encode()
    graphs = []
    for graph in reader(string=path.read_bytes().replace(b"<graphml>", header)):
        graphs.append(graph)
        reader.multigraph, reader.edge_ids = False, {}  # of one graph
    elements = reader.xml.findall(f"{{{reader.NS_GRAPHML}}}graph")
    if not graphs:
        raise InputError("it holds no graph")
    for graph, element in zip(graphs, elements, strict=True):
        for entry in element.iter():
            keys = [data.get("key") for data in entry.findall(f"{{{reader.NS_GRAPHML}}}data")]
            _refuse_repeated(keys, f"the <{entry.tag.rpartition('}')[2]}> {entry.get('id', '')!r} has two values of")
        _check_nodes(graph, [node.get("id") for node in element.iter(f"{{{reader.NS_GRAPHML}}}node")])
        for key, entries in (("node_default", graph.nodes(data=True)), ("edge_default", graph.edges(data=True))):
            usual = graph.graph.pop(key, {})  # networkx does not fill in the defaults of the file
            for *_, values in entries:
                values.update({**usual, **values})
    ids = [element.get("id") for element in elements]
    if len(graphs) > 1 and len({*ids} - {None}) == len(ids):
        for graph, name in zip(graphs, ids, strict=True):
            graph.graph.setdefault("id", name)
    return graphs


def _node_link(content: Any, networkx: Any) -> Any:
    """Return a graph in node-link form, with the edges in `links` or `edges`."""
    if not isinstance(content, dict) or ("links" in content and "edges" in content):
        raise InputError("it must be an object with `nodes` and either `links` or `edges`, or a list of them")
    key = "links" if "links" in content else "edges"
    if missing := [name for name in ("nodes", key) if name not in content]:
        names = "`links` or `edges`" if missing[0] == key else "`nodes`"
        raise InputError(f"it has no {names}; write it by networkx.node_link_data")
    if not isinstance(content.get("graph", {}), dict) or type(content.get("directed", False)) is not bool:
        raise InputError("`graph` must be an object, and `directed` true or false")
    name = "edges" if "edges" in inspect.signature(networkx.node_link_graph).parameters else "link"
    graph = networkx.node_link_graph(content, **{name: key})
    nodes = [node.get("id", number) for number, node in enumerate(content["nodes"])]
    _check_nodes(graph, [tuple(node) if isinstance(node, list) else node for node in nodes])
    if len(content[key]) > graph.number_of_edges():  # networkx keeps the attributes of the last one
        places = ("source", "target", "key")[: 2 + graph.is_multigraph()]
        for edge in (edge for edge in content[key] if all(place in edge for place in places)):
            ends = [tuple(edge[end]) if isinstance(edge[end], list) else edge[end] for end in places]
            if any(edge.get(name, value) != value for name, value in graph.edges[ends].items()):
                raise InputError(f"it lists twice, with different attributes, the edge {one_line(repr(ends), 40)}")
    return graph


def _check_nodes(graph: Any, listed: list[Any]) -> None:
    """Raise InputError if an edge added a node to `graph` that is not `listed`, or a node is listed twice."""
    _refuse_repeated(listed, "it lists twice the node")
    names = {*listed}
    if unlisted := [node for node in graph if node not in names]:
        raise InputError(f"an edge ends at node {one_line(repr(unlisted[0]), 40)}, which is not listed")
    if len(names) > len(graph):
        raise InputError("it holds a graph within a node, and nested graphs are not read")


def _refuse_repeated(names: list[Any], what: str) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"{what} {one_line(repr(repeated[0]), 40)}")


def convert_networkx(graphs: Sequence[Any], what: str, settings: Loading) -> list[Data]:
    """Return networkx graphs converted to PyG's `Data`; a `Data` in the list is kept.

    Nodes keep their order. An undirected edge is listed in both directions. The node attributes `settings.node_attrs`
    become the columns of `x`, in this order, the edge attributes `settings.edge_attrs` those of `edge_attr`,
    `settings.edge_weight` the `edge_weight`, and the graph attributes "y", "id", "group", "part" and "project"
    attributes of the `Data`. Other attributes are dropped, those of edges and graphs with a warning.

    Raises:
        InputError: an attribute differs in length within a graph, is not numeric, or is missing on some nodes or edges;
            "y" is neither numeric nor a string; or nodes have attributes but no "x", unless features need no `x`.
    """
    result, dropped = list[Data](), set[str]()
    for number, graph in enumerate(graphs):
        if isinstance(graph, Data):
            result.append(copy.copy(graph))
            continue
        if not is_networkx(graph):
            raise InputTypeError(f"{what}: graph {number} must be a networkx graph, got {type(graph).__name__}.")
        data, ignored = _convert(graph, number, what, settings)
        result.append(data)
        dropped |= ignored
    for key, size in (("x", "num_nodes"), ("edge_attr", "num_edges"), ("edge_weight", "num_edges")):
        rows = next((data[key] for data in result if key in data), None)
        for data in result:
            if rows is not None and getattr(data, size) == 0:
                data[key] = rows[:0]
    for data in result:
        if "x" in data:
            del data.num_nodes
    if dropped:
        warn(
            f"{what}: ignored {', '.join(sorted(dropped)[:3])}; networkx graphs are read for 'x' of nodes, 'edge_attr' "
            "and 'edge_weight' of edges (or the names in `node_attrs`, `edge_attrs` and `edge_weight`), and 'y', 'id', "
            "'group', 'part' and 'project' of `graph.graph`"
        )
    return result


def _convert(graph: Any, number: int, what: str, settings: Loading) -> tuple[Data, set[str]]:
    """Return the `Data` of one graph, and what was dropped."""
    # without attributes, as PyG's converter refuses those that only some nodes have; never a user's subclass, whose
    # constructor may add nodes
    kind = f"{'Multi' * graph.is_multigraph()}{'Di' * graph.is_directed()}Graph"
    bare = getattr(sys.modules["networkx"], kind)()
    bare.add_nodes_from(graph)
    bare.add_edges_from((*ends, {"row": row}) for row, ends in enumerate(graph.edges()))
    data = from_networkx(bare)
    edge_rows = data.pop("row", None)  # PyG's converter lists the edges in another order
    nodes = [values for _, values in graph.nodes(data=True)]
    edges = [values for *_, values in graph.edges(data=True)]
    of_nodes, of_edges = f"{what}: nodes of graph {number}", f"{what}: edges of graph {number}"
    if (x := _columns(nodes, settings.node_attrs, "x", of_nodes)) is not None:
        data.x = x
    elif any(nodes) and settings.features not in ("constant", "degree"):
        other = sorted({str(key) for values in nodes for key in values})
        found = f"the nodes of graph {number} have {' and '.join(map(repr, other[:3]))}, but no 'x'"
        advice = "set 'x' to numbers, name attributes in `node_attrs`, or choose features 'constant' or 'degree'"
        raise InputError(f"{what}: {found}; {advice}.")
    weight = [settings.edge_weight] if settings.edge_weight else []
    if (values := _columns(edges, weight, "edge_weight", of_edges)) is not None:
        data.edge_weight = values[edge_rows].double().squeeze(1)
    names: list[str] = settings.edge_attrs
    if edges and names == ["all"]:
        names = [key for key in edges[0] if key not in weight]
    if (values := _columns(edges, names, "edge_attr", of_edges)) is not None:
        data.edge_attr = values[edge_rows]
    known = {*(weight or ["edge_weight"]), *(names or ["edge_attr"])}
    dropped = {f"edge attribute {key!r}" for values in edges for key in values if key not in known}
    dropped |= {f"graph attribute {key!r}" for key in graph.graph if key not in ("y", *_KEPT)}
    if (y := graph.graph.get("y")) is not None:
        if not isinstance(y, str):
            y = _numbers(y, f"{what}: graph attribute 'y' of graph {number}")
            y = y.reshape(1, -1) if y.numel() > 1 else y.reshape(1)
        data.y = y
    for key in _KEPT:
        if (own := graph.graph.get(key)) is not None:
            data[key] = own.item() if isinstance(own, np.generic) else own
    return data, dropped


def _columns(
    attributes: Sequence[Mapping[str, Any]], names: Sequence[str], default: str, what: str
) -> torch.Tensor | None:
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


def _numbers(values: object, name: str) -> torch.Tensor:
    array = np.empty(0, object)
    with contextlib.suppress(ValueError, TypeError, RuntimeError):  # rows of different lengths
        array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} must be numbers, the same count each; got {str(values)[:60]}.")
    if array.dtype.kind == "u" and array.size and array.max() >= 2**63:
        raise InputError(f"{name} must be below 2^63, got {array.max()}; use a string.")
    return torch.from_numpy(np.array(array, dtype=np.float64 if array.dtype.kind == "f" else np.int64))
