"""Compute node features for all graphs at once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.datasets.settings import NodeFeatures
from graphcl.errors import InputError, warn


def node_features(
    data: Data, edge_slices: Tensor, ptr: Tensor, settings: NodeFeatures, what: str
) -> tuple[Tensor, str, int]:
    """Return the node features of all graphs of a collated data set.

    Args:
        data: all graphs, collated; node indices in `edge_index` start at 0 in each graph.
        edge_slices: index of the first edge of each graph, and the number of edges, `[n + 1]`.
        ptr: index of the first node of each graph, and the number of nodes N, `[n + 1]`.
        settings: see `load_dataset`.
        what: the name of the data set, for messages.

    Returns:
        `x [N, F]` in torch's default floating type (or as category indices in int64), `features` with `auto` resolved,
        and the number of degree columns.

    Raises:
        InputError: `features` requests labels but the data set has no `x`, or combines degrees with category indices.
    """
    features: str = settings.features
    if features.startswith("auto"):
        bare = "constant" if features == "auto" else "degree"
        features = bare if data.x is None else features.replace("auto", "labels")
    if "labels" in features and data.x is None:
        raise InputError(f"`features` is {features!r}, but {what} has no `x`; choose 'constant' or 'degree'.")
    x = data.x if data.x is None or data.x.is_floating_point() else data.x.long()  # the type of indices
    if settings.categories and "labels" in features and not x.is_floating_point():
        if features != "labels":
            raise InputError(f"`features` is {features!r}, but `x` of {what} holds category indices; choose 'labels'.")
        return x, features, 0
    kind, columns, degrees = torch.get_default_dtype(), [], 0
    if "labels" in features:
        if data.x.dtype != torch.bool:
            _warn_of_magnitudes(x, what)
        columns.append(x.to(kind))
    if features == "constant":
        columns.append(torch.ones(int(ptr[-1]), 1, dtype=kind, device=ptr.device))
    if "degree" in features:
        largest = settings.max_degree if settings.degree_columns is None else settings.degree_columns - 1
        source, target = data.edge_index
        node = source + ptr[:-1].repeat_interleave(edge_slices.diff().to(source.device))
        degree = torch.bincount(node[source != target], minlength=int(ptr[-1])).clamp(max=largest)  # no self-loops
        degrees = settings.degree_columns or int(degree.max()) + 1
        one_hot = torch.zeros(degree.numel(), degrees, dtype=kind, device=ptr.device)
        columns.append(one_hot.scatter_(1, degree.unsqueeze(1), 1.0))
    return (columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)), features, degrees


def _warn_of_magnitudes(x: Tensor, what: str) -> None:
    """Warn if an integer `x` has values other than 0 and 1, which may be categories but are used as magnitudes."""
    if x.is_floating_point() or not x.numel():
        return
    low, high = (int(each) for each in x.aminmax())
    if low < 0 or high > 1:
        shift = f" + {-low}" if low < 0 else ""
        advice = f"torch.nn.functional.one_hot(graph.x.long(){shift}, {high - min(low, 0) + 1}).flatten(1)"
        warn(
            f"`x` of {what} holds whole numbers from {low} to {high}, which are read as magnitudes; if they are "
            f"categories, one-hot encode them in every graph: graph.x = {advice}"
        )
