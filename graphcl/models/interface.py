"""Construct encoders, and check which arguments an encoder accepts."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from graphcl.errors import InputError, InputTypeError
from graphcl.registry import encoders

OwnEncoder = nn.Module | Callable[[int], nn.Module]
"""An unregistered encoder: a module, or a function from the number of feature columns to a module."""


def make_encoder(name: str, arguments: Mapping[str, Any], in_channels: int, edge_dim: int | None = None) -> nn.Module:
    """Return a new instance of the registered encoder `name` for `in_channels` feature columns.

    `edge_dim`, the number of edge attribute columns, is passed on if the encoder requires it, and must be > 0 then.
    """
    edges = {"edge_dim": edge_dim} if "edge_dim" in encoders.arguments(name).required else {}
    if edges and not edge_dim:
        raise InputError(f"encoder `{name}` needs `edge_attr`, but these graphs have none; use gin.")
    return encoders[name](in_channels, **arguments, **edges)


def takes_categories(name: str) -> bool:
    """Return True if `name` is a registered encoder that accepts categorical (integer) node features."""
    return name in encoders and "categories" in encoders.facts(name).get("x", "numbers")


def takes_numbers(name: str) -> bool:
    """Return True unless `name` is a registered encoder that accepts categorical node features only."""
    return name not in encoders or "numbers" in encoders.facts(name).get("x", "numbers")


def own_encoder(given: OwnEncoder, in_channels: int) -> nn.Module:
    """Return a copy of the module `given`, or the module that the function `given` returns for `in_channels`."""
    if isinstance(given, nn.Module):
        return copy.deepcopy(given)
    encoder = given(in_channels) if callable(given) else given
    if not isinstance(encoder, nn.Module):
        raise InputTypeError(
            f"`encoder` must be a module or a function of the number of columns that returns one, got {encoder!r}."
        )
    return encoder


def accepts(encoder: nn.Module, argument: str) -> bool:
    """Return whether the `forward` of `encoder` uses the argument named `argument`.

    PyG's basic models list all arguments in their signature; `supports_edge_attr` and the like tell what they use.
    """
    named = argument in inspect.signature(encoder.forward).parameters
    return named and bool(getattr(encoder, f"supports_{argument}", True))


def check_signature(encoder: nn.Module, *needed: str) -> None:
    """Raise InputTypeError unless `encoder` is a module whose `forward` accepts the arguments `needed`."""
    if not isinstance(encoder, nn.Module):
        raise InputTypeError(f"an encoder must be a torch.nn.Module, got {kind(encoder)}.")
    parameters = inspect.signature(encoder.forward).parameters.values()
    if any(each.kind == each.VAR_KEYWORD for each in parameters):  # **kwargs accepts every name
        return
    # Edges are passed as the second positional argument, so any name counts as `edge_index`.
    by_place = [each.name for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD and each.name != "batch"]
    accepted = {each.name for each in parameters} | ({"edge_index"} if len(by_place) > 1 else set())
    if missing := [name for name in needed if name not in accepted]:
        raise InputTypeError(
            f"{type(encoder).__name__}.forward takes no {' and no '.join(f'`{name}`' for name in missing)}; a graph "
            f"encoder is called as (x, edge_index, batch=...); wrap a node encoder as Pooled(node_encoder)."
        )


def kind(value: object) -> str:
    """Return the type of `value` as text for an error message."""
    return f"the class {value.__name__}; make an instance" if isinstance(value, type) else type(value).__name__
