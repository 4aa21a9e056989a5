"""Save trained encoders to files and load them.

`torch.load(path, weights_only=True)` returns the content of such a file as a dict:

| key | value |
|---|---|
| `format`, `version` | `"graphcl encoder"`, 1 |
| `weights` | maps each seed to a state dict |
| `target_weights` | of two towers: the same for the encoder of targets, which `target` describes |
| all other keys | the fields of `EncoderDescription` |

A file contains only tensors, numbers, strings and containers of these, so reading it runs no code.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import IO, Any, Literal, cast

import torch
from pydantic import BaseModel, Field, JsonValue, ValidationError
from torch import Tensor, nn

from graphcl.arguments import Count, Name, ProjectorName, named_arguments, problems, shown
from graphcl.errors import InputError, one_line
from graphcl.graphs.columns import Scale
from graphcl.models.interface import OwnEncoder, accepts, make_encoder, own_encoder, width_of
from graphcl.models.standardised import Standardised
from graphcl.models.towers import Role, make_tower
from graphcl.registry import encoders, entry_points
from graphcl.system.arrays import read_torch_file, write_torch_file
from graphcl.version import __version__

FORMAT = "graphcl encoder"
VERSION = 1
LARGE = 2**10
"""Limit on numbers in a description, unless a weight has a larger dimension."""
MAX_DEGREES = 2**16
"""Limit on the number of degree columns, which are allocated for every node of a data set."""
Weights = dict[int, dict[str, Tensor]]
"""Seed -> state dict."""


class EncoderName(BaseModel, frozen=True, extra="forbid", strict=True):
    """Name and arguments of a registered encoder. An unregistered module has its class name and no arguments."""

    name: Name
    arguments: dict[str, JsonValue] | None = None


class EncoderDescription(BaseModel, frozen=True, extra="forbid", strict=True):
    """Description of a trained encoder: everything except its weights.

    Attributes:
        encoder: name and arguments of the encoder.
        in_channels: F, number of node feature columns.
        out_channels: H, width of the embeddings.
        edge_dim: number of edge attribute columns; None if the encoder uses none.
        edge_weight: whether the graphs of its training had weights of edges; None if the encoder uses none.
        dataset: name of the data set used for training.
        features: kind of node features of the data set, see `graphcl.load_dataset`.
        max_degree: degrees of `max_degree` or more share one column.
        label_columns: number of label columns; degree columns follow them.
        scales: mean and deviation of the columns of `x` and `edge_attr` in training, if they were standardised.
        settings: settings of the training run, such as loss and method, as in a run's `config.yaml`.
        graphcl: version of this library that wrote the file.
        tower: form of the projector that follows the encoder, see `graphcl.models.towers.Tower`; None without one.
        target: description of the encoder of targets; None if targets have the encoder of queries.
    """

    encoder: EncoderName
    in_channels: Count
    out_channels: Count
    edge_dim: Count | None
    edge_weight: bool | None = None
    dataset: Name
    features: Literal["labels", "constant", "degree", "labels+degree"]
    max_degree: Count
    label_columns: int = Field(ge=0)
    scales: dict[str, Scale] = {}
    settings: dict[str, JsonValue]
    graphcl: Name = __version__
    tower: ProjectorName | None = None
    target: EncoderDescription | None = None

    @classmethod
    def of(cls, encoder: nn.Module, dataset: Any) -> EncoderDescription:
        """Return the description of an encoder that was trained from Python; `load_encoder` then needs `encoder=`.

        `encoder` has the attribute `out_channels`; `graphcl.load_dataset` returned `dataset`, on which it was trained.
        """
        degrees = dataset.degree_columns
        return cls(
            encoder=EncoderName(name=type(getattr(encoder, "_orig_mod", encoder)).__name__),
            in_channels=dataset.num_features,
            out_channels=cast(int, width_of(encoder)),
            edge_dim=(dataset.num_edge_features or None) if accepts(encoder, "edge_attr") else None,
            edge_weight=dataset.has_edge_weight if accepts(encoder, "edge_weight") else None,
            dataset=dataset.name,
            features=dataset.features,
            max_degree=max(degrees - 1, 1),
            label_columns=dataset.num_features - degrees if "labels" in dataset.features else 0,
            scales=dict(dataset.scales),
            settings={},
        )

    @property
    def degree_columns(self) -> int:
        """Number of degree columns; they follow the label columns."""
        return self.in_channels - self.label_columns if "degree" in self.features else 0

    def columns(self) -> str:
        """Return a description of the feature columns, such as `7 columns of labels and 31 of degrees`."""
        labels, degrees = f"{self.label_columns} columns of labels", self.degree_columns
        both = {"labels+degree": f"{labels} and {degrees} of degrees", "degree": f"{degrees} columns of degrees"}
        return {"labels": labels, "constant": "a constant column", **both}[self.features]


@named_arguments
def save_encoder(
    file: str | os.PathLike[str] | IO[bytes],
    description: EncoderDescription,
    weights: Weights,
    target_weights: Weights | None = None,
) -> None:
    """Write the weights of an encoder, for one or more seeds, and its description to `file`.

    Args:
        file: a path, or a binary file open for writing.
        description: description of the encoder.
        weights: state dict of each seed; tensors may be on any device.
        target_weights: the same of the encoder of targets, if `description.target` describes one.

    Example:
        >>> import tempfile
        >>> from graphcl import GIN, load_dataset
        >>> dataset = load_dataset("synthetic")
        >>> encoder = GIN(dataset.num_features, hidden_channels=8)  # to be trained by `graphcl.train`
        >>> with tempfile.TemporaryDirectory() as place:
        ...     file = f"{place}/encoder.pt"
        ...     save_encoder(file, EncoderDescription.of(encoder, dataset), {0: encoder.state_dict()})
        ...     loaded, description = load_encoder(file, encoder=lambda columns: GIN(columns, hidden_channels=8))
        >>> description.dataset, loaded.out_channels
        ('synthetic', 24)
    """
    values = description.model_dump(exclude={key for key in ("tower", "target") if getattr(description, key) is None})
    content = {"format": FORMAT, "version": VERSION, **values}
    for key, each in (("weights", weights), ("target_weights", target_weights or {})):
        if each:
            content[key] = {seed: {name: w.cpu() for name, w in state.items()} for seed, state in each.items()}
    write_torch_file(file, content)


@named_arguments
def load_encoder(
    path: str | os.PathLike[str], seed: int | None = None, encoder: OwnEncoder | None = None, role: Role = "query"
) -> tuple[nn.Module, EncoderDescription]:
    """Return the encoder in a file, in evaluation mode on the CPU, and its description.

    An encoder that was trained on standardised columns standardises its input, see `Standardised`.

    Args:
        path: a file written by `save_encoder`, a run folder, or the name of an installed encoder, such as `molecules`.
        seed: seed whose weights to load; the first seed in the file by default.
        encoder: module that is copied and receives the weights, or a function from the number of feature columns to
            such a module. Required if the file's encoder is not registered.
        role: of two towers, the encoder to load, of queries or of targets.

    Raises:
        InputError: the file or seed is not found, the file is corrupted or contains code, or its weights do not fit.
    """
    module, description = read_encoder(path, seed, encoder, role)
    return (Standardised(module, description.scales).eval() if description.scales else module), description


def read_encoder(
    path: str | os.PathLike[str], seed: int | None = None, encoder: OwnEncoder | None = None, role: Role = "query"
) -> tuple[nn.Module, EncoderDescription]:
    """Return the encoder in a file as it was trained, and its description; see `load_encoder`.

    `graphcl.experiment.encoder_input.load_for` standardises the columns of its input.
    """
    file = _file(path)
    description, weights = read_saved(file, role)
    seed = next(iter(weights)) if seed is None else seed
    if seed not in weights:
        raise InputError(f"{file} holds no seed {seed!r}; it holds {', '.join(map(str, weights))}.")
    state, name, arguments = weights[seed], description.encoder.name, description.encoder.arguments
    make: Callable[[], nn.Module]
    if encoder is not None:
        make = partial(own_encoder, encoder, description.in_channels)
    elif arguments is None or name not in encoders:
        raise InputError(
            f"{file} holds weights of `{name}`, which is not registered here; pass its file as --import FILE; in "
            "Python, import the module that registers it, or pass such a module as `encoder=`."
        )
    elif found := encoders.problems(name, arguments, "encoder.arguments."):
        raise InputError(f"{file}: {' '.join(found)}")
    else:
        make = partial(new_encoder, description)
    if encoder is not None and description.tower is not None:
        make = partial(make_tower, make, description.out_channels, description.tower)
    _check_sizes(description, state, file)
    if encoder is None:
        # Check on the meta device first, so that a file cannot make us allocate large weights. Encoders that read their
        # weights in the constructor fail there; the second check below covers them.
        with contextlib.suppress(NotImplementedError, RuntimeError), torch.device("meta"):
            _check_fit(description, state, make(), file)
    with torch.random.fork_rng(devices=[]):
        module = make()
    _check_fit(description, state, module, file)
    module.load_state_dict(_renamed(state, module))
    return module.eval(), description


def new_encoder(description: EncoderDescription) -> nn.Module:
    """Return an untrained encoder of the described architecture, with its projector if it has one."""
    name, arguments = description.encoder.name, description.encoder.arguments or {}
    make = partial(make_encoder, name, arguments, description.in_channels, description.edge_dim)
    return make() if description.tower is None else make_tower(make, description.out_channels, description.tower)


def read_saved(path: str | os.PathLike[str], role: Role = "query") -> tuple[EncoderDescription, Weights]:
    """Return the description and all seeds' weights in a file; arguments and errors as for `load_encoder`."""
    file = _file(path)
    if not file.is_file():
        if (file.parent / "config.yaml").is_file():
            raise InputError(f"no seed of {file.parent} is finished; run: graphcl run --resume {file.parent}")
        raise InputError(
            f"file {str(file)!r} not found; give a run's folder, its encoder.pt, or the name of an installed encoder: "
            f"{', '.join(installed_encoders())}."
        )
    content = read_torch_file(file, "an encoder is saved as plain tensors by `python -m graphcl.run` or GraphCL.save")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{file} is not an encoder of this library: its `format` is not {FORMAT!r}.")
    if (version := content.get("version")) != VERSION:
        raise InputError(f"{file} has format {shown(version)}, this library reads {VERSION}; train it again.")
    outer = ("format", "version", "weights", "target_weights")
    values = {one_line(key): value for key, value in content.items() if key not in outer}
    try:
        description = EncoderDescription.model_validate(values)
    except ValidationError as error:
        found = " ".join(problems(error, EncoderDescription))
        raise InputError(f"{file} is corrupted: {found}") from None
    weights: Any = content.get("weights")
    if role == "target" and description.target is not None:
        description, weights = description.target, content.get("target_weights")
    _check_weights(weights, file)
    for key, scale in description.scales.items():
        columns = description.in_channels if key == "x" else description.edge_dim
        if any(len(each) != columns for each in scale) or not all(0 < each < math.inf for each in scale[1]):
            raise InputError(f"{file} is corrupted: the scales of `{key}` do not fit {columns} columns.")
    if not 0 <= description.degree_columns <= min(description.max_degree + 1, MAX_DEGREES):
        raise InputError(
            f"{file} is corrupted: {description.columns()} do not fit `max_degree` {description.max_degree}."
        )
    return description, weights


@functools.cache
def installed_encoders() -> dict[str, EntryPoint]:
    """Return the encoders that are installed by name; `load_encoder` takes the names.

    An entry point of the group `graphcl.pretrained` names the path of the file.
    """
    return {point.name: point for point in entry_points("graphcl.pretrained")}


def _check_weights(weights: Any, file: Path) -> None:
    """Raise InputError unless `weights` maps seeds to state dicts, with finite values and variances >= 0."""
    states = weights if isinstance(weights, dict) and weights else {None: {}}
    for seed, state in states.items():
        if type(seed) is not int or not isinstance(state, dict) or not all(map(_is_weight, state.items())):
            raise InputError(f"{file} is corrupted: `weights` must map seeds to the state dicts of an encoder.")
        for key, value in state.items():
            least = 0 if key.endswith("running_var") else -torch.inf
            if not bool((value.isfinite() & (value >= least)).all()):
                wrong = f"`{one_line(key, 60)}` has a value that is NaN, infinite, or a negative variance"
                raise InputError(f"{file} is corrupted: {wrong}; train it again.")


def _is_weight(item: tuple[Any, Any]) -> bool:
    key, value = item
    dense = isinstance(value, Tensor) and value.layout == torch.strided and value.device.type == "cpu"
    return isinstance(key, str) and dense and not value.is_complex()


def _check_sizes(description: EncoderDescription, state: Mapping[str, Tensor], file: Path) -> None:
    """Raise InputError if a number in `description` exceeds both `LARGE` and every dimension of the weights."""
    limit = max([LARGE, *(size for value in state.values() if value.numel() for size in value.shape)])
    numbers = description.model_dump(include={"in_channels", "edge_dim"})
    for key, value in {**numbers, **(description.encoder.arguments or {})}.items():
        if isinstance(value, int) and value > limit:
            raise InputError(f"{file} is corrupted: `{key}` is {shown(value)}, but no weight is that large.")


def _check_fit(description: EncoderDescription, state: Mapping[str, Tensor], module: nn.Module, file: Path) -> None:
    """Raise InputError unless the weights and the width of the file are those of `module`."""
    resize_for = getattr(module, "resize_for", None)  # of encoders whose number of weights depends on their training
    problem = "" if resize_for is None else resize_for(state)
    if problem:
        raise InputError(f"{file} cannot be used: {problem}; train it again.")
    state = _renamed(state, module)
    saved, own = ({key: f"{list(w.shape)} {w.dtype}" for key, w in of.items()} for of in (state, module.state_dict()))
    found = [
        f"`{one_line(key, 60)}` is {saved.get(key, 'missing')} in the file and {own.get(key, 'missing')} in the module"
        for key in dict.fromkeys([*saved, *own])
        if saved.get(key) != own.get(key)
    ]
    if found:
        name, kind = description.encoder.name, type(module).__name__
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise InputError(f"{file} holds weights of `{name}` that do not fit {kind}: {'; '.join(found[:3])}{more}.")
    if (width := getattr(module, "out_channels", description.out_channels)) != description.out_channels:
        raise InputError(f"{file} is corrupted: its encoder is {width} wide, not {description.out_channels}.")


def _renamed(state: Mapping[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """Return `state` with the keys of `module`, if they differ by what a compiled or parallel module adds to them."""

    def bare(key: str) -> str:
        return key.replace("_orig_mod.", "").removeprefix("module.")

    keys = module.state_dict().keys()
    by_bare = {bare(key): key for key in keys}
    return {key if key in keys else by_bare.get(bare(key), key): weight for key, weight in state.items()}


def _file(path: str | os.PathLike[str]) -> Path:
    file = Path(path).expanduser()
    if isinstance(path, str) and path in installed_encoders():
        if any((file / name).exists() for name in ("config.yaml", "encoder.pt")):
            raise InputError(f"{path} is an installed encoder and also a run's folder; write ./{path} for the folder.")
        return Path(installed_encoders()[path].load())
    return file / "encoder.pt" if file.is_dir() else file
