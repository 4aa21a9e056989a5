"""Convert networkx graphs to PyG's `Data`, without importing networkx."""

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


def convert_networkx(graphs: Sequence[Any], what: str, features: str = "auto") -> list[Data]:
    """Return networkx graphs converted to PyG's `Data`.

    Nodes keep their order. An undirected edge is listed in both directions. The node attribute "x" becomes a row of
    `x`, and the graph attribute "y" becomes `y`. Other attributes are dropped.

    Args:
        graphs: networkx graphs, directed or not.
        what: a name for the graphs, for messages.
        features: see `load_dataset`.

    Raises:
        InputError: "x" differs in length between nodes, is not numeric, or is missing on some nodes; "y" is not
            numeric; or nodes have attributes but no "x", unless `features` is "constant" or "degree".
    """
    result = []
    for number, graph in enumerate(graphs):
        if not is_networkx(graph):
            raise InputTypeError(f"{what}: graph {number} must be a networkx graph, got {type(graph).__name__}.")
        if graph.number_of_nodes() == 0:
            raise InputError(f"{what}: graph {number} has no node; leave empty graphs out.")
        bare = type(graph)()  # without attributes: PyG's converter refuses attributes that only some nodes have
        bare.add_nodes_from(graph)
        bare.add_edges_from(graph.edges())
        data = from_networkx(bare)
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
