"""Put graphs together in PyG's collated form (lists of `Data`, PyG data sets), and check a collated data set."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard, cast

import torch
import torch.utils.data
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.data.collate import collate
from torch_geometric.utils import cumsum, is_sparse, to_edge_index

from graphcl.datasets.dataset import Collated
from graphcl.datasets.tables import InvalidGraph, describe_invalid
from graphcl.errors import InputError, InputTypeError, reason, warn
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


Cuts = Mapping[str, Tensor]
_OF_NODES = ("feat", "node_type", "n_id", "z")
"""Attributes of nodes besides `x`, `pos` and names with "node": those from which PyG infers `num_nodes`, and `z`."""

LARGEST = 1e15
"""Largest magnitude of a feature: BatchNorm squares sums of features, which overflows in float32 beyond 1e19."""


def check_store(source: object, slices: Cuts | None, what: str) -> tuple[Data, dict[str, Tensor], Tensor]:
    """Return the first three results of `find_invalid`; raise InputError if a graph is invalid."""
    data, cuts, ptr, invalid = find_invalid(source, slices, what)
    if invalid:
        raise InputError(f"{describe_invalid(invalid, len(ptr) - 1, what)}; correct the data.")
    return data, cuts, ptr


def find_invalid(
    source: object, slices: Cuts | None, what: str, start: int = 0
) -> tuple[Data, dict[str, Tensor], Tensor, list[InvalidGraph]]:
    """Return a completed copy of a collated data set, which shares the tensors of the inputs, and its invalid graphs.

    A graph is invalid if it has no nodes, if an edge ends outside it, or if `x`, `edge_attr` or `edge_weight` has a
    value that is NaN, infinite or beyond `LARGEST`. In the copy, floating values of these three have torch's default
    floating type, a one-dimensional `x` gets a second axis, and an `x` without columns is removed. PyG's TU reader
    omits the last graphs from the edge slices if these graphs have no edges; the missing slices are added.

    Args:
        source: all graphs, collated, as in `InMemoryDataset._data`.
        slices: start of each graph in each attribute, as in `InMemoryDataset.slices`.
        what: the name of the data set, for messages.
        start: index in the source of the first graph.

    Returns:
        `(data, slices, ptr, invalid)`; `ptr [n + 1]` is the index of the first node of each graph, and the number of
        nodes.

    Raises:
        InputError: the data set is empty, or its attributes are inconsistent.
    """
    if not isinstance(source, Data):
        got = f"{type(source).__name__}{unsupported(source) or ''}"
        raise InputTypeError(f"{what}: graphs must be torch_geometric.data.Data, got {got}.")
    data: Data = copy.copy(source)
    cuts, num_graphs = _complete_slices(data, slices, what)
    x = data.x
    if x is not None and not (is_dense(x) and not x.is_complex() and x.dim() in (1, 2)):
        raise InputError(f"{what}: `x` must be a dense torch tensor [N, F] of real numbers, got {describe(x)}.")
    counts = _node_counts(data, cuts, num_graphs, what)
    ptr, edge_ptr = cumsum(counts), cuts["edge_index"].to(counts.device)
    reasons = dict.fromkeys((counts < 1).nonzero().flatten().tolist(), "has no nodes")  # the first fault of each graph
    wrong = (data.edge_index < 0) | (data.edge_index >= counts.repeat_interleave(edge_ptr.diff()))
    for graph, edge in _first_rows(wrong.t(), edge_ptr):
        ends = data.edge_index[:, edge].tolist()
        reasons.setdefault(graph, f"has the edge {ends}, but {int(counts[graph])} nodes, numbered from 0")
    for key, starts in (("x", ptr), ("edge_attr", edge_ptr), ("edge_weight", edge_ptr)):
        values = data.get(key)
        if values is None:
            continue
        if not is_dense(values):
            raise InputError(f"{what}: `{key}` must be a dense torch tensor, got {describe(values)}.")
        _check_rows(cuts[key].diff().to(starts.device), starts.diff(), key, what)
        if values.is_floating_point():
            data[key] = values.to(torch.get_default_dtype())
            wrong = ~(values.abs() <= LARGEST)  # NaN fails every comparison
            for graph, row in _first_rows(wrong, starts):
                value = float(values[row][wrong[row]].flatten()[0])
                too_large = f", beyond {LARGEST:.0e}, whose square overflows" if math.isfinite(value) else ""
                reasons.setdefault(graph, f"has {value:.3g} in `{key}`{too_large}")
        if key != "edge_weight" and (key == "x" or len(values)):  # columns, of which none is no attribute
            data[key] = data[key].view(len(values), -1) if values.numel() else None
    ids = data.get("id")
    ids = ids.tolist() if isinstance(ids, Tensor) and ids.dim() == 1 else ids
    ids = ids if isinstance(ids, list) and len(ids) == num_graphs else range(start, start + num_graphs)
    invalid = [InvalidGraph(start + graph, ids[graph], reason) for graph, reason in sorted(reasons.items())]
    return data, {key: cut for key, cut in cuts.items() if key in data}, ptr, invalid


def _complete_slices(data: Data, slices: Cuts | None, what: str) -> tuple[dict[str, Tensor], int]:
    """Return the checked slices of the attributes of `data`, and the number of graphs."""
    cuts = {key: cut for key, cut in (slices or {}).items() if key in data}
    flat = {key: cut.cpu() for key, cut in cuts.items() if isinstance(cut, Tensor)}
    stated = getattr(data, "_num_nodes", None)
    sizes = [len(cut) - 1 for cut in flat.values()] + ([] if stated is None else [len(stated)])
    num_graphs = 1 if slices is None else max(sizes, default=0)
    if num_graphs < 1:
        raise InputError(f"{what} holds no graph.")
    if isinstance(data.edge_index, EdgeIndex):
        data.edge_index = data.edge_index.as_tensor()
    check_edge_index(data.edge_index, f"{what}: `edge_index`")
    for key, cut in flat.items():
        if key.startswith("edge_") and len(cut) <= num_graphs:
            cut = flat[key] = torch.cat([cut, cut[-1:].expand(num_graphs + 1 - len(cut))])
        value = data[key]
        size = len(value) if isinstance(value, list | tuple) else 1
        if isinstance(value, Tensor) and value.dim() > 0:
            size = value.size(data.__cat_dim__(key, value) or 0)
        if len(cut) != num_graphs + 1 or cut[0] != 0 or cut[-1] != size or (cut.diff() < 0).any():
            raise InputError(f"{what}: the slices of `{key}` do not fit its {size} entries and {num_graphs} graphs.")
    for key in ("x", "pos", "edge_attr", "edge_weight", "edge_index"):
        if isinstance(data.get(key), Tensor) and key not in flat:
            raise InputError(f"{what}: slices of `{key}` not found; save the graphs with InMemoryDataset.save.")
    return {**cuts, **flat}, num_graphs


def _node_counts(data: Data, slices: dict[str, Tensor], num_graphs: int, what: str) -> Tensor:
    """Return the number of nodes of each graph, `[n]`: `num_nodes`, else the rows of an attribute of nodes.

    If there is none, warn and return the largest index in `edge_index` + 1.
    """
    stated = getattr(data, "_num_nodes", None)
    counts = None if stated is None else torch.as_tensor(stated)
    if counts is not None and counts.shape != (num_graphs,):
        raise InputError(f"{what}: `num_nodes` is given for {counts.numel()} of {num_graphs} graphs.")
    for key in ("x", "pos"):
        if key in data and key in slices:
            rows = slices[key].diff()
            _check_rows(rows, rows if counts is None else counts, key, what)
            counts = rows
    if counts is None:
        owner = torch.arange(num_graphs).repeat_interleave(slices["edge_index"].diff())
        needed = data.edge_index.cpu().max(0).values + 1
        least = torch.zeros(num_graphs, dtype=torch.long).scatter_reduce_(0, owner, needed, "amax")
        of_nodes = (slices[key].diff() for key in slices if key in _OF_NODES or "node" in key)
        counts = next((rows for rows in of_nodes if (rows >= least).all()), None)
        if counts is None:
            advice = "isolated nodes after it are lost; set `num_nodes`, `x` or `pos`"
            warn(f"{what}: the number of nodes is guessed as the largest index in `edge_index` + 1; {advice}")
            counts = least
    return counts.to(data.edge_index.device)


def _check_rows(rows: Tensor, counts: Tensor, key: str, what: str) -> None:
    """Raise InputError unless each graph has as many `rows [n]` of the attribute `key` as nodes or edges."""
    for graph in (rows != counts).nonzero().flatten()[:1].tolist():
        unit = "edges" if key.startswith("edge_") else "nodes"
        number = f"{int(rows[graph])} rows for {int(counts[graph])} {unit}"
        raise InputError(f"{what}: `{key}` of graph {graph} has {number}.")


def _first_rows(wrong: Tensor, ptr: Tensor) -> list[tuple[int, int]]:
    """Return each graph with a true entry in the mask `wrong [rows, ...]`, and the first such row of the graph.

    The rows of graph i start at `ptr[i]`.
    """
    rows = wrong[:, None].flatten(1).any(1).nonzero().flatten()
    graphs = torch.searchsorted(ptr, rows.to(ptr.device), right=True) - 1
    first = torch.cat([graphs[:1] >= 0, graphs.diff() > 0])
    return list(zip(graphs[first].tolist(), rows[first].tolist(), strict=True))


def check_edge_index(edge_index: object, name: str) -> None:
    """Raise InputError if `edge_index` is not a dense tensor `[2, E]` of int64; `name` begins the message."""
    if not (is_dense(edge_index) and edge_index.dtype == torch.long and edge_index.shape[:-1] == (2,)):
        raise InputError(f"{name} must be a dense torch tensor [2, E] of int64, got {describe(edge_index)}.")


def is_dense(value: object) -> TypeGuard[Tensor]:
    """Return whether `value` is a dense tensor."""
    return isinstance(value, Tensor) and value.layout == torch.strided


def describe(value: object) -> str:
    """Return the shape and the type of a tensor in words; of another object, its type."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{list(value.shape)} of {str(value.dtype).removeprefix('torch.')}"


def not_resident(dataset: Any) -> str | None:
    """Return the reason why `dataset` cannot be held as plain tensors on a device, or None if it can.

    Raises:
        InputTypeError: the graphs are heterogeneous or temporal, which no loader supports.
    """
    inner = dataset
    while inner is not None:
        if getattr(inner, "transform", None) is not None:
            return "it has a transform, which must be applied at each access"
        inner = getattr(inner, "dataset", None)  # torch's `Subset` wraps a data set, which may have a transform
    if len(dataset) == 0:
        return "it is empty"
    graph = dataset[0]
    hint = unsupported(graph)
    if hint:
        raise InputTypeError(f"a data set must hold torch_geometric.data.Data, got {type(graph).__name__}{hint}.")
    if type(graph).__inc__ is not Data.__inc__ or type(graph).__cat_dim__ is not Data.__cat_dim__:
        return f"{type(graph).__name__} has batching rules of its own"
    for key, value in graph._store.items():
        plain = value.layout == torch.strided if isinstance(value, Tensor) else isinstance(value, (int, float, str))
        if not plain or type(value) not in (Tensor, int, float, str) or "batch" in key:
            return f"attribute `{key}` is not a plain tensor, number or string"
    return None
