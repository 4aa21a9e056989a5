"""Node features: what each node starts from, for all graphs at once.

| `features` | columns |
|---|---|
| `labels` | `x` as the data set gives it (TU: node labels, one-hot) |
| `constant` | one column of ones |
| `degree` | one-hot of the degree; degrees from `max_degree` on share the last column |
| `labels+degree` | both, side by side |
| `auto` | `labels` where there is an `x`, else `constant` |
| `auto+degree` | `labels+degree` where there is an `x`, else `degree` |
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.errors import InputError, InputTypeError

FEATURES = ("auto", "labels", "constant", "degree", "labels+degree", "auto+degree")


def check_features(features: object, max_degree: object, degree_columns: object = None) -> None:
    """Refuse a choice of features that does not exist, before anything is loaded."""
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
    """The feature matrix of a collated data set and the choice it stands for.

    Args:
        data: all graphs in one; node numbers in `edge_index` start at 0 in each graph.
        edge_slices: where `edge_index` is cut, `[n + 1]`.
        ptr: the first node of each graph, `[n + 1]`.
        features: see the table above.
        max_degree: degrees from this on share a column.
        what: the name of the data set, for messages.
        degree_columns: exactly so many columns of degrees, larger ones share the last; default: as many as are needed.
        categories: whether integers in `x` are numbers of categories, for embedding tables, and stay integers.

    Returns:
        `x [N, F]` of torch's default floating type (or of categories), the choice with `auto` resolved, and how many
        columns are degrees.

    Raises:
        InputError: labels are asked for, but there is no `x`; or degrees beside categories.
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
                f"`features` is {features!r}, but `x` of {what} numbers categories, beside which no degrees can stand; "
                "choose 'labels' or 'degree'."
            )
        return data.x, features, 0
    kind, columns = torch.get_default_dtype(), []
    if "labels" in features:
        columns.append(data.x.to(kind))
    if features == "constant":
        columns.append(torch.ones(int(ptr[-1]), 1, dtype=kind, device=ptr.device))
    degrees = 0
    if "degree" in features:
        most = max_degree if degree_columns is None else degree_columns - 1
        degree = node_degrees(data.edge_index, edge_slices, ptr).clamp(max=most)
        degrees = degree_columns or int(degree.max()) + 1
        one_hot = torch.zeros(degree.numel(), degrees, dtype=kind, device=ptr.device)
        columns.append(one_hot.scatter_(1, degree.unsqueeze(1), 1.0))
    return (columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)), features, degrees


def node_degrees(edge_index: Tensor, edge_slices: Tensor, ptr: Tensor) -> Tensor:
    """The degree of each node, `[N]`: entries of `edge_index[0]`, self-loops not counted.

    An undirected graph lists every edge in both directions, so this is its degree; of a directed graph it is the
    out-degree.
    """
    edges = edge_slices.diff().to(edge_index.device)
    source = edge_index[0] + ptr[:-1].repeat_interleave(edges)
    return torch.bincount(source[edge_index[0] != edge_index[1]], minlength=int(ptr[-1]))
