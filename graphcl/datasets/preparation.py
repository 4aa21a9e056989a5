"""Check graphs, and complete them to a `GraphDataset`: features, classes and groups; all at once, or in pieces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, InMemoryDataset, OnDiskDataset
from torch_geometric.data.separate import separate

from graphcl.datasets.collate import collate_dataset, collate_graphs, find_invalid
from graphcl.datasets.dataset import Benchmark, GraphDataset, class_labels
from graphcl.datasets.relation import GroupNumbers
from graphcl.datasets.settings import Loading, NodeFeatures
from graphcl.datasets.sources import Pieces
from graphcl.datasets.tables import NoGraphLeftError, describe_invalid, kept_rows
from graphcl.errors import InputError, warn
from graphcl.graphs.compact import Compact

_LARGE = 2**22
"""Number of values from which columns are held compact; small sets have nothing to gain."""
_GROUP = 4096
"""Number of graphs of a piece that are collated at a time."""


def prepare(
    source: object,
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
        source: all graphs, collated, as in `InMemoryDataset._data`.
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
    data, slices, ptr, invalid = find_invalid(source, slices, name, start)
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
    data.x, features, degrees = node_features(data, slices["edge_index"], ptr, settings, name)
    slices["x"] = ptr.cpu()
    for key in ("x", "edge_attr"):
        values = data.get(key)
        large = isinstance(values, Tensor) and values.numel() >= _LARGE and values.device.type == "cpu"
        if large and len(kept) > 1:  # PyG returns a single graph as it is
            data[key] = Compact.of(values)
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
    if isinstance(data.y, list) and not any(isinstance(value, str) for value in data.y):  # of NumPy numbers
        with contextlib.suppress(ValueError, TypeError):
            data.y = torch.from_numpy(np.asarray(data.y))
    labels = None if targets else class_labels(data.y, slices.get("y"), len(kept), name)
    classes = None
    if labels is not None:
        data.y, classes = labels
        slices["y"] = torch.arange(len(ptr))
    dataset = GraphDataset(data, slices, name, features, classes, degrees)
    dataset.invalid = invalid
    return dataset


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
        low, high = (0, 1) if x.is_floating_point() or not x.numel() else map(int, x.aminmax())
        if low < 0 or high > 1:
            shift = f" + {-low}" if low < 0 else ""
            advice = f"torch.nn.functional.one_hot(graph.x.long(){shift}, {high - min(low, 0) + 1}).flatten(1)"
            warn(
                f"`x` of {what} holds whole numbers from {low} to {high}, which are read as magnitudes; if they are "
                f"categories, one-hot encode them in every graph: graph.x = {advice}"
            )
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


def read_pieces(source: Iterable[object], settings: Loading) -> Pieces:
    """Return graphs, or batches, lists and data sets of graphs, in pieces of consecutive graphs.

    Reading a piece raises InputError if `features` includes degrees, or `source` is empty; see also `prepare`.
    """
    name, invalid = str(getattr(source, "name", None) or "own"), list[Any]()
    return Pieces(name, _pieces(source, name, settings, invalid), invalid)


def _pieces(source: Iterable[object], name: str, settings: Loading, invalid: list[Any]) -> Iterator[GraphDataset]:
    """Yield each piece; append the invalid graphs that are left out to `invalid`."""
    if "degree" in settings.features:
        raise InputError(f"`features` {settings.features!r} needs all graphs at once; give `x` in the graphs.")
    done, numbers = 0, GroupNumbers()
    settings = settings.model_copy(update={"categories": settings.categories or isinstance(source, GraphDataset)})
    for graphs in _groups(source):
        what = name if done == 0 else f"{name} (graphs from {done} on)"
        collated = collate_graphs(graphs, what) if isinstance(graphs, list) else collate_dataset(graphs, what)
        start, done = done, done + len(graphs)
        try:
            piece = prepare(*collated, what, settings, numbers=numbers, start=start)
        except NoGraphLeftError as error:
            invalid += error.invalid
            continue
        invalid += piece.invalid
        settings = settings.model_copy(update={"features": piece.features})
        if isinstance(source, GraphDataset):  # keep its description, as its `x` holds computed features already
            piece.features, piece.degree_columns = source.features, source.degree_columns
            if source.classes is not None and piece.classes is not None:
                piece.classes = source.classes[np.asarray(piece.classes)]
        yield piece
    if not done:
        raise InputError(f"{name} holds no graph.")
    if len(invalid) == done:
        raise NoGraphLeftError(describe_invalid(invalid, done, name), invalid)
    if invalid:
        warn(f"{describe_invalid(invalid, done, name)}; skipped.")


def _groups(source: Iterable[object]) -> Iterator[list[Data] | InMemoryDataset]:
    """Yield the graphs of `source` in lists of at most `_GROUP`; yield an `InMemoryDataset` in `source` unchanged."""
    if isinstance(source, OnDiskDataset):
        for start in range(0, len(source), _GROUP):
            yield source.multi_get(range(start, min(start + _GROUP, len(source))))
        return
    waiting: list[Any] = []
    for item in source:
        if isinstance(item, InMemoryDataset) and len(item) > 1:
            if waiting:
                yield waiting
            yield item
            waiting = []
        elif isinstance(item, Batch | list | tuple | torch.utils.data.Dataset):
            waiting += [item[number] for number in range(len(item))]  # type: ignore[arg-type]
        else:
            waiting.append(item)
        while len(waiting) >= _GROUP:
            yield waiting[:_GROUP]
            waiting = waiting[_GROUP:]
    if waiting:
        yield waiting
