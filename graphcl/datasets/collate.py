"""Put graphs together in PyG's collated form: lists of `Data`, and PyG data sets."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast

import torch
import torch.utils.data
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.data.collate import collate
from torch_geometric.utils import is_sparse, to_edge_index

from graphcl.datasets.dataset import Collated
from graphcl.datasets.store import check_edge_index, describe, is_dense
from graphcl.errors import InputError, InputTypeError, one_line, reason
from graphcl.graphs.batching import unsupported


def collate_graphs(graphs: Sequence[object], what: str) -> Collated:
    """Return `graphs` in PyG's collated form; `what` names them in messages. `group` becomes a list, None if missing.

    Raises:
        InputTypeError: an entry is not a `Data` (a `HeteroData`, a `Batch`, ...).
        InputError: attributes or their numbers of columns differ between graphs; or there is no graph.
    """
    if not graphs:
        raise InputError(f"{what} holds no graph.")
    parts, first = list[Data](), set[str]()
    for number, graph in enumerate(graphs):
        if not isinstance(graph, Data) or isinstance(graph, Batch):
            got = f"{type(graph).__name__}{hint(graph)}"
            raise InputTypeError(f"{what}: graph {number} must be a torch_geometric.data.Data, got {got}.")
        parts.append(_with_edge_index(graph))
        first = first or set(parts[0].keys())
        if differing := (first ^ set(parts[number].keys())) - {"group"}:
            key = min(differing, key=lambda key: (key not in ("x", "y"), key))
            has, lacks = (0, number) if key in first else (number, 0)
            raise InputError(f"{what}: graph {lacks} has no `{key}`, graph {has} has one; give it to all or to none.")
        check_edge_index(parts[number].get("edge_index"), f"{what}: `edge_index` of graph {number}")
    groups = [graph.get("group") for graph in parts]
    several = any(isinstance(group, Tensor) and group.numel() > 1 for group in groups)  # a group has another meaning
    grouped = not several and any(group is not None for group in groups)
    if grouped:
        parts = [copy.copy(graph) for graph in parts]
        for graph in parts:
            graph.pop("group", None)
    try:
        data, slices, _ = collate(type(parts[0]), data_list=parts, increment=False, add_batch=False)
    except Exception as error:  # PyG raises any kind
        difference = _difference(parts) or f"the graphs cannot be put together: {reason(error)}."
        raise InputError(f"{what}: {difference}") from None
    if grouped:
        data.group, slices["group"] = groups, torch.arange(len(groups) + 1)
    return data, slices


def collate_dataset(dataset: torch.utils.data.Dataset, what: str) -> Collated:
    """Return the collated graphs of a PyG data set.

    An `InMemoryDataset` without a transform or a selection of graphs is already collated. Other data sets are read
    graph by graph.
    """
    if isinstance(dataset, InMemoryDataset) and dataset.slices is not None:  # None: a single graph
        data, collated = cast(Data, dataset._data), dataset.transform is None and dataset._indices is None
        if collated and not has_sparse_edges(data):
            return data, dataset.slices
    return collate_graphs([dataset[number] for number in range(len(dataset))], what)  # type: ignore[arg-type]


def has_sparse_edges(data: Data) -> bool:
    """Return whether the edges of a graph, or of a list of graphs, are in a sparse `adj_t` only."""
    adjacency = data.get("adj_t")
    first = adjacency[0] if isinstance(adjacency, list) and adjacency else adjacency
    return data.get("edge_index") is None and is_sparse(first)


def hint(graph: object) -> str:
    """Return advice for a message that `graph` is not a `Data`; an empty string if there is no advice."""
    return unsupported(graph) or ("; use its to_data_list()" if isinstance(graph, Batch) else "")


def _with_edge_index(graph: Data) -> Data:
    """Return a graph with a sparse `adj_t` only as one with `edge_index`, and others unchanged.

    Values of `adj_t` other than 1 become `edge_weight`, or `edge_attr` if they have columns. The size of `adj_t`, or of
    PyG's `EdgeIndex`, becomes `num_nodes` if the graph has no features.
    """
    edges, sparse = graph.get("edge_index"), has_sparse_edges(graph)
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
                shape, wanted = [*value.shape], [*model.shape]
                if value.dim() == model.dim() and value.movedim(axis, 0).shape[1:] == model.movedim(axis, 0).shape[1:]:
                    continue
                rule = f"PyG joins graphs along axis {axis} of it only"
                rule = "all graphs need the same number of columns" if key in ("x", "edge_attr") else rule
                return f"`{key}` of graph {number} has shape {shape}, of graph 0 {wanted}; {rule}."
            kind, other = type(value).__name__, type(model).__name__
            if kind != other and not {kind, other} <= {"int", "float", "bool"}:
                return f"`{key}` of graph {number} has type {kind}, of graph 0 {other}; use one type in all graphs."
    return None
