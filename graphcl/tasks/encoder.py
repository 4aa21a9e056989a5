"""Make the encoder of a task for the columns of its graphs, load its initial weights, and describe it for its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from torch import nn

from graphcl.arguments import Role
from graphcl.config import TRAINING, Config
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.settings import KEPT_SETTINGS
from graphcl.errors import InputError, reason
from graphcl.graphs.columns import Scale
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.interface import OwnEncoder, accepts, make_encoder, own_encoder, takes_categories, takes_numbers
from graphcl.models.saved import EncoderDescription, EncoderName, read_encoder
from graphcl.models.wrapper import Tower
from graphcl.registry import encoders


def encoder_maker(
    spec: Mapping[str, Any], dataset: GraphDataset, encoder: OwnEncoder | None, setting: str = "encoder"
) -> Callable[[], nn.Module]:
    """Return the function that makes the encoder `spec`, or the user's own, for the columns of a data set."""
    name, columns, edge_dim = spec["name"], dataset.num_features, dataset.num_edge_features or None
    if encoder is not None:
        return partial(own_encoder, encoder, columns)
    if setting == "target_encoder" and (form := encoders.fact(name, "form")) != "dense":
        raise InputError(f"`{setting}` {name} has {form} rows, which no projector of a tower can follow; use gin.")
    if not has_numbers(dataset) and not takes_categories(name):
        others = "".join(f"encoder {other}, or " for other in encoders if not takes_numbers(other))
        raise InputError(
            f"encoder `{name}` needs real numbers in `x`, but the `x` of {dataset.name} holds categories; use "
            f"{others}features degree."
        )
    if edge_dim is None and "edge_dim" in encoders.arguments(name).required:
        raise InputError(f"encoder `{name}` needs `edge_attr`, which {dataset.name} lacks; use gin.")
    return partial(make_encoder, name, arguments_of(spec), columns, edge_dim)


def has_numbers(dataset: GraphDataset) -> bool:
    """Return whether `x` holds numbers, not categories."""
    return bool(dataset[0].x.is_floating_point())


def load_initial(init: str, module: nn.Module, encoder: OwnEncoder | None, role: Role = "query") -> None:
    """Load the weights of the encoder in the file `init`, of two towers that of a role, into `module`."""
    initial, _ = read_encoder(init, encoder=encoder, role=role)
    if isinstance(module, Tower) != isinstance(initial, Tower):  # only one has a projector
        module, initial = (side.encoder if isinstance(side, Tower) else side for side in (module, initial))
    try:
        module.load_state_dict(initial.state_dict())
    except RuntimeError as error:
        raise InputError(
            f"the weights of `init` {init} do not fit the settings of the encoder ({reason(error)}); leave these "
            "settings out, or `init`."
        ) from None


def describe_encoder(
    config: Config,
    spec: Mapping[str, Any],
    dataset: GraphDataset,
    model: ContrastiveModel,
    scales: Mapping[str, Scale],
    named: bool,
) -> EncoderDescription:
    """Return the description of one encoder, `spec` if it is `named`, without that of the targets' encoder."""
    tower = isinstance(model.encoder, Tower)
    module = model.encoder.encoder if isinstance(model.encoder, Tower) else model.encoder
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
        scales=dict(scales),
        settings=config.model_dump(include={*TRAINING, *KEPT_SETTINGS}),
        tower=config.projector if tower else None,
    )


def arguments_of(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in a specification `{name: ..., argument: ...}`, without the name."""
    return {key: value for key, value in named.items() if key != "name"}
