"""Load graphs with the node features that an encoder expects: a configured encoder, or a trained one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphcl.arguments import Role
from graphcl.config import Config
from graphcl.config.settings import TABLE
from graphcl.datasets import GraphDataset, MappedDataset, load_dataset
from graphcl.datasets.load import claiming, load_targets
from graphcl.datasets.on_disk import is_on_disk
from graphcl.datasets.pair_file import with_pairs
from graphcl.datasets.settings import KEPT_SETTINGS, Features, Loading, loading
from graphcl.datasets.sources import Request, as_path
from graphcl.errors import InputError, warn
from graphcl.models.interface import takes_categories, takes_numbers
from graphcl.models.saved import EncoderDescription, read_saved
from graphcl.registry import methods


def rows_of(settings: Mapping[str, Any]) -> str:
    """Return what the method in the `settings` of a run contrasts: `graphs`, unless an extension registers others."""
    name = settings.get("method", {}).get("name")
    return methods.facts(name).get("rows", "graphs") if name in methods else "graphs"


def load_arguments(config: Config) -> dict[str, Any]:
    """Return the arguments of `load_with_pairs` for the data set of a configuration; all are hashable."""
    keys = {"data_root", "mirror", *Features.model_fields, *TABLE}
    categories = takes_categories(config.encoder["name"])
    settings = config.model_dump(include=keys)
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    pairs = None if config.positives in ("views", "group") else config.positives
    more = {"pairs": pairs, "targets": config.targets, "init": config.init, "rows": rows_of(vars(config))}
    more["towers"] = config.towers
    return {"source": config.dataset, **settings, "categories": categories, **more}


def load_with_pairs(
    source: str,
    pairs: str | None = None,
    targets: str | None = None,
    init: str | None = None,
    rows: str = "graphs",
    towers: str = "shared",
    **settings: Any,
) -> GraphDataset:
    """Load a data set, and its pairs and targets if it has them.

    Args:
        source: name or path of the data set.
        pairs: path of a table of pairs.
        targets: name or path of the data set of the targets, if not `source`.
        init: initial weights, see `Config`, which expect certain columns; separate `towers` those of their own graphs.
        rows: what the method contrasts, see `rows_of`.
        towers: whether queries and targets have encoders of their own.
        settings: further arguments of `load_dataset`.
    """
    sources, nodes = [source] if targets is None else [source, targets], rows != "graphs"
    description = None if init is None else read_saved(init)[0]
    if description is not None:
        stored: dict[str, Any] = {"features": description.features, "max_degree": description.max_degree}
        stored["tu_features"] = description.settings.get("tu_features", "labels")
        for key, value in stored.items():
            if settings.get(key, value) not in (Features.model_fields[key].default, value):
                raise InputError(f"`{key}` is {value} in `init` {init}, got {settings[key]}; leave it out.")
    named = [name for name in sources if _is_named(name)] or sources
    of_files = {key: value for key, value in settings.items() if key not in ("mirror", "tu_features")}

    def load(name: str, role: Role, description: EncoderDescription | None) -> GraphDataset:
        if description is not None:
            rules = {key: settings[key] for key in ("data_root", "mirror", *TABLE)}
            return load_for(description, name, nodes=nodes, role=role, **rules)
        read: Callable[..., GraphDataset] = load_dataset if role == "query" else load_targets
        return read(name, nodes=nodes, **(settings if name in named else of_files))

    dataset = load(source, "query", description)
    if pairs is None:
        return dataset
    own = description if towers == "shared" or description is None else description.target
    return with_pairs(dataset, pairs, None if targets is None else load(targets, "target", own))


def _is_named(source: object) -> bool:
    """Return whether a source may be downloaded or a TU set: a name or a folder, not a file or an object."""
    path = as_path(source)
    return isinstance(path, str) or (isinstance(path, Path) and path.is_dir())


def load_for(
    description: EncoderDescription,
    source: object,
    data_root: str = "datasets",
    mirror: str | None = None,
    nodes: bool | None = None,
    role: Role = "query",
    **settings: Any,
) -> GraphDataset:
    """Load graphs, and return a data set with the node features that a trained encoder expects.

    Node degrees are encoded in as many columns as in training; larger degrees share the last column. Graphs whose `x`
    already has all of the encoder's columns (labels and degrees) are used unchanged. Settings of reading that the
    encoder was trained with, such as `tu_features`, apply to these graphs too, and the scales of its training.

    All arguments but the `description` of the encoder are those of `load_dataset`; `settings` are those of tables
    and of networkx graphs. The default of `nodes` is whether the encoder was trained on nodes.

    Raises:
        InputError: the graphs do not have the columns that the encoder expects, or see `load_dataset`.
    """
    nodes = rows_of(description.settings) != "graphs" if nodes is None else nodes
    kind = claiming(source, Request(loading(**settings), Path(data_root), mirror, nodes, role=role))
    kept = set() if kind is None else kind.settings & KEPT_SETTINGS & description.settings.keys()
    for key in kept:
        if (value := description.settings[key]) != Loading.model_fields[key].default:
            settings[key] = value
    features, path = description.features, as_path(source)
    # Without labels the encoder needs no `x`, which networks may lack, so do not request features from `x`.
    stored = isinstance(source, GraphDataset) or (isinstance(path, Path) and is_on_disk(path))
    first = features if nodes or not (stored or "labels" in features) else "auto"
    categories, degrees = takes_categories(description.encoder.name), description.max_degree
    load: Callable[..., GraphDataset] = load_dataset if role == "query" else load_targets
    dataset = load(source, data_root, mirror, first, degrees, categories=categories, nodes=nodes, **settings)
    name, columns = dataset.name, dataset.num_features
    trained = f"the encoder was trained on {description.dataset} with"
    if "labels" in features and dataset.features == "constant" and not isinstance(source, GraphDataset):
        raise InputError(f"{name} has no node labels (no `x`); {trained} {description.columns()}.")
    has = f"{name} has {columns} columns of `x` ({dataset.features})"
    complete = "labels" in features and columns == description.in_channels
    if not (isinstance(dataset, MappedDataset) or features == "labels" or complete or nodes):
        invalid = dataset.invalid
        dataset = load_dataset(dataset, features=features, degree_columns=description.degree_columns or None)
        dataset.invalid = invalid
    if dataset.num_features != description.in_channels:
        raise InputError(f"{has}; {trained} {description.columns()}.")
    encoder, whole = description.encoder, not dataset[0].x.is_floating_point()
    if encoder.arguments is not None and not (takes_categories if whole else takes_numbers)(encoder.name):
        kinds = ["numbers", "categories as whole numbers"]
        raise InputError(f"`x` of {name} holds {kinds[whole]}; {trained} {kinds[not whole]}.")
    edge_dim, weighted = dataset.num_edge_features or None, dataset.has_edge_weight
    if description.edge_dim not in (None, edge_dim):
        what = f"{name} has {edge_dim or 'no'} columns of `edge_attr`"
        raise InputError(f"{what}; {trained} {description.edge_dim}, which it requires.")
    if description.edge_weight not in (None, weighted):
        what = "has weights of edges" if weighted else "has no `edge_weight`, so each edge counts as 1"
        warn(f"{name} {what}, but the encoder was trained {'without' if weighted else 'with'} weights.")
    return dataset.standardised(description.scales) if description.scales and not dataset.scales else dataset
