"""Read graphs from files and folders: of PyG, of networkx, and of `graphcl pack`."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

from torch_geometric.data import Data
from torch_geometric.data.separate import separate

from graphcl.datasets.cache import allow_pyg_containers
from graphcl.datasets.collate import collate_graphs, has_sparse_edges
from graphcl.datasets.on_disk import is_on_disk, open_on_disk
from graphcl.datasets.settings import Attributes
from graphcl.datasets.sources import Graphs, Request, Source
from graphcl.datasets.sources.objects import collate_objects
from graphcl.errors import InputError, one_line, reason
from graphcl.registry import sources
from graphcl.system.arrays import read_torch_file
from graphcl.system.files import read_json

NETWORKS = (".graphml", ".gml", ".json")
"""Endings of files of graphs that networkx reads."""
_IGNORED = ("pre_transform.pt", "pre_filter.pt")
"""Files that PyG writes next to the graphs."""


@sources.register("torch_file", takes="a .pt file of InMemoryDataset.save (a pickle can hold code)")
class TorchFile(Source):
    """File of `InMemoryDataset.save`, or of one `Data` or a list of them; code in it is never run."""

    place = 100
    suffixes = (".pt",)

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs in the file."""
        content, name = _read(source), source.stem
        if isinstance(content, list | Data):
            graphs = content if isinstance(content, list) else [content]
            return Graphs(name, *collate_graphs(graphs, name), directions=True)
        if isinstance(content, tuple) and len(content) in (2, 3, 4):
            data, slices = content[:2]
            if isinstance(data, dict) and (len(content) == 2 or content[-1] is Data):
                data = Data.from_dict(data)
            if isinstance(data, Data):
                if slices is None:
                    data, slices = collate_graphs([data], name)
                elif has_sparse_edges(data):
                    count = len(next(iter(slices.values()))) - 1
                    graphs = [separate(Data, data, number, slices, decrement=False) for number in range(count)]
                    data, slices = collate_graphs(graphs, name)
                return Graphs(name, data, slices, directions=True)
        raise InputError(f"file {str(source)!r} is not a data set of PyG's `Data`; write it with InMemoryDataset.save.")


@sources.register("network_file", takes="a .graphml, .gml or node-link .json file of networkx")
class NetworkFile(Source):
    """File of graphs that networkx wrote: GraphML or node-link JSON, of several graphs too, or GML, of one."""

    place = 100
    suffixes, settings = NETWORKS, frozenset(Attributes.model_fields)

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs in the file."""
        return collate_objects(read_networks(source), source.stem, request.settings)


@sources.register("folder", takes="a folder of .pt, .graphml, .gml or .json files")
class Folder(Source):
    """Folder of files, in the order of their names, which become the `id` of graphs without one.

    A `.pt` file holds one `Data` or a list of them. Next to other files, `.json` files are ignored.
    """

    place = 110
    settings = frozenset(Attributes.model_fields)

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` is a folder with such files."""
        return isinstance(source, Path) and bool(_kinds(source))

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs of all files."""
        folder = source.resolve()
        suffix, *others = _kinds(folder)
        if others and others != [".json"]:
            raise InputError(f"folder {str(source)!r} holds {suffix} and {others[0]} files; keep one kind in a folder.")
        graphs: list[Any] = []
        for file in _files(folder, suffix):
            read = read_graphs(file) if suffix == ".pt" else read_networks(file)
            for number, graph in enumerate(read):
                attributes = graph if isinstance(graph, Data) else getattr(graph, "graph", {})
                if "id" not in attributes:
                    attributes["id"] = f"{file.stem}/{number}" if len(read) > 1 else file.stem
            graphs += read
        return collate_objects(graphs, folder.name, request.settings)


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


def _files(folder: Path, suffix: str) -> list[Path]:
    return sorted(file for file in folder.glob(f"*{suffix}") if file.name not in _IGNORED and file.name[0] != ".")


def _kinds(folder: Path) -> list[str]:
    """Return the suffixes of the files of graphs in a folder; `.json` is last, as it may hold anything."""
    return [suffix for suffix in (".pt", *NETWORKS) if _files(folder, suffix)]


def read_graphs(path: Path) -> list[Any]:
    """Return the graphs in a `.pt` file of one `Data` or a list of them."""
    content = _read(path)
    if not isinstance(content, list | Data):
        raise InputError(f"file {str(path)!r} must hold one `Data` or a list; name the file if it is a data set.")
    return content if isinstance(content, list) else [content]


def _read(path: Path) -> Any:
    """Return the content of a `.pt` file; only tensors and PyG's containers are read, code in the file is never run."""
    allow_pyg_containers()
    return read_torch_file(path, "save plain graphs with InMemoryDataset.save([data, ...], path)")


def read_networks(path: Path) -> list[Any]:
    """Return the networkx graphs in a GraphML or node-link JSON file, or the one in a GML file.

    Raises:
        InputError: the file cannot be read, or an edge ends at a node that is not listed.
    """
    networkx = importlib.import_module("networkx")
    kind = path.suffix.lower()
    try:
        if kind == ".graphml":
            return _read_graphml(path, networkx)
        if kind == ".json":
            content = read_json(path)
            return [_node_link(entry, networkx) for entry in (content if isinstance(content, list) else [content])]
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
    name = "edges" if "edges" in inspect.signature(networkx.node_link_graph).parameters else "link"
    graph = networkx.node_link_graph(content, **{name: key})
    nodes = [node.get("id", number) for number, node in enumerate(content["nodes"])]
    _check_nodes(graph, [tuple(node) if isinstance(node, list) else node for node in nodes])
    return graph


def _check_nodes(graph: Any, listed: list[Any]) -> None:
    """Raise InputError if an edge added a node to `graph` that is not `listed`, as networkx says nothing."""
    names = {*listed}
    if unlisted := [node for node in graph if node not in names]:
        raise InputError(f"an edge ends at node {one_line(repr(unlisted[0]), 40)}, which is not listed")
    if len(names) > len(graph):
        raise InputError("it holds a graph within a node, and nested graphs are not read")
