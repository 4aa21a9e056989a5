"""Check collated graphs, and complete them to a `GraphDataset`: features, classes and groups."""

from __future__ import annotations

import contextlib

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.separate import separate

from graphcl.datasets.dataset import Benchmark, GraphDataset, class_labels
from graphcl.datasets.features import node_features
from graphcl.datasets.groups import GroupNumbers
from graphcl.datasets.invalid import NoGraphLeftError, describe_invalid, kept_rows
from graphcl.datasets.own import collate_graphs
from graphcl.datasets.settings import Loading
from graphcl.datasets.store import find_invalid
from graphcl.datasets.texts import check_texts
from graphcl.errors import InputError
from graphcl.graphs.compact import Compact

_LARGE = 2**22
"""Number of values from which columns are held compact; small sets have nothing to gain."""


def compacted(x: Tensor, graphs: int) -> Tensor:
    """Return columns of many graphs in fewer bytes, if there are many values; PyG returns a single graph as it is."""
    return Compact.of(x) if graphs > 1 and x.numel() >= _LARGE and x.device.type == "cpu" else x


def prepare(
    given: object,
    slices: dict[str, Tensor] | None,
    name: str,
    settings: Loading | None = None,
    benchmark: Benchmark | None = None,
    numbers: GroupNumbers | None = None,
    start: int = 0,
    targets: bool = False,
) -> GraphDataset:
    """Check a collated data set; return it with node features, class indices and groups. The inputs are not modified.

    If invalid graphs are left out, the `id` of a graph without one becomes its index in the source.

    Args:
        given: all graphs, collated, as in `InMemoryDataset._data`.
        slices: start of each graph in each attribute, as in `InMemoryDataset.slices`.
        name: name of the data set.
        settings: the node features, and whether to leave invalid graphs out, see `load_dataset`.
        benchmark: split and metric of a benchmark's data set; if given, `y` becomes floating-point targets instead of
            class indices.
        numbers: converter of the groups, if the data set is one of several pieces.
        start: index in the source of the first graph, likewise.
        targets: whether `y` holds numbers to predict, which are no classes even if they are whole.

    Raises:
        InputError: a graph is invalid and not to be left out, or `y` mixes strings and numbers; see also
            `find_invalid`, `node_features` and `GroupNumbers`.
        NoGraphLeftError: all graphs are invalid and left out.
    """
    settings = settings or Loading()
    data, slices, ptr, invalid = find_invalid(given, slices, name, start)
    check_texts(data, name)
    count = len(ptr) - 1
    if invalid and settings.invalid != "skip":
        raise InputError(f'{describe_invalid(invalid, count, name)}; correct the graphs, or set `invalid` to "skip".')
    if len(invalid) == count:
        raise NoGraphLeftError(describe_invalid(invalid, count, name), invalid)
    kept = kept_rows(count - len(invalid), invalid, start)
    if invalid:
        graphs = [separate(Data, data, row - start, slices, decrement=False) for row in kept.tolist()]
        data, slices, ptr, _ = find_invalid(*collate_graphs(graphs, name), name)
    if settings.invalid == "skip" and "id" not in data:
        data.id, slices["id"] = torch.from_numpy(kept), torch.arange(len(kept) + 1)
    x, features, degrees = node_features(data, slices["edge_index"], ptr, settings, name)
    data.x, slices["x"] = compacted(x, len(kept)), ptr.cpu()
    if isinstance(data.edge_attr, Tensor):
        data.edge_attr = compacted(data.edge_attr, len(kept))
    # a stored number of nodes would be wrong in views that drop nodes
    del data.num_nodes
    if hasattr(data, "_num_nodes"):
        del data._num_nodes
    if data.get("group") is not None:
        one_each = torch.arange(ptr.numel())
        if "group" not in slices or not torch.equal(slices["group"], one_each):
            raise InputError(f"{name}: `group` must be one whole number or string per graph; rename it if it is not.")
        data.group, slices["group"] = (numbers or GroupNumbers())(data.group, name), one_each
    if benchmark is not None:
        data.y = data.y.float()
        return GraphDataset(data, slices, name, features, degree_columns=degrees, benchmark=benchmark)
    if isinstance(data.y, list) and not any(isinstance(each, str) for each in data.y):  # of NumPy numbers
        with contextlib.suppress(ValueError, TypeError):
            data.y = torch.from_numpy(np.asarray(data.y))
    classes = None
    if not targets and (labels := class_labels(data.y, slices.get("y"), ptr.numel() - 1, name)) is not None:
        data.y, classes = labels
        slices["y"] = torch.arange(ptr.numel())
    dataset = GraphDataset(data, slices, name, features, classes, degrees)
    dataset.invalid = invalid
    return dataset
