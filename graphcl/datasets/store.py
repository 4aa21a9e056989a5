"""Check a collated data set, vectorised over all graphs."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.utils import cumsum

from graphcl.datasets.invalid import InvalidGraph, describe_invalid
from graphcl.errors import InputError, InputTypeError, warn
from graphcl.graphs.batching import unsupported

Cuts = Mapping[str, Tensor]
MAX_ISOLATED = 2**22
"""Largest number of nodes with neither features nor edges, of which a small file could claim any number."""

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
    # floating point, because a sum of integers could overflow
    isolated = float(counts.double().sum()) - 2 * data.edge_index.size(1)
    if x is None and isolated > MAX_ISOLATED:
        most = f"{isolated:.0f} nodes have neither features nor edges, most in graph {int(counts.argmax())}"
        raise InputError(f"{what}: {most}; leave nodes without edges out, or give `x`.")

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
            values = values if values.element_size() > 1 else values.float()  # torch compares no float8
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
    flat = {
        key: cut.cpu()
        for key, cut in cuts.items()
        if isinstance(cut, Tensor) and cut.dim() == 1 and len(cut) > 0 and cut.dtype == torch.long
    }
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
        if isinstance(value, Tensor) and value.layout == torch.strided and not is_dense(value):
            raise InputError(f"{what}: `{key}` must be a dense torch tensor, got {describe(value)}.")
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
    """Return True if `value` is a tensor of plain numbers in memory: not sparse, nested, quantised or on "meta"."""
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return False
    return not (value.is_nested or value.is_quantized or value.is_meta)


def describe(value: object) -> str:
    """Return the shape, the type and any unusual storage of a tensor in words; of another object, its type."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    shape = "nested" if value.is_nested else list(value.shape)
    place = ' on the device "meta", without values' if value.is_meta else ""
    return f"{shape} of {str(value.dtype).removeprefix('torch.')}{place}"


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
