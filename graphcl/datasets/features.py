"""Compute node features for all graphs at once.

| `features` | columns |
|---|---|
| `labels` | the given `x` (TU sets: one-hot node labels) |
| `constant` | one column of ones |
| `degree` | one-hot node degree; degrees of `max_degree` and more share the last column |
| `labels+degree` | the columns of `labels`, then the columns of `degree` |
| `auto` | `labels` if the graphs have `x`, else `constant` |
| `auto+degree` | `labels+degree` if the graphs have `x`, else `degree` |
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.errors import InputError, InputTypeError

_WARNED: dict[Any, Any] = {}
FEATURES = ("auto", "labels", "constant", "degree", "labels+degree", "auto+degree")


def check_features(features: object, max_degree: object, degree_columns: object = None) -> None:
    """Raise InputError if an argument is invalid; called before anything is loaded."""
    if not isinstance(features, str) or features not in FEATURES:
        raise InputError(f"`features` must be one of {', '.join(map(repr, FEATURES))}, got {features!r}.")
    for name, value in (("max_degree", max_degree), ("degree_columns", degree_columns)):
        if value is None and name == "degree_columns":
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputTypeError(f"`{name}` must be a whole number, got {value!r}.")
        if value < 1:
            raise InputError(f"`{name}` must be in [1, inf), got {value}.")


def node_features(
    data: Data,
    edge_slices: Tensor,
    ptr: Tensor,
    features: str,
    max_degree: int,
    what: str,
    degree_columns: int | None = None,
    categories: bool = False,
) -> tuple[Tensor, str, int]:
    """Return the node features of all graphs of a collated data set.

    Args:
        data: all graphs, collated; node indices in `edge_index` start at 0 in each graph.
        edge_slices: index of the first edge of each graph, and the number of edges, `[n + 1]`.
        ptr: index of the first node of each graph, and the number of nodes N, `[n + 1]`.
        features: see the table above, and `load_dataset`, also for `max_degree`, `degree_columns` and `categories`.
        what: the name of the data set, for messages.

    Returns:
        `x [N, F]` in torch's default floating type (or as category indices), `features` with `auto` resolved, and the
        number of degree columns.

    Raises:
        InputError: `features` requests labels but the data set has no `x`, or combines degrees with category indices.
    """
    if features == "auto":
        features = "constant" if data.x is None else "labels"
    if features == "auto+degree":
        features = "degree" if data.x is None else "labels+degree"
    if "labels" in features and data.x is None:
        raise InputError(
            f"`features` is {features!r}, but {what} has no node labels (no `x`); choose 'constant' or 'degree'."
        )
    if categories and "labels" in features and not data.x.is_floating_point():
        if features != "labels":
            raise InputError(
                f"`features` is {features!r}, but `x` of {what} holds category indices, which exclude degrees; "
                "choose 'labels' or 'degree'."
            )
        return data.x, features, 0
    kind, columns = torch.get_default_dtype(), []
    if "labels" in features:
        _warn_of_magnitudes(data.x, what)
        columns.append(data.x.to(kind))
    if features == "constant":
        columns.append(torch.ones(int(ptr[-1]), 1, dtype=kind, device=ptr.device))
    degrees = 0
    if "degree" in features:
        largest = max_degree if degree_columns is None else degree_columns - 1
        degree = node_degrees(data.edge_index, edge_slices, ptr).clamp(max=largest)
        degrees = degree_columns or int(degree.max()) + 1
        one_hot = torch.zeros(degree.numel(), degrees, dtype=kind, device=ptr.device)
        columns.append(one_hot.scatter_(1, degree.unsqueeze(1), 1.0))
    return (columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)), features, degrees


def _warn_of_magnitudes(x: Tensor, what: str) -> None:
    """Warn if an integer `x` has values other than 0 and 1, which may be categories but are used as magnitudes."""
    if x.is_floating_point() or x.dtype == torch.bool or not x.numel():
        return
    low, high = (int(each) for each in x.aminmax())
    if low < 0 or high > 1:
        shift = f" + {-low}" if low < 0 else ""
        warn_once(
            f"`x` of {what} holds whole numbers from {low} to {high}, which are read as magnitudes; if they are "
            "categories, one-hot encode them in every graph: graph.x = "
            f"torch.nn.functional.one_hot(graph.x.long(){shift}, {high - min(low, 0) + 1}).flatten(1)"
        )


def warn_once(text: str) -> None:
    """Show a warning without its source line, once for each text."""
    warnings.warn_explicit(text, UserWarning, "graphcl", 0, registry=_WARNED)


def node_degrees(edge_index: Tensor, edge_slices: Tensor, ptr: Tensor) -> Tensor:
    """Return the out-degree of each node, `[N]`, without self-loops.

    An undirected graph lists every edge in both directions, so its out-degrees are its degrees.
    """
    edges = edge_slices.diff().to(edge_index.device)
    source = edge_index[0] + ptr[:-1].repeat_interleave(edges)
    return torch.bincount(source[edge_index[0] != edge_index[1]], minlength=int(ptr[-1]))
