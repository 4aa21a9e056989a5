"""Convert networkx graphs to PyG's `Data`, without importing networkx."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import from_networkx

from graphcl.errors import InputError, InputTypeError, warn

_KEPT = ("id", "group", "part", "project")
"""Graph attributes that are kept as they are, besides `y`."""


def is_networkx(graph: object) -> bool:
    """Return True if `graph` is a networkx graph, without importing networkx."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(graph, networkx.Graph)


def convert_networkx(graphs: Sequence[Any], what: str, features: str = "auto") -> list[Data]:
    """Return networkx graphs converted to PyG's `Data`.

    Nodes keep their order. An undirected edge is listed in both directions. The node attribute "x" becomes a row of
    `x`, the edge attribute "edge_attr" a row of `edge_attr`, and the graph attributes "y", "id", "group", "part" and
    "project" attributes of the `Data`. Other attributes are dropped, those of edges and graphs with a warning.

    Raises:
        InputError: "x" or "edge_attr" differs in length within a graph, is not numeric, or is missing on some nodes or
            edges; "y" is neither numeric nor a string; or nodes have attributes but no "x", unless `features` is
            "constant" or "degree".
    """
    result, dropped = list[Data](), set[str]()
    for number, graph in enumerate(graphs):
        if not is_networkx(graph):
            raise InputTypeError(f"{what}: graph {number} must be a networkx graph, got {type(graph).__name__}.")
        # without attributes, as PyG's converter refuses those that only some nodes have; never a user's subclass, whose
        # constructor may add nodes
        kind = f"{'Multi' * graph.is_multigraph()}{'Di' * graph.is_directed()}Graph"
        bare = getattr(sys.modules["networkx"], kind)()
        bare.add_nodes_from(graph)
        bare.add_edges_from((*ends, {"row": row}) for row, ends in enumerate(graph.edges()))
        data = from_networkx(bare)
        edge_rows = data.pop("row", None)  # PyG's converter lists the edges in another order
        nodes = [values for _, values in graph.nodes(data=True)]
        edges = [values for *_, values in graph.edges(data=True)]
        if (x := _rows(nodes, "x", f"{what}: nodes of graph {number}")) is not None:
            data.x = x
            del data.num_nodes
        elif any(nodes) and features not in ("constant", "degree"):
            other = sorted({str(key) for values in nodes for key in values})
            found = f"the nodes of graph {number} have {' and '.join(map(repr, other[:3]))}, but no 'x'"
            raise InputError(f"{what}: {found}; set 'x' to numbers, or choose features 'constant' or 'degree'.")
        if (edge_attr := _rows(edges, "edge_attr", f"{what}: edges of graph {number}")) is not None:
            data.edge_attr = edge_attr[edge_rows]
        dropped |= {f"edge attribute {key!r}" for values in edges for key in values if key != "edge_attr"}
        dropped |= {f"graph attribute {key!r}" for key in graph.graph if key not in ("y", *_KEPT)}
        if (y := graph.graph.get("y")) is not None:
            if not isinstance(y, str):
                y = _numbers(y, f"{what}: graph attribute 'y' of graph {number}")
                y = y.reshape(1, -1) if y.numel() > 1 else y.reshape(1)
            data.y = y
        for key in _KEPT:
            if (own := graph.graph.get(key)) is not None:
                data[key] = own.item() if isinstance(own, np.generic) else own
        result.append(data)
    rows, edge_rows = (next((data[key] for data in result if key in data), None) for key in ("x", "edge_attr"))
    for data in result:
        if rows is not None and data.num_nodes == 0:
            data.x = rows[:0]
            del data.num_nodes
        if edge_rows is not None and data.num_edges == 0:
            data.edge_attr = edge_rows[:0]
    if dropped:
        warn(
            f"{what}: ignored {', '.join(sorted(dropped)[:3])}; networkx graphs are read for 'x' of nodes, 'edge_attr' "
            "of edges, and 'y', 'id', 'group', 'part' and 'project' of `graph.graph`"
        )
    return result


def _rows(attributes: Sequence[Mapping[str, Any]], key: str, name: str) -> torch.Tensor | None:
    """Return the attribute `key` of nodes or edges as a matrix, or None if none has it."""
    rows = [values[key] for values in attributes if key in values]
    if 0 < len(rows) < len(attributes):
        raise InputError(f"{name}: {len(attributes) - len(rows)} of {len(attributes)} have no {key!r}.")
    return _numbers(rows, f"{name}: {key!r}").reshape(len(rows), -1) if rows else None


def _numbers(values: object, name: str) -> torch.Tensor:
    array = np.empty(0, object)
    with contextlib.suppress(ValueError, TypeError, RuntimeError):  # rows of different lengths
        array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} must be numbers, the same count each; got {str(values)[:60]}.")
    return torch.from_numpy(np.array(array, dtype=np.float64 if array.dtype.kind == "f" else np.int64))
