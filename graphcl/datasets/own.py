"""Collate the user's own graphs: lists of `Data`, PyG data sets, and files saved by PyG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.utils.data
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.data.collate import collate

from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.features import warn_once
from graphcl.datasets.pyg import Collated, allow_pyg_containers
from graphcl.datasets.store import check_edge_index
from graphcl.errors import InputError, InputTypeError, reason
from graphcl.graphs.batching import unsupported
from graphcl.system.torch_file import read_torch_file

_MAX_SORTED = 50_000_000
"""Data sets with more edges are not checked for edges in one direction only."""


def collate_graphs(graphs: Sequence[object], what: str, least: int = 2) -> Collated:
    """Return `graphs` in PyG's collated form.

    `what` names the graphs in messages. At least `least` graphs are needed: 1 if nodes are contrasted.

    Raises:
        InputTypeError: an entry is not a `Data` (a `HeteroData`, a `Batch`, ...).
        InputError: attributes or their numbers of columns differ between graphs; or there are too few graphs.
    """
    if len(graphs) < least:
        advice = "; contrasting graphs needs at least two" * (least > 1)
        raise InputError(f"{what} holds {['no graph', '1 graph'][len(graphs)]}{advice}.")
    first: Data | None = None
    for number, graph in enumerate(graphs):
        if not isinstance(graph, Data) or isinstance(graph, Batch):
            raise InputTypeError(
                f"{what}: graph {number} must be a torch_geometric.data.Data, got {type(graph).__name__}{hint(graph)}."
            )
        first = first or graph
        _check_alike(first, graph, number, what)
    try:
        data, slices, _ = collate(type(first), data_list=list(graphs), increment=False, add_batch=False)
    except (RuntimeError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise InputError(f"{what}: the graphs cannot be put together: {reason(error)}.") from None
    return data, slices


def hint(graph: object) -> str:
    """Return advice for a message that `graph` is not a `Data`; an empty string if there is no advice."""
    return unsupported(graph) or ("; use its to_data_list()" if isinstance(graph, Batch) else "")


def _check_alike(first: Data, graph: Data, number: int, what: str) -> None:
    if differing := set(first.keys()) ^ set(graph.keys()):
        key = min(differing, key=lambda key: (key not in ("x", "y"), key))
        has, lacks = (0, number) if key in first else (number, 0)
        raise InputError(
            f"{what}: graph {lacks} has no `{key}`, graph {has} has one; give it to all graphs or to none."
        )
    check_edge_index(graph.get("edge_index"), f"{what}: `edge_index` of graph {number}")
    if (x := graph.get("x")) is not None and (not isinstance(x, Tensor) or x.layout != torch.strided):
        got = x.layout if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"{what}: `x` of graph {number} must be a dense torch tensor [N, F], got {got}.")
    for key in ("x", "edge_attr"):
        value, model = graph.get(key), first.get(key)
        if isinstance(value, Tensor) and isinstance(model, Tensor) and value.shape[1:] != model.shape[1:]:
            raise InputError(
                f"{what}: `{key}` of graph {number} has shape {list(value.shape)}, of graph 0 {list(model.shape)}; "
                "all graphs need the same number of columns."
            )


def collate_dataset(dataset: torch.utils.data.Dataset, what: str) -> Collated:
    """Return the collated graphs of a PyG data set.

    An `InMemoryDataset` without a transform or a selection of graphs is already collated. Other data sets are read
    graph by graph.
    """
    if isinstance(dataset, InMemoryDataset) and dataset.transform is None and dataset._indices is None:
        if isinstance(dataset._data, Data):
            return dataset._data, dataset.slices
        raise InputTypeError(
            f"{what} must hold torch_geometric.data.Data, got {type(dataset._data).__name__}{hint(dataset._data)}."
        )
    if not hasattr(dataset, "__len__"):
        raise InputTypeError(f"{what} must have a length; give a list of its graphs.")
    return collate_graphs([dataset[number] for number in range(len(dataset))], what)


def collate_file(path: Path) -> Collated:
    """Return the collated graphs of a `.pt` file, written by `InMemoryDataset.save` or `torch.save([data, ...], path)`.

    Only tensors and PyG's containers are read; code in the file is never run.

    Raises:
        InputError: the file is corrupted, was not written by PyG, or contains code.
    """
    allow_pyg_containers()
    content = read_torch_file(path, "save plain graphs with InMemoryDataset.save([data, ...], path)")
    if isinstance(content, list):
        return collate_graphs(content, path.stem)
    if isinstance(content, tuple) and len(content) in (2, 3, 4):
        data, slices = content[:2]
        kind = content[-1] if len(content) > 2 else Data
        if isinstance(data, dict) and kind is Data:
            return Data.from_dict(data), slices
        if isinstance(data, Data):
            return data, slices
        if kind is HeteroData or isinstance(data, HeteroData):
            raise InputError(f"file {str(path)!r} holds HeteroData; heterogeneous graphs are not supported.")
    raise InputError(
        f"file {str(path)!r} is not a data set saved by PyG; write it with InMemoryDataset.save([data, ...], path)."
    )


def warn_of_one_way_edges(dataset: GraphDataset) -> None:
    """Warn if an edge exists in one direction only, naming the first graph with such an edge."""
    edge_index, slices = dataset._data.edge_index, dataset.slices
    if slices is None or edge_index.size(1) > _MAX_SORTED:
        return
    ptr, device = slices["x"], edge_index.device
    first_node = ptr[:-1].repeat_interleave(slices["edge_index"].diff()).to(device)
    no_loop = edge_index[0] != edge_index[1]
    (source, target), shift = edge_index[:, no_loop], first_node[no_loop]
    low, high = shift + torch.minimum(source, target), shift + torch.maximum(source, target)
    # the two directions of an edge have adjacent codes; the smallest code lies in the first graph
    codes = ((low * int(ptr[-1]) + high) * 2 + (source < target)).unique()
    pairs, directions = (codes // 2).unique_consecutive(return_counts=True)
    if (one_way := pairs[directions == 1]).numel():
        node = int(one_way[0]) // int(ptr[-1])
        graph = int(torch.searchsorted(ptr, node, right=True)) - 1
        warn_once(
            f"graph {graph} of {dataset.name} has edges in one direction only, and messages pass only along stored "
            "edges; if the graphs are undirected, apply torch_geometric.transforms.ToUndirected() to each "
            "(networkx: graph.to_undirected())"
        )
