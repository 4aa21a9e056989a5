"""A trained encoder in a file that describes itself: `torch.load(path, weights_only=True)` gives a plain dict.

| key | what it is |
|---|---|
| `format`, `version` | `"graphcl encoder"`, 1 |
| `weights` | seed -> state dict |
| all others | the fields of `EncoderDescription` |

It holds tensors, numbers, texts and their containers, so reading one runs no code of its writer's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from graphcl.arguments import Count, problems, shown
from graphcl.errors import InputError, one_line
from graphcl.models.contrastive import OwnEncoder, make_encoder, own_encoder
from graphcl.registry import encoders
from graphcl.system.files import read_plain
from graphcl.version import __version__

FORMAT = "graphcl encoder"
VERSION = 1
LARGE = 2**20
"""The largest number that an encoder may be described by without having weights of that size, such as a seed."""
MOST_DEGREES = 2**16
"""Columns of degrees, of which every node of a data set gets as many."""
Weights = dict[int, dict[str, Tensor]]
"""Seed -> state dict."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class EncoderName(_Frozen):
    """Which encoder: a registered one and its arguments, or the class of a module of someone's own, without any."""

    name: str
    arguments: dict[str, Any] | None = None


class EncoderDescription(_Frozen):
    """What there is to know of a trained encoder besides its weights.

    Attributes:
        encoder: its name and arguments.
        in_channels: F, columns of the node features it takes.
        out_channels: H, width of its embeddings.
        edge_dim: columns of the edge attributes it takes; None if it takes none.
        dataset: name of the data set it was trained on.
        features: how that set's node features were made, see `graphcl.load_dataset`.
        max_degree: degrees from this on shared a column there.
        label_columns: how many columns the graphs brought themselves; where there are degrees, these follow.
        settings: how it was trained, for the record: the loss, the method and so on, as in a run's `config.yaml`.
        graphcl: version of this library that wrote it.
    """

    encoder: EncoderName
    in_channels: Count
    out_channels: Count
    edge_dim: Count | None
    dataset: str
    features: Literal["labels", "constant", "degree", "labels+degree"]
    max_degree: Count
    label_columns: int = Field(ge=0)
    settings: dict[str, Any]
    graphcl: str = __version__

    @property
    def degree_columns(self) -> int:
        """How many of the columns, the last ones, are degrees."""
        return self.in_channels - self.label_columns if "degree" in self.features else 0

    def columns(self) -> str:
        """The columns in words: `7 columns of labels and 31 of degrees`."""
        labels = f"{self.label_columns} columns of labels"
        if self.features == "labels+degree":
            return f"{labels} and {self.degree_columns} of degrees"
        if self.features == "degree":
            return f"{self.degree_columns} columns of degrees"
        return labels if self.features == "labels" else "a constant column"


def save_encoder(file: str | os.PathLike[str] | IO[bytes], description: EncoderDescription, weights: Weights) -> None:
    """Write an encoder.

    Args:
        file: a path, or a file that is open for writing.
        description: what it is.
        weights: seed -> state dict; they are written from the CPU.
    """
    states = {seed: {key: value.cpu() for key, value in state.items()} for seed, state in weights.items()}
    torch.save({"format": FORMAT, "version": VERSION, **description.model_dump(), "weights": states}, file)


def load_encoder(
    path: str | os.PathLike[str], seed: int | None = None, encoder: OwnEncoder | None = None
) -> tuple[nn.Module, EncoderDescription]:
    """An encoder from a file, in evaluation mode, on the CPU, and what it is.

    Args:
        path: of a file that `save_encoder` wrote, or of a run's folder.
        seed: whose weights; the first by default.
        encoder: for weights of a module that is not registered: such a module, which is copied, or a function that
            makes one of the number of columns.

    Raises:
        InputError: no such file, no such seed, damaged, code in it, or weights that do not fit the encoder.

    Example:
        >>> import tempfile
        >>> import networkx as nx
        >>> from graphcl import GraphCL
        >>> estimator = GraphCL(features="degree", epochs=1).fit([nx.star_graph(3), nx.cycle_graph(5)])
        >>> with tempfile.TemporaryDirectory() as place:
        ...     estimator.save(f"{place}/encoder.pt")
        ...     encoder, description = load_encoder(f"{place}/encoder.pt")
        >>> description.columns(), encoder.out_channels
        ('4 columns of degrees', 96)
    """
    description, weights = read_saved(path)
    seed = next(iter(weights)) if seed is None else seed
    if seed not in weights:
        raise InputError(f"{_file(path)} holds no seed {seed!r}; it holds {', '.join(map(str, weights))}.")
    name, arguments = description.encoder.name, description.encoder.arguments
    if encoder is None and (arguments is None or name not in encoders):
        raise InputError(
            f"{_file(path)} holds weights of `{name}`, which is not registered here; import what registers it, or in "
            "Python pass such a module as `encoder=`."
        )
    if encoder is None and (found := encoders.problems(name, arguments or {}, "encoder.arguments.")):
        raise InputError(f"{_file(path)}: {' '.join(found)}")
    _check_sizes(description, weights[seed], path)
    if encoder is None and (outline := _outline(description, weights[seed], path)) is not None:
        _check_fit(description, weights[seed], outline, path)
    with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten
        if encoder is not None:
            module = own_encoder(encoder, description.in_channels)
        else:
            module = make_encoder(name, arguments or {}, description.in_channels, description.edge_dim)
    _check_fit(description, weights[seed], module, path)
    module.load_state_dict(weights[seed])
    return module.eval(), description


def _check_sizes(description: EncoderDescription, state: Mapping[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Refuse numbers in the description that its weights do not bear out, before anything of that size is made."""
    most = max([LARGE, *(size for value in state.values() if value.numel() for size in value.shape)])
    numbers = {"in_channels": description.in_channels, "edge_dim": description.edge_dim}
    for key, value in {**numbers, **(description.encoder.arguments or {})}.items():
        if isinstance(value, int) and value > most:
            raise InputError(f"{_file(path)} is damaged: `{key}` is {shown(value)}, and nothing in it is so large.")


def _check_fit(
    description: EncoderDescription, state: Mapping[str, Tensor], module: nn.Module, path: str | os.PathLike[str]
) -> None:
    if differing := _differing(state, module.state_dict()):
        name, kind = description.encoder.name, type(module).__name__
        raise InputError(f"{_file(path)} holds weights of `{name}` that do not fit {kind}: {differing}.")
    if (width := getattr(module, "out_channels", description.out_channels)) != description.out_channels:
        raise InputError(f"{_file(path)} is damaged: its encoder is {width} wide, not {description.out_channels}.")


def _outline(
    description: EncoderDescription, state: Mapping[str, Tensor], path: str | os.PathLike[str]
) -> nn.Module | None:
    """The encoder without its numbers: of whatever size, it takes no memory. None where it cannot be made so."""

    made: list[str] = []

    def count(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        made.append(name)
        if len(made) > len(state):
            raise InputError(f"{_file(path)} is damaged: its encoder has more weights than are in the file.")

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"):
            named = description.encoder
            return make_encoder(named.name, named.arguments or {}, description.in_channels, description.edge_dim)
    except (NotImplementedError, RuntimeError):  # one of another package's, which looks at its numbers
        return None
    finally:
        hook.remove()


def read_saved(path: str | os.PathLike[str]) -> tuple[EncoderDescription, Weights]:
    """The description and the weights of all seeds in a file.

    Args:
        path: of a file that `save_encoder` wrote, or of a run's folder.

    Raises:
        InputError: no such file, damaged, code in it, or none of this library's.
    """
    file = _file(path)
    if not file.is_file():
        raise InputError(f"there is no file {str(file)!r}; give a run's folder or its encoder.pt.")
    content = read_plain(file, "an encoder is saved as plain tensors by `python -m graphcl.run` or GraphCL.save")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{file} is no encoder of this library: it does not say `format`: {FORMAT!r}.")
    if content.get("version") != VERSION:
        raise InputError(
            f"{file} has format {shown(content.get('version'))}, this library reads {VERSION}; train it again."
        )
    weights = content.get("weights")
    if not isinstance(weights, dict) or not weights or not all(map(_is_state, weights.items())):
        raise InputError(f"{file} is damaged: `weights` must map seeds to the state dicts of an encoder.")
    values = {one_line(key): value for key, value in content.items() if key not in ("format", "version", "weights")}
    try:
        description = EncoderDescription.model_validate(values)
    except ValidationError as error:
        found = " ".join(problems(error, lambda _: EncoderDescription.model_fields))
        raise InputError(f"{file} is damaged: {found}") from None
    if not 0 <= description.degree_columns <= min(description.max_degree + 1, MOST_DEGREES):
        raise InputError(
            f"{file} is damaged: {description.columns()} do not fit `max_degree` {description.max_degree}."
        )
    for text in (description.dataset, description.encoder.name, description.graphcl):
        if not text.isprintable() or len(text) > 200:
            raise InputError(f"{file} is damaged: {shown(text)} is no name.")
    if not _is_plain([description.settings, description.encoder.arguments]):
        raise InputError(f"{file} is damaged: its settings are no plain values.")
    return description, weights


def _is_plain(value: Any) -> bool:
    """Whether it could have come from a configuration file."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)


def _file(path: str | os.PathLike[str]) -> Path:
    file = Path(path).expanduser()
    return file / "encoder.pt" if file.is_dir() else file


def _is_state(item: tuple[Any, Any]) -> bool:
    seed, state = item
    if type(seed) is not int or not isinstance(state, dict):
        return False
    return all(isinstance(key, str) and isinstance(value, Tensor) and _is_dense(value) for key, value in state.items())


def _is_dense(value: Tensor) -> bool:
    return value.layout == torch.strided and value.device.type == "cpu" and not value.is_complex()


def _differing(saved: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> str:
    """The first keys that are not in both, or not of one shape; nothing if all fit."""
    found = []
    for key in dict.fromkeys([*saved, *own]):
        told = f"`{one_line(key, 60)}` is"
        if key not in own or key not in saved:
            found.append(f"{told} only in the {'file' if key in saved else 'module'}")
        elif saved[key].shape != own[key].shape:
            found.append(f"{told} {list(saved[key].shape)} in the file and {list(own[key].shape)} in the module")
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return "; ".join(found[:3]) + more
