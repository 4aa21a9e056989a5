"""Conversion of networkx graphs to PyG's `Data`, without importing networkx."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import from_networkx

from graphcl.errors import InputError, InputTypeError, reason


def is_networkx(graph: object) -> bool:
    """Return True if `graph` is a networkx graph, without importing networkx."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(graph, networkx.Graph)


def convert_networkx(graphs: Sequence[Any], what: str) -> list[Data]:
    """Return `graphs`, which are networkx graphs, as PyG's `Data`.

    Nodes keep their order; an undirected edge is listed in both directions. Node attributes "x" become rows of `x`, the
    graph attribute "y" becomes `y`. Other attributes are dropped.

    Args:
        graphs: networkx graphs, directed or not.
        what: a name for the graphs, for messages.

    Raises:
        InputError: "x" is missing on some nodes, differs in length or is not numeric; "y" is not numeric.
    """
    result = []
    for number, graph in enumerate(graphs):
        if not is_networkx(graph):
            raise InputTypeError(f"{what}: graph {number} must be a networkx graph, got {type(graph).__name__}.")
        if graph.number_of_nodes() == 0:
            raise InputError(f"{what}: graph {number} has no node; leave empty graphs out.")
        bare = type(graph)()  # without attributes, as PyG's converter refuses those that only some nodes have
        bare.add_nodes_from(graph)
        bare.add_edges_from(graph.edges())
        data = from_networkx(bare)
        rows = [values["x"] for _, values in graph.nodes(data=True) if "x" in values]
        if rows and len(rows) != len(graph):
            raise InputError(f"{what}: {len(graph) - len(rows)} of {len(graph)} nodes of graph {number} have no 'x'.")
        if rows:
            data.x = _numbers(rows, f"{what}: node attribute 'x' of graph {number}").reshape(len(rows), -1).float()
            del data.num_nodes
        if graph.graph.get("y") is not None:
            y = _numbers(graph.graph["y"], f"{what}: graph attribute 'y' of graph {number}")
            data.y = y.reshape(1, -1) if y.numel() > 1 else y.reshape(1)
        result.append(data)
    return result


def _numbers(values: object, name: str) -> torch.Tensor:
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            raise InputError(f"{name} must be numbers, the same count each; got {str(values)[:60]}.")
        return torch.from_numpy(np.array(array, dtype=np.float64 if array.dtype.kind == "f" else np.int64))
    except (ValueError, TypeError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name} must be numbers, the same count each; {reason(error)}.") from None
