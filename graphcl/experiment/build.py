"""Build the parts of a run from its settings: device, model, method and augmentations."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.augment import Augmentation
from graphcl.config import TRAINING, Config, build_augmentation
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.relation import Relation, relation_of_groups
from graphcl.errors import InputError, reason
from graphcl.experiment.parts import places, training_graphs, training_rows
from graphcl.experiment.vectors import matched_vectors
from graphcl.graphs.columns import Scale
from graphcl.loaders.listed import ListedPairs
from graphcl.loaders.loader import make_loader
from graphcl.loaders.neighbours import NeighbourLoader
from graphcl.loaders.order import WHOLE, EpochBatches, Shard
from graphcl.loaders.pairs import EpochPairs, segments
from graphcl.losses import Loss
from graphcl.methods import Method
from graphcl.models.contrastive import ContrastiveModel, model_of
from graphcl.models.interface import OwnEncoder, OwnEncoders, accepts, make_encoder, own_encoder, takes_categories
from graphcl.models.saved import EncoderDescription, EncoderName, read_encoder
from graphcl.models.towers import Tower, TwoTowers
from graphcl.registry import encoders, losses, methods
from graphcl.system.memory import total_memory
from graphcl.training.randomness import seeded

_BYTES_PER_WEIGHT = 16
"""In float32: the weight, its gradient and Adam's two moments."""


def pick_device(name: str) -> torch.device:
    """Return the torch device called `name`; `auto` is CUDA if available. InputError if the device is not available."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise InputError(f"`device` must be auto, cpu or cuda, got {name!r}.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise InputError(f"`device` is {name}, but torch sees {count} CUDA devices; pass --device cpu.")
    return device


def setup_runtime(config: Config, local_rank: int | None = None) -> torch.device:
    """Set the number of threads and deterministic mode of this process, and return its device.

    The `local_rank` of this process on its machine selects the CUDA device; it is None for a single process.
    """
    device = pick_device(config.device)
    if local_rank is not None and device.type == "cuda":
        device = pick_device(f"cuda:{local_rank}")
        torch.cuda.set_device(device)
    # the default is one thread: on busy cores, threads wait for each other
    torch.set_num_threads(config.threads)
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads this at its first use
    torch.use_deterministic_algorithms(config.deterministic)
    return device


def make_model(
    config: Config,
    dataset: GraphDataset,
    seed: int = 0,
    encoder: OwnEncoders = None,
    trained: bool = True,
) -> ContrastiveModel:
    """Return a model on the CPU before training, without changing torch's global generator.

    Args:
        config: settings of the encoder and the projector.
        dataset: data set, whose `x` and `edge_attr` the encoder must fit.
        seed: seed of the initial weights.
        trained: whether the encoder starts from the weights of `config.init`, if there are any.
        encoder: module to copy, or function from the number of columns to a module; default: the encoder in `config`.
            With separate towers, also a pair: that of the queries and that of the targets.

    Raises:
        InputError: the encoder does not fit the data set, or needs more memory than the machine has.
    """
    own = encoder if isinstance(encoder, tuple) else (encoder, encoder)
    make = _encoder(config.encoder, dataset, own[0])
    if config.towers == "separate":
        make_target = _encoder(config.target_encoder, dataset.targets or dataset, own[1], "target_encoder")
        with seeded(seed):
            query, target = make(), make_target()
            first = Tower(query, config.projection, config.projector)
            return TwoTowers(first, Tower(target, first.out_channels, config.projector))
    with seeded(seed):
        module, projection, projector = make(), config.projection, config.projector
        _check_targets(module, dataset)
        if config.keep_projector:
            module = module if isinstance(module, Tower) else Tower(module, projection, projector)
            projection, projector = None, "none"
        if config.init is not None and trained:  # before the model, as the weights may change the encoder's width
            _load_initial(config.init, module, own[0])
        return model_of(module, dataset.rows, projection, projector)


def _load_initial(init: str, module: nn.Module, encoder: OwnEncoder | None) -> None:
    """Load the weights of the encoder in the file `init` into `module`."""
    initial, _ = read_encoder(init, encoder=encoder)
    if isinstance(module, Tower) != isinstance(initial, Tower):  # only one has a projector
        module, initial = (each.encoder if isinstance(each, Tower) else each for each in (module, initial))
    try:
        module.load_state_dict(initial.state_dict())
    except RuntimeError as error:
        raise InputError(
            f"the weights of `init` {init} do not fit the settings of the encoder ({reason(error)}); leave these "
            "settings out, or `init`."
        ) from None


def prepared(config: Config, dataset: GraphDataset, model: ContrastiveModel) -> GraphDataset:
    """Return the data set, with standardised columns if a setting asks for it.

    A model that must see the training graphs first does so, see `ContrastiveModel.fit`.
    """
    if config.standardise_columns and not dataset.scales:
        dataset = standardised(config, dataset, model)
    if not model.fitted:
        _fit(config, dataset, model)
    return dataset


def _fit(config: Config, dataset: GraphDataset, model: ContrastiveModel) -> None:
    relation = pairs_of(config, dataset)
    group = dataset.groups if relation is None else relation.component
    assert group is not None
    if (rows := training_rows(config, dataset)) is not None:
        train = torch.zeros(len(group), dtype=torch.bool).index_fill(0, rows, True)
        group = group.where(train, -1)
    device = next(model.parameters()).device
    model.fit(itertools.chain(*(make_loader(each, 1024, device=device) for each in dataset.sides)), group)


def _encoder(
    spec: Mapping[str, Any], dataset: GraphDataset, encoder: OwnEncoder | None, setting: str = "encoder"
) -> Callable[[], nn.Module]:
    """Return the function that makes the encoder `spec`, or the user's own, for the columns of a data set."""
    name, columns, edge_dim = spec["name"], dataset.num_features, dataset.num_edge_features or None
    if encoder is not None:
        return partial(own_encoder, encoder, columns)
    form = encoders.fact(name, "form")
    if setting == "target_encoder" and form != "dense":
        raise InputError(f"`{setting}` {name} has {form} rows, which no projector of a tower can follow; use gin.")
    if not has_numbers(dataset) and not takes_categories(name):
        raise InputError(
            f"encoder `{name}` needs real numbers in `x`, but the `x` of {dataset.name} holds categories; use "
            "encoder molecule_gine, or features degree."
        )
    if edge_dim is None and "edge_dim" in encoders.arguments(name).required:
        raise InputError(f"encoder `{name}` needs `edge_attr`, which {dataset.name} lacks; use gin.")
    make = partial(make_encoder, name, arguments_of(spec), columns, edge_dim)
    _check_size(make, name, setting)
    return make


def _check_targets(encoder: nn.Module, dataset: GraphDataset) -> None:
    """Raise InputError if one encoder is to encode queries and targets that have other columns."""
    if (targets := dataset.targets) is None:
        return
    for key, used, of in (
        ("x", True, lambda each: f"{each.num_features} columns of {'numbers' if has_numbers(each) else 'categories'}"),
        ("edge_attr", accepts(encoder, "edge_attr"), lambda each: f"{each.num_edge_features or 'no'} columns"),
    ):
        if used and of(dataset) != of(targets):
            raise InputError(
                f"one encoder takes graphs with the same columns, but `{key}` of the queries has {of(dataset)}, that "
                f"of the targets {of(targets)}; pass --towers separate."
            )


def has_numbers(dataset: GraphDataset) -> bool:
    """Return whether `x` holds numbers, not categories."""
    return bool(dataset[0].x.is_floating_point())


def _check_size(make: Callable[[], nn.Module], name: str, setting: str) -> None:
    """Raise InputError if training the encoder that `make` returns needs more memory than the machine has."""
    # an encoder that reads its weights in its constructor cannot be built on the meta device, so it is not checked
    refused = contextlib.suppress(NotImplementedError, RuntimeError)
    with refused, torch.random.fork_rng(devices=[]), torch.device("meta"):
        needed = _BYTES_PER_WEIGHT * sum(each.numel() for each in make().parameters())
        if needed > (memory := total_memory()):
            raise InputError(
                f"encoder `{name}` needs {needed / 1e9:.0f} GB for its weights, gradients and Adam's moments, and this "
                f"machine has {memory / 1e9:.0f} GB; lower --{setting}.hidden_channels or --{setting}.num_layers."
            )


def make_method(config: Config, dataset: Any, model: ContrastiveModel, seed: int = 0) -> Method:
    """Return the method that trains `model`, on its device, without changing torch's global generator.

    Of `dataset`, only the number of graphs (or groups) is used. `seed` is that of the method's initial weights.

    Raises:
        InputError: the method does not accept the loss.
    """
    arguments = arguments_of(config.method)
    wanted = methods.arguments(config.method["name"]).required
    count = len(dataset)
    if (relation := pairs_of(config, dataset)) is not None:  # methods know a pair by its component
        count = int(relation.component.max()) + 1
    elif config.positives == "group":  # methods know a pair by the number of its group in the training part
        train, groups = training_graphs(config, dataset), dataset.groups
        assert groups is not None
        count = segments(groups if train is None else groups[train], config.singles)[1].numel()
    if _takes_labels(config):
        arguments["labels"] = "ids"
    known = {"num_graphs": count, "first": config.views.first, "second": config.views.second}
    for name, value in known.items():
        if name in wanted:
            arguments[name] = build_augmentation(value) if isinstance(value, dict) else value
    if "vectors" in arguments:
        arguments["vectors"] = matched_vectors(arguments["vectors"], dataset)
    device = next(model.parameters()).device
    with seeded(seed):
        method: Method = methods[config.method["name"]](model, Loss(**config.loss), **arguments)
    return method.to(device)


def _takes_labels(config: Config) -> bool:
    """Return whether the loss has several positives of each anchor, those with its label."""
    return "labels" in losses.arguments(config.loss["name"]).tensors


def make_augmentations(config: Config) -> tuple[Augmentation, Augmentation]:
    """Return the augmentations of the first and the second view."""
    return build_augmentation(config.views.first), build_augmentation(config.views.second)


def column_scales(config: Config, dataset: GraphDataset, model: ContrastiveModel) -> dict[str, Scale]:
    """Return the scales to standardise the columns by that `model` uses: of all graphs that the run trains on.

    They are those of a data set that is standardised already, else empty unless `standardise_columns` is set.
    """
    if dataset.scales or not config.standardise_columns:
        return dict(dataset.scales)
    scales = dataset.column_scales(training_graphs(config, dataset))
    return {key: each for key, each in scales.items() if key == "x" or accepts(model.encoder, key)}


def standardised(config: Config, dataset: GraphDataset, model: ContrastiveModel) -> GraphDataset:
    """Return the data set, and its targets, with columns standardised for the encoder of each."""
    scales, targets = column_scales(config, dataset, model), dataset.targets
    found = dataset.standardised(scales)
    if targets is not None:
        own = column_scales(config, targets, model.target) if isinstance(model, TwoTowers) else scales
        found.targets = targets.standardised(own)
    return found


def training_loader(
    config: Config, dataset: GraphDataset, generator: torch.Generator, device: torch.device, shard: Shard
) -> Iterable[Batch]:
    """Return the loader of the training batches: graphs, pairs of a group, or nodes and their sampled neighbours.

    If groups are scored by retrieval, only graphs of the training part are drawn.
    """
    if config.neighbours:
        return NeighbourLoader(dataset, config.neighbours, config.batch_size, generator, device)
    sampler = training_sampler(config, dataset, config.batch_size, generator, shard)
    return make_loader(dataset, device=device, batch_sampler=sampler, targets=dataset.targets)


def training_sampler(
    config: Config, dataset: GraphDataset, size: int, generator: torch.Generator, shard: Shard = WHOLE
) -> EpochBatches:
    """Return the sampler of batches of `size` graphs or pairs that a run trains on."""
    order = size, True, generator, config.shuffle_window, shard
    sampler: EpochBatches
    if (relation := pairs_of(config, dataset)) is not None:
        place = places(dataset, config.batch_by, "batch_by")
        several = _takes_labels(config)
        sampler = ListedPairs(relation, size, True, generator, shard, place, config.batch_share, several)
    elif config.positives == "group" and dataset.groups is not None:
        sampler = EpochPairs(dataset.groups, *order, config.singles)
    else:
        sampler = EpochBatches(len(dataset), *order)
    if (graphs := training_graphs(config, dataset)) is not None:
        sampler.restrict_to(graphs)
    return sampler


def restricted(loader: Any, graphs: Tensor | None) -> Any:
    """Return a loader of `make_loader`, which from now on draws only the graphs with these indices; None: all."""
    if graphs is not None:
        loader.batch_sampler.restrict_to(graphs)
    return loader


def pairs_of(config: Config, dataset: Any) -> Relation | None:
    """Return the list of pairs to train on; None if the positives are views, or two drawn members of each group.

    Groups become the list of all their pairs if a setting needs a list.
    """
    relation: Relation | None = getattr(dataset, "relation", None)  # a list of graphs has none
    if (
        relation is None
        and config.positives == "group"
        and (config.batch_by or config.hard_negatives or _takes_labels(config))
    ):
        return relation_of_groups(dataset.groups)
    return relation


def describe(
    config: Config, dataset: GraphDataset, model: ContrastiveModel, encoder: OwnEncoders = None
) -> EncoderDescription:
    """Return the description that is saved with the weights of `model`; for other arguments, see `make_model`."""
    own = encoder if isinstance(encoder, tuple) else (encoder, encoder)
    found = _describe(config, config.encoder, dataset, model, named=own[0] is None)
    if not isinstance(model, TwoTowers):
        return found
    targets = dataset.targets or dataset
    target = _describe(config, config.target_encoder, targets, model.target, named=own[1] is None)
    return found.model_copy(update={"target": target})


def _describe(
    config: Config, spec: Mapping[str, Any], dataset: GraphDataset, model: ContrastiveModel, named: bool
) -> EncoderDescription:
    """Return the description of one encoder, `spec` if it is `named`, without that of the targets' encoder."""
    tower = isinstance(model.encoder, Tower)
    module = model.encoder.encoder if isinstance(model.encoder, Tower) else model.encoder
    settings = config.model_dump(include={*TRAINING, "standardise", "tu_features"})
    if not isinstance(settings["method"].get("vectors", ""), str):
        settings["method"]["vectors"] = "an array"
    return EncoderDescription(
        encoder=EncoderName(name=spec["name"], arguments=arguments_of(spec))
        if named
        else EncoderName(name=type(module).__name__, arguments=None),
        in_channels=dataset.num_features,
        out_channels=model.width,
        edge_dim=(dataset.num_edge_features or None) if accepts(module, "edge_attr") else None,
        edge_weight=dataset.has_edge_weight if accepts(module, "edge_weight") else None,
        dataset=dataset.name,
        features=cast(Any, dataset.features),  # a `str` in `dataset`, a `Literal` in the description
        max_degree=config.max_degree,
        label_columns=dataset.num_features - dataset.degree_columns if "labels" in dataset.features else 0,
        scales=column_scales(config, dataset, model),
        settings=settings,
        tower=config.projector if tower else None,
    )


def arguments_of(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in a specification `{name: ..., argument: ...}`, without the name."""
    return {key: value for key, value in named.items() if key != "name"}
