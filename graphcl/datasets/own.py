"""The user's own graphs: lists of `Data`, PyG data sets, files saved by PyG."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.data.storage import GlobalStorage

from graphcl.arguments import shown
from graphcl.datasets.tu import Collated, allow_pyg_containers
from graphcl.errors import InputError, InputTypeError, reason
from graphcl.graphs.batching import unsupported
from graphcl.system.files import read_plain


def collate_graphs(graphs: Sequence[object], what: str) -> Collated:
    """Put a list of graphs into PyG's collated form.

    Args:
        graphs: `Data` objects that have the same attributes.
        what: their name, for messages.

    Raises:
        InputTypeError: an entry is not a `Data` (a `HeteroData`, a `Batch`, ...).
        InputError: attributes or widths differ between graphs; or fewer than two graphs.
    """
    if len(graphs) < 2:
        raise InputError(f"{what} holds {['no graph', '1 graph'][len(graphs)]}; contrasting graphs needs at least two.")
    first: Data | None = None
    for number, graph in enumerate(graphs):
        if not isinstance(graph, Data) or isinstance(graph, Batch):
            raise InputTypeError(
                f"{what}: graph {number} must be a torch_geometric.data.Data, got {type(graph).__name__}{hint(graph)}."
            )
        first = first or graph
        _check_alike(first, graph, number, what)
    try:
        data, slices = InMemoryDataset.collate(graphs)
    except (RuntimeError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise InputError(f"{what}: the graphs cannot be put together: {reason(error)}.") from None
    return data, slices


def hint(graph: object) -> str:
    """What to do with something that is no `Data`; nothing, where there is nothing to say."""
    return unsupported(graph) or ("; use its to_data_list()" if isinstance(graph, Batch) else "")


def _check_alike(first: Data, graph: Data, number: int, what: str) -> None:
    if differing := set(first.keys()) ^ set(graph.keys()):
        key = min(differing, key=lambda key: (key not in ("x", "y"), key))
        has, lacks = (0, number) if key in first else (number, 0)
        raise InputError(
            f"{what}: graph {lacks} has no `{key}`, graph {has} has one; give it to all graphs or to none."
        )
    for key, shape in (("edge_index", "[2, E] of int64"), ("x", "[N, F]")):
        value = graph.get(key)
        if (value is not None or key == "edge_index") and not isinstance(value, Tensor):
            got = "none" if value is None else type(value).__name__
            raise InputError(f"{what}: `{key}` of graph {number} must be a torch tensor {shape}, got {got}.")
    edge_index = graph.edge_index
    if edge_index.dtype != torch.long or edge_index.dim() != 2 or edge_index.size(0) != 2:
        got = f"{list(edge_index.shape)} of {str(edge_index.dtype).removeprefix('torch.')}"
        raise InputError(f"{what}: `edge_index` of graph {number} must be [2, E] of int64, got {got}.")
    for key in ("x", "edge_attr"):
        value, model = graph.get(key), first.get(key)
        if isinstance(value, Tensor) and isinstance(model, Tensor) and value.shape[1:] != model.shape[1:]:
            raise InputError(
                f"{what}: `{key}` of graph {number} has shape {list(value.shape)}, of graph 0 {list(model.shape)}; "
                "all graphs need the same number of columns."
            )


def collate_dataset(dataset: torch.utils.data.Dataset, what: str) -> Collated:
    """The collated form of a PyG data set: shared where it is in memory, else read graph by graph."""
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
    """Read a `.pt` file written by `InMemoryDataset.save`, or by `torch.save` from a list of `Data`.

    Only tensors and PyG's own containers are read; code in the file is refused, never run.

    Raises:
        InputError: no such file, damaged, not from PyG, or it holds code.
    """
    allow_pyg_containers()
    content = read_plain(path, "save plain graphs with InMemoryDataset.save([data, ...], path)")
    if isinstance(content, list):
        return collate_graphs([_rebuilt(graph, path) for graph in content], path.stem)
    if isinstance(content, tuple) and len(content) in (2, 3, 4):
        data, slices = content[:2]
        kind = content[-1] if len(content) > 2 else Data
        if isinstance(data, dict) and kind is Data:
            return _graph_of(data, path), _sound_slices(slices, path)
        if isinstance(data, Data):
            return _rebuilt(data, path), _sound_slices(slices, path)
        if kind is HeteroData or isinstance(data, HeteroData):
            raise InputError(f"file {str(path)!r} holds HeteroData; heterogeneous graphs are not supported.")
    raise InputError(
        f"file {str(path)!r} is not a data set saved by PyG; write it with InMemoryDataset.save([data, ...], path)."
    )


def _rebuilt(graph: Any, path: Path) -> Any:
    """A graph made anew of what a file's graph holds, as a file may put anything into the inner parts of one."""
    if type(graph) is not Data:
        return graph  # refused with a message when it is collated
    store = vars(graph).get("_store")
    if type(store) is not GlobalStorage or not isinstance(mapping := vars(store).get("_mapping"), dict):
        raise InputError(f"file {str(path)!r} is damaged: a graph in it has no attributes.")
    stated = {"_num_nodes": vars(store)["_num_nodes"]} if "_num_nodes" in vars(store) else {}
    return _graph_of({**mapping, **stated}, path)


def _graph_of(mapping: dict[Any, Any], path: Path) -> Data:
    for key in mapping:
        if not isinstance(key, str) or not re.fullmatch(r"_num_nodes|[^\W_]\w{0,99}", key):
            raise InputError(f"file {str(path)!r}: an attribute of a graph cannot be called {shown(key)}.")
    stated = mapping.get("_num_nodes", [])
    if not isinstance(stated, list) or not all(type(count) is int and 0 <= count < 2**40 for count in stated):
        raise InputError(f"file {str(path)!r} is damaged: the numbers of nodes are {shown(stated)}.")
    try:
        return Data.from_dict(mapping)
    except (TypeError, AttributeError, ValueError) as error:  # a name that PyG uses itself
        raise InputError(f"file {str(path)!r}: a graph cannot have these attributes: {reason(error)}.") from None


def _sound_slices(slices: Any, path: Path) -> dict[str, Tensor] | None:
    if slices is None or (isinstance(slices, dict) and all(isinstance(key, str) for key in slices)):
        return slices
    raise InputError(f"file {str(path)!r} is damaged: its slices are {shown(slices)}.")
