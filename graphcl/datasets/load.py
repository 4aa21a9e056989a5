"""Load graphs from any source as a `GraphDataset`."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphcl.arguments import Role, checked, keywords
from graphcl.datasets.collate import hint
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.names import listing
from graphcl.datasets.preparation import prepare
from graphcl.datasets.settings import Added, Attributes, Loading, SplitTable, loading
from graphcl.datasets.sources import Graphs, Request, Source, as_path
from graphcl.datasets.tables import describe_invalid
from graphcl.errors import InputError, InputTypeError, reason, warn
from graphcl.registry import datasets, sources

_TARGETS = Request(Loading(), Path(), role="target")
_OF_TABLES = SplitTable.model_fields.keys() - {"invalid"}
_MOST_EDGES = 50_000_000
"""Larger data sets are not searched for edges in one direction only."""


@checked
@keywords(Loading, [key for key in Loading.model_fields if key not in ("features", "max_degree")])
def load_dataset(
    source: object,
    data_root: str | os.PathLike[str] = "datasets",
    mirror: str | os.PathLike[str] | None = None,
    features: str = "auto",
    max_degree: int = 64,
    *,
    nodes: bool = False,
    role: Role = "query",
    **settings: Any,
) -> GraphDataset:
    """Load graphs by name, from a file or folder, or from Python objects.

    A source is a name of `dataset_names()`, a file or a folder, or a Python object. The classes registered in
    `graphcl.registry.sources` say what they read: those of `graphcl/datasets/sources/`, and those of other packages.

    Args:
        source: a string without a path separator and without a suffix is a name, else a path.
        data_root: folder for downloads and caches.
        mirror: folder, `file://` URL or `http(s)://` URL that holds `NAME.zip`; read only if the data set is not yet
            under `data_root`, and never written to.
        features: "labels" (`x` as given; TU sets: one-hot node labels), "constant", "degree", "labels+degree", "auto"
            (labels if the graphs have `x`, else constant) or "auto+degree" (labels+degree, else degree).
        max_degree: degrees of `max_degree` and more share a column.
        nodes: whether to load one graph, or a few, with a class per node instead of one per graph.
        role: role of the source in pairs; a matrix is a graph, or as "target", a vector per row.
        tu_features: "labels", "attributes" (`NAME_node_attributes.txt`, `NAME_edge_attributes.txt`) or "both": what
            `x` and `edge_attr` of a TU set hold. A warning names attributes that are left out.
        degree_columns: number of degree columns, e.g. the number that an encoder trained on other graphs expects;
            larger degrees share the last column. Default: as many as these graphs need, at most `max_degree + 1`.
        categories: whether to keep integers in `x` as category indices, for an encoder with embedding tables.
            Otherwise they become floating point, with a warning if any is not 0 or 1.
        node_attrs: attributes of networkx nodes that become the columns of `x`, or "all"; default: the attribute `x`.
        edge_attrs: attributes of networkx edges that become `edge_attr`, or "all"; default: the attribute `edge_attr`.
        edge_weight: attribute of networkx edges that becomes `edge_weight`; default: the attribute `edge_weight`.
        id: column of the ids, whole numbers or strings; default: `id`, in any case, else the rows are numbered from 0.
        target: columns of the targets, one name or several; an empty cell is a missing target.
        invalid: "skip" leaves out rows without a valid graph or with a target that is not a number, and graphs
            without nodes, with a NaN or infinite feature or with an edge to a missing node; a warning counts them, and
            the attribute `invalid` lists them. "stop" raises InputError. Default: skip rows without a valid graph,
            stop at others.
        split: "random", "stratified" or "scaffold" for a benchmark on the targets, with a seed if wanted, such as
            "scaffold-1"; default: none.
        metric: score of the split: "rocauc", "ap", "acc", "rmse", "mae" or "r2"; default: rocauc for targets of 0 and
            1, acc for texts, else rmse.
        group: column of the groups, the `group` of each graph; an empty cell means no group.
        **settings: the last eleven, keywords defined in `graphcl.datasets.settings`, and those that extensions add.

    Returns:
        The data set; every graph has `x`, in torch's default floating type, or category indices (integers).

    Raises:
        InputError: the source cannot be used; the message says what to do. No partial files remain.

    >>> import torch
    >>> from torch_geometric.data import Data
    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> load_dataset([Data(edge_index=path, num_nodes=n) for n in (3, 4)], features="degree").x.sum(0)
    tensor([1., 4., 2.])

    Reference: Morris et al., "TUDataset: A collection of benchmark datasets for learning with graphs", 2020.
    """
    values = loading(features=features, max_degree=max_degree, **settings)
    request = Request(values, Path(os.path.abspath(os.path.expanduser(data_root))), mirror, nodes, role=role)
    try:
        dataset = _read(source, request)
    except Exception as error:  # of a file: a defect that no check has found
        if isinstance(error, InputError) or not isinstance(source, str | os.PathLike):
            raise
        raise InputError(f"cannot load {str(source)!r}: {reason(error)}.") from error
    if isinstance(source, str) and source in datasets:
        dataset = copy.copy(dataset)
        dataset.name = source
    return dataset


def _kinds() -> list[tuple[str, Source]]:
    """Return the names and the kinds of sources, in the order in which they are asked."""
    kinds: list[tuple[str, Source]] = [(name, sources[name]()) for name in sources]
    return sorted(kinds, key=lambda kind: kind[1].place)


def claiming(source: object, request: Request | None = None) -> Source | None:
    """Return the kind that reads `source`, a path or a string too; None if there is none, which loading it explains."""
    try:
        return kind_of(as_path(source), request or Request(Loading(), Path()))
    except (InputError, InputTypeError, OSError):
        return None


def usual_of_targets(source: object) -> dict[str, Any]:
    """Return the settings of a run that the targets of pairs imply, see `graphcl.datasets.sources.Source`."""
    kind = None if source is None else claiming(source, _TARGETS)
    return {} if kind is None else kind.usual_of_targets(source)


def load_targets(source: object, *arguments: Any, **settings: Any) -> GraphDataset:
    """Load the targets of pairs by arguments of `load_dataset`, without settings of tables if they are no table."""
    kind = claiming(source, _TARGETS)
    if kind is not None and not (isinstance(source, str) and source in datasets):
        settings = {key: value for key, value in settings.items() if key in kind.settings or key not in _OF_TABLES}
    return load_dataset(source, *arguments, role="target", **settings)


def is_item(source: object) -> bool:
    """Return whether `source` is one graph as a string, see `Source.is_item`."""
    return isinstance(source, str) and any(kind.is_item(source) for _, kind in _kinds())


def kind_of(source: object, request: Request) -> Source:
    """Return the first kind of source that claims `source`; raise InputError if there is none."""
    for _, kind in _kinds():
        if kind.claims(source, request):
            return kind
    takes = "; ".join(filter(None, (sources.facts(name)["takes"] for name, _ in _kinds())))
    if not isinstance(source, Path):
        raise InputTypeError(f"`source` must be one of: {takes}; got {type(source).__name__}{hint(source)}.")
    if not source.exists():
        raise InputError(f"file or folder {str(source)!r} not found.")
    holds = f", which holds {listing(os.listdir(source))}," if source.is_dir() else ""
    advice = "; for NAME.zip, give the name as `source` and the folder as `mirror`"
    raise InputError(f"{str(source)!r}{holds} is not a data set, which is one of: {takes}{advice}.")


def _read(source: object, request: Request) -> GraphDataset:
    """Return the data set that the kinds of source read, each in turn what the one before returned."""
    used = set[str]()
    while True:
        source = as_path(source)
        kind = kind_of(source, request)
        _check_settings(kind, request, used)
        used |= kind.settings & Added.model_fields.keys()
        source = kind.read(source, request)
        if isinstance(source, Graphs):
            return _prepared(source, request.settings)
        if isinstance(source, GraphDataset):
            return source


def _check_settings(kind: Source, request: Request, used: set[str]) -> None:
    """Raise InputError if a setting is given that does not apply to this kind of source; of some, only warn.

    Settings that another kind has `used`, to read what this kind reads in turn, may be given.
    """
    settings = request.settings
    if request.mirror is not None and "mirror" not in kind.settings:
        warn(f"`mirror` {request.mirror} has no effect on this source, which is never downloaded")
    if settings.tu_features != "labels" and "tu_features" not in kind.settings:
        warn(f"`tu_features` {settings.tu_features} has no effect on this source, which is no TU set")
    for key, field in SplitTable.model_fields.items():
        value = getattr(settings, key)
        if value != field.default and key not in kind.settings | used and key != "invalid":
            takers = (sources.facts(name)["takes"] for name, other in _kinds() if key in other.settings)
            of = "networkx graphs" if key in Attributes.model_fields else next(takers, "other sources")
            raise InputError(f"`{key}` {value!r} is for {of}.")


def _prepared(graphs: Graphs, settings: Loading) -> GraphDataset:
    """Return the checked data set of graphs that were read, and warn of what may be a mistake."""
    settings = settings.model_copy(update={"categories": settings.categories or graphs.categories})
    dataset = prepare(graphs.data, graphs.slices, graphs.name, settings, graphs.benchmark, targets=graphs.targets)
    if graphs.classes is not None and dataset.classes is not None:
        dataset.classes = graphs.classes[np.asarray(dataset.classes)]
    if dataset.invalid:
        total = len(dataset) + len(dataset.invalid)
        warn(f"{describe_invalid(dataset.invalid, total, graphs.name)}; skipped.")
    dataset.invalid = dataset.invalid or graphs.invalid
    if graphs.directions:
        _warn_of_one_way_edges(dataset)
    return dataset


def _warn_of_one_way_edges(dataset: GraphDataset) -> None:
    """Warn if an edge exists in one direction only, naming the first graph with such an edge."""
    edge_index, slices = dataset._data.edge_index, dataset.slices
    if slices is None or edge_index.size(1) > _MOST_EDGES:
        return
    ptr, n = slices["x"], int(slices["x"][-1])
    nodes = edge_index + ptr[:-1].repeat_interleave(slices["edge_index"].diff()).to(edge_index.device)
    source, target = nodes[:, edge_index[0] != edge_index[1]]
    # the two directions of an edge have adjacent codes; the smallest code lies in the first graph
    codes = ((torch.minimum(source, target) * n + torch.maximum(source, target)) * 2 + (source < target)).unique()
    pairs, directions = (codes // 2).unique_consecutive(return_counts=True)
    one_way = pairs[directions == 1]
    if one_way.numel():
        graph = int(torch.searchsorted(ptr, int(one_way[0]) // n, right=True)) - 1
        warn(
            f"graph {graph} of {dataset.name} has edges in one direction only, and messages pass only along stored "
            "edges; if the graphs are undirected, apply torch_geometric.transforms.ToUndirected() to each "
            "(networkx: graph.to_undirected())"
        )
