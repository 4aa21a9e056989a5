"""Build the parts of a run from its settings: device, model, method, batches, views."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment import Augmentation, two_views
from graphcl.config import Config, build_augmentation
from graphcl.datasets.dataset import GraphDataset
from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.losses.engine.checks import NonFiniteInputError
from graphcl.methods import Method
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.interface import OwnEncoder, make_encoder, own_encoder, takes_categories
from graphcl.models.saved import EncoderDescription, EncoderName
from graphcl.registry import encoders, methods

TRAINING = {
    "views", "projection", "projector", "loss", "method", "epochs", "steps", "batch_size", "shuffle_window", "lr",
    "weight_decay", "clip_norm", "amp", "non_finite", "precise_bn",
}  # fmt: skip
"""The settings that an encoder's weights depend on, besides those of the encoder and of the data."""


def pick_device(name: str) -> torch.device:
    """Return the device of that name; `auto` is CUDA where there is a CUDA device.

    Raises:
        InputError: there is no CUDA device of that number.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise InputError(f"`device` is {name}, but torch sees {count} CUDA devices; pass --device cpu.")
    return device


def setup_runtime(config: Config, local_rank: int | None = None) -> torch.device:
    """Set threads and determinism of this process and return its device.

    Args:
        config: the settings.
        local_rank: number of this process on its machine, where there are several; each takes a CUDA device.
    """
    device = pick_device(config.device)
    if local_rank is not None and device.type == "cuda":
        device = pick_device(f"cuda:{local_rank}")
        torch.cuda.set_device(device)
    # Two threads gain a fifth on small graphs, but wait for each other many times a step: on busy cores they lose a
    # hundredfold. One thread also gives the same figures on any number of cores. The SVM uses all cores.
    torch.set_num_threads(config.threads)
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it at its first use
    torch.use_deterministic_algorithms(config.deterministic)
    return device


def make_model(
    config: Config, dataset: GraphDataset, seed: int = 0, encoder: OwnEncoder | None = None
) -> ContrastiveModel:
    """Return the untrained model of a seed, on the CPU; torch's global generator keeps its state.

    Args:
        config: names the encoder and the projector's form.
        dataset: gives the numbers of columns.
        seed: of the weights.
        encoder: a module, or a function that makes one, instead of the named encoder.

    Raises:
        InputError: the encoder needs edge attributes that the graphs lack, or features that are not categories.
    """
    name, columns, edge_dim = config.encoder["name"], dataset.num_features, edge_columns(dataset)
    if encoder is None and not dataset[0].x.is_floating_point() and not takes_categories(name):
        raise InputError(
            f"encoder `{name}` computes with `x`, but the `x` of {dataset.name} holds categories; use "
            "encoder molecule_gine, or features degree."
        )
    if encoder is None and edge_dim is None and "edge_dim" in encoders.arguments(name).required:
        raise InputError(f"encoder `{name}` needs `edge_attr`, which {dataset.name} lacks; use gin.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if encoder is not None:
            module = own_encoder(encoder, columns)
        else:
            module = make_encoder(name, arguments_of(config.encoder), columns, edge_dim)
        return ContrastiveModel(module, config.projection, config.projector)


def make_method(config: Config, dataset: GraphDataset, model: ContrastiveModel, seed: int = 0) -> Method:
    """Return the method of a seed around its model; torch's global generator keeps its state.

    Raises:
        InputError: the loss does not fit the method.
    """
    arguments = arguments_of(config.method)
    wanted = methods.arguments(config.method["name"]).required
    known = {"num_graphs": len(dataset), "first": config.views.first, "second": config.views.second}
    for name, value in known.items():
        if name in wanted:
            arguments[name] = build_augmentation(value) if isinstance(value, dict) else value
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        method: Method = methods[config.method["name"]](model, Loss(**config.loss), **arguments)
    return method.to(device)


def make_augmentations(config: Config) -> tuple[Augmentation, Augmentation]:
    """Return the two augmentations."""
    return build_augmentation(config.views.first), build_augmentation(config.views.second)


def dry_run(config: Config, dataset: GraphDataset, encoder: OwnEncoder | None = None) -> None:
    """Run one step on two graphs and discard it, so that settings that do not fit fail before anything is written.

    Args:
        config: the settings.
        dataset: the graphs.
        encoder: see `make_model`.

    Raises:
        InputError: loss, method, views, encoder and data set do not fit together, or the features hold NaN.
    """
    batch = Batch.from_data_list([dataset[0], dataset[1]])
    generator = torch.Generator().manual_seed(0)
    method = make_method(config, dataset, make_model(config, dataset, encoder=encoder))
    views = two_views(batch, *method.augmentations(*make_augmentations(config)), generator)
    with torch.no_grad():
        try:
            method(*views, ids=torch.arange(2), generator=generator)
        except NonFiniteInputError:
            raise InputError(
                f"the untrained encoder gives NaN or infinity; look for them in the features of {dataset.name}."
            ) from None
        except RuntimeError as error:
            if encoder is None or dataset[0].x.is_floating_point():
                raise
            raise InputError(
                f"the encoder cannot take the `x` of {dataset.name}, which holds categories ({error}); add a "
                "torch.nn.Embedding for each column, or take features='degree'."
            ) from None


def edge_columns(dataset: GraphDataset) -> int | None:
    """Return the number of columns of the edge attributes, or None if there are no attributes."""
    values = dataset[0].get("edge_attr")
    if not isinstance(values, Tensor):
        return None
    return 1 if values.dim() == 1 else values.size(1)


def describe(
    config: Config, dataset: GraphDataset, model: ContrastiveModel, encoder: OwnEncoder | None = None
) -> EncoderDescription:
    """Return the description saved with the weights of a model that `make_model` made of the same arguments."""
    if encoder is None:
        name = EncoderName(name=config.encoder["name"], arguments=arguments_of(config.encoder))
    else:
        name = EncoderName(name=type(model.encoder).__name__)
    return EncoderDescription(
        encoder=name,
        in_channels=dataset.num_features,
        out_channels=model.width,
        edge_dim=edge_columns(dataset) if model.accepts("edge_attr") else None,
        dataset=dataset.name,
        features=cast(Any, dataset.features),  # of which there are four
        max_degree=config.max_degree,
        label_columns=dataset.num_features - dataset.degree_columns if "labels" in dataset.features else 0,
        settings=config.model_dump(include=TRAINING),
    )


def arguments_of(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a `{name: ..., argument: ...}` without its name."""
    return {key: value for key, value in named.items() if key != "name"}
