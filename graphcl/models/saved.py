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

import functools
import os
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import IO, Any, Literal, cast

import torch
from pydantic import BaseModel, Field, JsonValue, ValidationError
from torch import Tensor, nn

from graphcl.arguments import Count, Name, ProjectorName, Role, named_arguments, problems, shown
from graphcl.errors import InputError, one_line
from graphcl.graphs.columns import Scale
from graphcl.models.interface import OwnEncoder, accepts, make_encoder, own_encoder, width_of
from graphcl.models.wrapper import Standardised, Tower
from graphcl.registry import encoders, entry_points
from graphcl.system.arrays import read_torch_file, write_torch_file
from graphcl.version import __version__

FORMAT = "graphcl encoder"
VERSION = 1
Weights = dict[int, dict[str, Tensor]]
"""Seed -> state dict."""


class EncoderName(BaseModel, frozen=True, extra="forbid", strict=True):
    """Name and arguments of a registered encoder. An unregistered module has its class name and no arguments."""

    name: Name
    arguments: dict[str, JsonValue] | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """Name and arguments in one dict, as in settings."""
        return {"name": self.name, **(self.arguments or {})}


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
        tower: form of the projector that follows the encoder, see `graphcl.models.wrapper.Tower`; None without one.
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
    for key, states in (("weights", weights), ("target_weights", target_weights or {})):
        if states:
            content[key] = {seed: {name: w.cpu() for name, w in state.items()} for seed, state in states.items()}
    write_torch_file(file, content)


@named_arguments
def load_encoder(
    path: str | os.PathLike[str], seed: int | None = None, encoder: OwnEncoder | None = None, role: Role = "query"
) -> tuple[nn.Module, EncoderDescription]:
    """Return the encoder in a file, in evaluation mode on the CPU, and its description.

    An encoder that was trained on standardised columns standardises its input, see `Standardised`.

    Args:
        path: a file written by `save_encoder`, a run folder, or the name of an installed encoder.
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
    if encoder is None:
        if arguments is None or name not in encoders:
            raise InputError(
                f"{file} holds weights of `{name}`, which is not registered here; pass its file as --import FILE; in "
                "Python, import the module that registers it, or pass such a module as `encoder=`."
            )
        lines = encoders.problems(name, arguments, "encoder.arguments.")
        if lines:
            raise InputError(f"{file}: {' '.join(lines)}")
    with torch.random.fork_rng(devices=[]):
        module = new_encoder(description, encoder)
    module.load_state_dict(_fitting(description, state, module, file))
    return module.eval(), description


def new_encoder(description: EncoderDescription, encoder: OwnEncoder | None = None) -> nn.Module:
    """Return an untrained encoder of the described architecture, with its projector if it has one.

    `encoder` is that of `load_encoder`.
    """
    columns, arguments = description.in_channels, description.encoder.arguments or {}
    if encoder is None:
        module = make_encoder(description.encoder.name, arguments, columns, description.edge_dim)
    else:
        module = own_encoder(encoder, columns)
    return module if description.tower is None else Tower(module, description.out_channels, description.tower)


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
    readers = [getattr(encoders[name], "read_published", None) for name in encoders if file.suffix == ".pth"]
    for read in filter(None, readers):
        if (published := read(file)) is not None:
            _check_weights(published[1], file)
            return cast(tuple[EncoderDescription, Weights], published)
    content = read_torch_file(file, "an encoder is saved as plain tensors by `python -m graphcl.run` or GraphCL.save")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{file} is not an encoder of this library: its `format` is not {FORMAT!r}.")
    version = content.get("version")
    if version != VERSION:
        raise InputError(f"{file} has format {shown(version)}, this library reads {VERSION}; train it again.")
    outer = ("format", "version", "weights", "target_weights")
    values = {one_line(key): value for key, value in content.items() if key not in outer}
    try:
        description = EncoderDescription.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{file} is corrupted: {' '.join(problems(error, EncoderDescription))}") from None
    weights: Any = content.get("weights")
    if role == "target" and description.target is not None:
        description, weights = description.target, content.get("target_weights")
    _check_weights(weights, file)
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
        if type(seed) is not int or not isinstance(state, dict):
            raise InputError(f"{file} is corrupted: `weights` must map seeds to the state dicts of an encoder.")
        for key, value in state.items():
            least = 0 if key.endswith("running_var") else -torch.inf
            if not bool((value.isfinite() & (value >= least)).all()):
                wrong = f"`{one_line(key, 60)}` has a value that is NaN, infinite, or a negative variance"
                raise InputError(f"{file} is corrupted: {wrong}; train it again.")


def _fitting(
    description: EncoderDescription, state: Mapping[str, Tensor], module: nn.Module, file: Path
) -> dict[str, Tensor]:
    """Return the weights `state` by the keys of `module`, or raise InputError if they or the width do not fit.

    Keys may differ by what a compiled or parallel module adds to them.
    """
    resize_for = getattr(module, "resize_for", None)  # of encoders whose number of weights depends on their training
    problem = "" if resize_for is None else resize_for(state)
    if problem:
        raise InputError(f"{file} cannot be used: {problem}; train it again.")

    def bare(key: str) -> str:
        return key.replace("_orig_mod.", "").removeprefix("module.")

    wanted = module.state_dict()
    by_bare = {bare(key): key for key in wanted}
    renamed = {key if key in wanted else by_bare.get(bare(key), key): weight for key, weight in state.items()}
    saved, here = ({key: f"{list(w.shape)} {w.dtype}" for key, w in of.items()} for of in (renamed, wanted))
    lines = [
        f"`{one_line(key, 60)}` is {saved.get(key, 'missing')} in the file and {here.get(key, 'missing')} in the module"
        for key in dict.fromkeys([*saved, *here])
        if saved.get(key) != here.get(key)
    ]
    if lines:
        name, kind = description.encoder.name, type(module).__name__
        more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
        raise InputError(f"{file} holds weights of `{name}` that do not fit {kind}: {'; '.join(lines[:3])}{more}.")
    width = getattr(module, "out_channels", description.out_channels)
    if width != description.out_channels:
        raise InputError(f"{file} is corrupted: its encoder is {width} wide, not {description.out_channels}.")
    return renamed


def _file(path: str | os.PathLike[str]) -> Path:
    file = Path(path).expanduser()
    if isinstance(path, str) and path in installed_encoders():
        if any((file / name).exists() for name in ("config.yaml", "encoder.pt")):
            raise InputError(f"{path} is an installed encoder and also a run's folder; write ./{path} for the folder.")
        return Path(installed_encoders()[path].load())
    return file / "encoder.pt" if file.is_dir() else file
