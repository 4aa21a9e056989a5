"""Convert networkx graphs to PyG's `Data`, without importing networkx."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import from_networkx

from graphcl.datasets.dataset import NUMBER_CLASSES
from graphcl.datasets.features import warn_once
from graphcl.errors import InputError, InputTypeError, reason


def is_networkx(graph: object) -> bool:
    """Return True if `graph` is a networkx graph, without importing networkx."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(graph, networkx.Graph)


def convert_networkx(graphs: Sequence[Any], what: str, features: str = "auto") -> list[Data]:
    """Return networkx graphs converted to PyG's `Data`.

    Nodes keep their order. An undirected edge is listed in both directions. The node attribute "x" becomes a row of
    `x`, the edge attribute "edge_attr" a row of `edge_attr`, and the graph attributes "y" and "id" become `y` and `id`.
    Other attributes are dropped, those of edges and graphs with a warning.

    Raises:
        InputError: "x" or "edge_attr" differs in length within a graph, is not numeric, or is missing on some nodes or
            edges; "y" is not numeric; or nodes have attributes but no "x", unless `features` is "constant" or "degree".
    """
    result = []
    dropped: set[str] = set()
    for number, graph in enumerate(graphs):
        if not is_networkx(graph):
            raise InputTypeError(f"{what}: graph {number} must be a networkx graph, got {type(graph).__name__}.")
        if graph.number_of_nodes() == 0:
            raise InputError(f"{what}: graph {number} has no node; leave empty graphs out.")
        bare = type(graph)()  # without attributes: PyG's converter refuses attributes that only some nodes have
        bare.add_nodes_from(graph)
        bare.add_edges_from((*ends, {"row": row}) for row, ends in enumerate(graph.edges()))
        data = from_networkx(bare)
        edge_rows = data.pop("row", None)  # PyG's converter lists the edges in another order
        rows = [values["x"] for _, values in graph.nodes(data=True) if "x" in values]
        if rows and len(rows) != len(graph):
            raise InputError(f"{what}: {len(graph) - len(rows)} of {len(graph)} nodes of graph {number} have no 'x'.")
        other = sorted({str(key) for _, values in graph.nodes(data=True) for key in values})
        if other and not rows and features not in ("constant", "degree"):
            raise InputError(
                f"{what}: the nodes of graph {number} have {' and '.join(map(repr, other[:3]))}, but no 'x'; set 'x' "
                "of each node to its numbers (categories one-hot), or choose features 'constant' or 'degree'."
            )
        if rows:
            data.x = _numbers(rows, f"{what}: node attribute 'x' of graph {number}").reshape(len(rows), -1)
            del data.num_nodes
        attributes = [values for *_, values in graph.edges(data=True)]
        rows = [values["edge_attr"] for values in attributes if "edge_attr" in values]
        if rows and len(rows) != len(attributes):
            missing = len(attributes) - len(rows)
            raise InputError(f"{what}: {missing} of {len(attributes)} edges of graph {number} have no 'edge_attr'.")
        if rows:
            numbers = _numbers(rows, f"{what}: edge attribute 'edge_attr' of graph {number}").reshape(len(rows), -1)
            data.edge_attr = numbers[edge_rows]
        dropped |= {f"edge attribute {key!r}" for values in attributes for key in values if key != "edge_attr"}
        dropped |= {f"graph attribute {key!r}" for key in graph.graph if key not in ("y", "id")}
        if graph.graph.get("y") is not None:
            y = _numbers(graph.graph["y"], f"{what}: graph attribute 'y' of graph {number}", NUMBER_CLASSES)
            data.y = y.reshape(1, -1) if y.numel() > 1 else y.reshape(1)
        if (own := graph.graph.get("id")) is not None:
            data.id = own.item() if isinstance(own, np.generic) else own
        result.append(data)
    _fill_edgeless(result)
    if dropped:
        warn_once(
            f"{what}: ignored {', '.join(sorted(dropped)[:3])}; networkx graphs are read for 'x' of nodes, 'edge_attr' "
            "of edges, and 'y' and 'id' of `graph.graph`"
        )
    return result


def _fill_edgeless(graphs: Sequence[Data]) -> None:
    """Give graphs without edges an empty `edge_attr` if the other graphs have one."""
    model = next((data.edge_attr for data in graphs if "edge_attr" in data), None)
    if model is not None:
        for data in graphs:
            if data.num_edges == 0:
                data.edge_attr = model[:0]


def _numbers(values: object, name: str, advice: str = "") -> torch.Tensor:
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biuf":
            return torch.from_numpy(np.array(array, dtype=np.float64 if array.dtype.kind == "f" else np.int64))
        why = f"got {str(values)[:60]}"
    except (ValueError, TypeError, RuntimeError) as error:
        why = reason(error)
    raise InputError(f"{name} must be numbers, the same count each; {why}{advice and f'; {advice}'}.")
