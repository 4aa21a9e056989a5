"""Collate the user's own graphs: lists of `Data`, PyG data sets, and files saved by PyG."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.utils.data
from torch import Tensor
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.data.collate import collate

from graphcl.datasets.dataset import Collated, GraphDataset
from graphcl.datasets.staging import allow_pyg_containers
from graphcl.datasets.store import check_edge_index, is_dense
from graphcl.errors import InputError, InputTypeError, reason, warn
from graphcl.graphs.batching import unsupported
from graphcl.system.torch_file import read_torch_file

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
    collated = isinstance(dataset, InMemoryDataset) and dataset.transform is None and dataset._indices is None
    if isinstance(dataset, InMemoryDataset) and collated and dataset.slices is not None:  # None: a single graph
        return cast(Data, dataset._data), dataset.slices
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
            return (data, slices) if slices is not None else collate_graphs([data], path.stem)
    raise InputError(f"file {str(path)!r} is not a data set of PyG's `Data`; write it with InMemoryDataset.save.")


def collate_folder(folder: Path) -> Collated | None:
    """Return the collated graphs of a folder of `.pt` files, in the order of the file names; None without such files.

    Each file holds one `Data` or a list of them. The `id` of a graph without one is the name of its file, with its
    place in a longer list. PyG's `pre_transform.pt` and `pre_filter.pt` are ignored.
    """
    files = sorted(file for file in folder.glob("*.pt") if file.name not in ("pre_transform.pt", "pre_filter.pt"))
    graphs: list[Any] = []
    for file in files:
        content = _read(file)
        if not isinstance(content, list | Data):
            raise InputError(f"file {str(file)!r} must hold one `Data` or a list; name the file if it is a data set.")
        for place, graph in enumerate(found := content if isinstance(content, list) else [content]):
            if isinstance(graph, Data) and "id" not in graph:
                graph.id = f"{file.stem}/{place}" if len(found) > 1 else file.stem
        graphs += found
    return collate_graphs(graphs, folder.name) if files else None


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
