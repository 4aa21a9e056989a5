"""Collate the user's own graphs: lists of `Data`, PyG data sets, and files saved by PyG."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.utils.data
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.data.collate import collate
from torch_geometric.data.separate import separate
from torch_geometric.utils import is_sparse, to_edge_index

from graphcl.datasets.dataset import Collated, GraphDataset
from graphcl.datasets.staging import allow_pyg_containers
from graphcl.datasets.store import check_edge_index, describe, is_dense
from graphcl.errors import InputError, InputTypeError, one_line, reason, warn
from graphcl.graphs.batching import unsupported
from graphcl.system.arrays import read_torch_file

_MAX_SORTED = 50_000_000
"""Data sets with more edges are not checked for edges in one direction only."""


def collate_graphs(graphs: Sequence[object], what: str) -> Collated:
    """Return `graphs` in PyG's collated form; `what` names them in messages. `group` becomes a list, None if missing.

    Raises:
        InputTypeError: an entry is not a `Data` (a `HeteroData`, a `Batch`, ...).
        InputError: attributes or their numbers of columns differ between graphs; or there is no graph.
    """
    if not graphs:
        raise InputError(f"{what} holds no graph.")
    graphs = [_with_edge_index(graph) for graph in graphs]
    for number, graph in enumerate(graphs):
        if not isinstance(graph, Data) or isinstance(graph, Batch):
            got = f"{type(graph).__name__}{hint(graph)}"
            raise InputTypeError(f"{what}: graph {number} must be a torch_geometric.data.Data, got {got}.")
        _check_alike(cast(Data, graphs[0]), graph, number, what)
    graphs, groups = _without_groups(cast(Sequence[Data], graphs))
    try:
        data, slices, _ = collate(type(graphs[0]), data_list=list(graphs), increment=False, add_batch=False)
    except Exception as error:  # PyG raises any kind
        found = _difference(graphs) or f"the graphs cannot be put together: {reason(error)}."
        raise InputError(f"{what}: {found}") from None
    if groups is not None:
        data.group, slices["group"] = groups, torch.arange(len(groups) + 1)
    return data, slices


def _with_edge_index(graph: Any) -> Any:
    """Return a graph with a sparse `adj_t` only as one with `edge_index`, and others unchanged.

    Values of `adj_t` other than 1 become `edge_weight`, or `edge_attr` if they have columns. The size of `adj_t`, or of
    PyG's `EdgeIndex`, becomes `num_nodes` if the graph has no features.
    """
    if not isinstance(graph, Data) or isinstance(graph, Batch):
        return graph
    edges, sparse = graph.get("edge_index"), _is_sparse(graph)
    if not sparse and not isinstance(edges, EdgeIndex):
        return graph
    graph, num_nodes = copy.copy(graph), graph.num_nodes
    if sparse:
        ends, values = to_edge_index(graph.adj_t)
        del graph.adj_t
        graph.edge_index = ends.flip(0)
        if values.dim() > 1 or bool((values != 1).any()):
            graph["edge_attr" if values.dim() > 1 else "edge_weight"] = values
    if graph.x is None and graph.pos is None and (sparse or None not in edges.sparse_size()):
        graph.num_nodes = num_nodes
    return graph


def _is_sparse(data: Data) -> bool:
    """Return whether the edges of a graph, or of a list of graphs, are in a sparse `adj_t` only."""
    adjacency = data.get("adj_t")
    first = adjacency[0] if isinstance(adjacency, list) and adjacency else adjacency
    return data.get("edge_index") is None and is_sparse(first)


def _without_groups(graphs: Sequence[Data]) -> tuple[Sequence[Data], list[Any] | None]:
    """Return the graphs without `group`, and the groups; `(graphs, None)` if no graph has one, or one has several."""
    groups = [graph.get("group") for graph in graphs]
    several = any(isinstance(each, Tensor) and each.numel() > 1 for each in groups)  # an attribute of another meaning
    if several or all(each is None for each in groups):
        return graphs, None
    bare = [copy.copy(graph) for graph in graphs]
    for graph in bare:
        graph.pop("group", None)
    return bare, groups


def hint(graph: object) -> str:
    """Return advice for a message that `graph` is not a `Data`; an empty string if there is no advice."""
    return unsupported(graph) or ("; use its to_data_list()" if isinstance(graph, Batch) else "")


def _check_alike(first: Data, graph: Data, number: int, what: str) -> None:
    if differing := (set(first.keys()) ^ set(graph.keys())) - {"group"}:
        key = min(differing, key=lambda key: (key not in ("x", "y"), key))
        has, lacks = (0, number) if key in first else (number, 0)
        raise InputError(f"{what}: graph {lacks} has no `{key}`, graph {has} has one; give it to all or to none.")
    check_edge_index(graph.get("edge_index"), f"{what}: `edge_index` of graph {number}")


def _difference(graphs: Sequence[Data]) -> str | None:
    """Return a message on the first attribute that PyG cannot join with that of graph 0; None if there is none."""
    for number, graph in enumerate(graphs):
        for key, value in graph:
            if isinstance(value, Tensor) and not is_dense(value):
                return f"`{key}` of graph {number} must be a dense torch tensor, got {describe(value)}."
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                return f"`{key}` of graph {number} must be within 64 bits, got {one_line(value, 40)}; use a string."
            model = graphs[0][key]
            if is_dense(value) and is_dense(model):
                axis = graph.__cat_dim__(key, value) or 0
                shape, wanted = ([*each.shape] for each in (value, model))
                if value.dim() == model.dim() and value.movedim(axis, 0).shape[1:] == model.movedim(axis, 0).shape[1:]:
                    continue
                rule = f"PyG joins graphs along axis {axis} of it only"
                rule = "all graphs need the same number of columns" if key in ("x", "edge_attr") else rule
                return f"`{key}` of graph {number} has shape {shape}, of graph 0 {wanted}; {rule}."
            own, other = type(value).__name__, type(model).__name__
            if own != other and not {own, other} <= {"int", "float", "bool"}:
                return f"`{key}` of graph {number} has type {own}, of graph 0 {other}; use one type in all graphs."
    return None


def collate_dataset(dataset: torch.utils.data.Dataset, what: str) -> Collated:
    """Return the collated graphs of a PyG data set.

    An `InMemoryDataset` without a transform or a selection of graphs is already collated. Other data sets are read
    graph by graph.
    """
    if isinstance(dataset, InMemoryDataset) and dataset.slices is not None:  # None: a single graph
        data, collated = cast(Data, dataset._data), dataset.transform is None and dataset._indices is None
        if collated and not _is_sparse(data):
            return data, dataset.slices
    return collate_graphs([dataset[number] for number in range(len(dataset))], what)  # type: ignore[arg-type]


def collate_file(path: Path) -> Collated:
    """Return the collated graphs of a `.pt` file of `InMemoryDataset.save`, or of one `Data` or a list of them."""
    content = _read(path)
    if isinstance(content, list | Data):
        return collate_graphs(content if isinstance(content, list) else [content], path.stem)
    if isinstance(content, tuple) and len(content) in (2, 3, 4):
        data, slices = content[:2]
        if isinstance(data, dict) and (len(content) == 2 or content[-1] is Data):
            data = Data.from_dict(data)
        if isinstance(data, Data):
            if slices is None:
                return collate_graphs([data], path.stem)
            if _is_sparse(data):
                every = range(len(next(iter(slices.values()))) - 1)
                graphs = [separate(Data, data, number, slices, decrement=False) for number in every]
                return collate_graphs(graphs, path.stem)
            return data, slices
    raise InputError(f"file {str(path)!r} is not a data set of PyG's `Data`; write it with InMemoryDataset.save.")


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


def warn_of_one_way_edges(dataset: GraphDataset) -> None:
    """Warn if an edge exists in one direction only, naming the first graph with such an edge."""
    edge_index, slices = dataset._data.edge_index, dataset.slices
    if slices is None or edge_index.size(1) > _MAX_SORTED:
        return
    ptr, n = slices["x"], int(slices["x"][-1])
    nodes = edge_index + ptr[:-1].repeat_interleave(slices["edge_index"].diff()).to(edge_index.device)
    source, target = nodes[:, edge_index[0] != edge_index[1]]
    # the two directions of an edge have adjacent codes; the smallest code lies in the first graph
    codes = ((torch.minimum(source, target) * n + torch.maximum(source, target)) * 2 + (source < target)).unique()
    pairs, directions = (codes // 2).unique_consecutive(return_counts=True)
    if (one_way := pairs[directions == 1]).numel():
        graph = int(torch.searchsorted(ptr, int(one_way[0]) // n, right=True)) - 1
        warn(
            f"graph {graph} of {dataset.name} has edges in one direction only, and messages pass only along stored "
            "edges; if the graphs are undirected, apply torch_geometric.transforms.ToUndirected() to each "
            "(networkx: graph.to_undirected())"
        )
