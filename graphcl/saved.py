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

from graphcl.arguments import Count, problems
from graphcl.errors import InputError
from graphcl.files import read_plain
from graphcl.model import OwnEncoder, make_encoder, own_encoder
from graphcl.registry import encoders
from graphcl.version import __version__

FORMAT = "graphcl encoder"
VERSION = 1
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
        max_degree: the largest degree that could have a column of its own there.
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
    with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten
        if encoder is not None:
            module = own_encoder(encoder, description.in_channels)
        else:
            module = make_encoder(name, arguments or {}, description.in_channels, description.edge_dim)
    if differing := _differing(weights[seed], module.state_dict()):
        kind = type(module).__name__
        raise InputError(f"{_file(path)} holds weights of `{name}` that do not fit {kind}: {differing}.")
    module.load_state_dict(weights[seed])
    return module.eval(), description


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
        raise InputError(f"{file} has format {content.get('version')!r}, this library reads {VERSION}; train it again.")
    weights = content.get("weights")
    if not isinstance(weights, dict) or not weights or not all(map(_is_state, weights.items())):
        raise InputError(f"{file} is damaged: `weights` must map seeds to the state dicts of an encoder.")
    values = {key: value for key, value in content.items() if key not in ("format", "version", "weights")}
    try:
        return EncoderDescription.model_validate(values), weights
    except ValidationError as error:
        found = " ".join(problems(error, lambda _: EncoderDescription.model_fields))
        raise InputError(f"{file} is damaged: {found}") from None


def _file(path: str | os.PathLike[str]) -> Path:
    file = Path(path).expanduser()
    return file / "encoder.pt" if file.is_dir() else file


def _is_state(item: tuple[Any, Any]) -> bool:
    seed, state = item
    if type(seed) is not int or not isinstance(state, dict):
        return False
    return all(isinstance(key, str) and isinstance(value, Tensor) for key, value in state.items())


def _differing(saved: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> str:
    """The first keys that are not in both, or not of one shape; nothing if all fit."""
    found = []
    for key in dict.fromkeys([*saved, *own]):
        if key not in own or key not in saved:
            found.append(f"`{key}` is only in the {'file' if key in saved else 'module'}")
        elif saved[key].shape != own[key].shape:
            found.append(f"`{key}` is {list(saved[key].shape)} in the file and {list(own[key].shape)} in the module")
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return "; ".join(found[:3]) + more
