"""Construct encoders, and check which arguments an encoder accepts."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from graphcl.errors import InputError, InputTypeError, one_line
from graphcl.registry import encoders

OwnEncoder = nn.Module | Callable[[int], nn.Module]
"""An unregistered encoder: a module, or a function from the number of feature columns to a module."""
OwnEncoders = OwnEncoder | tuple[OwnEncoder | None, OwnEncoder | None] | None
"""An unregistered encoder, of queries and targets alike, or one each; None for a registered one."""


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
    return "categories" in encoders.fact(name, "x")


def takes_numbers(name: str) -> bool:
    """Return True unless `name` is a registered encoder that accepts categorical node features only."""
    return "numbers" in encoders.fact(name, "x")


def own_encoder(source: OwnEncoder, in_channels: int) -> nn.Module:
    """Return a copy of the module `source`, or the module that the function `source` returns for `in_channels`."""
    if isinstance(source, nn.Module):
        return copy.deepcopy(source)
    encoder = source(in_channels) if callable(source) else source
    if not isinstance(encoder, nn.Module):
        raise InputTypeError(
            f"`encoder` must be a module or a function of the number of columns that returns one, got {encoder!r}."
        )
    return encoder


def accepts(encoder: nn.Module, argument: str) -> bool:
    """Return whether the `forward` of `encoder` uses the argument named `argument`, see `optional_arguments`."""
    return argument in optional_arguments(encoder, [argument])


def optional_arguments(encoder: nn.Module, names: Iterable[str], method: str = "forward") -> dict[str, bool]:
    """Return those of `names` that a method of `encoder` uses, and whether it has no default for each.

    PyG's basic models list all arguments in their signature; `supports_edge_attr` and the like tell what they use. With
    `**kwargs`, as in compiled modules, `DistributedDataParallel` and wrappers of a user, a module uses what its base
    class or the encoders within it use, except `parts`, which it may not pass on; without any, all attributes of edges.
    """
    parameters = _parameters(getattr(encoder, method))
    if _takes_any_name(parameters):
        bases = (_parameters(vars(base)[method]) for base in type(encoder).__mro__[1:] if method in vars(base))
        inherited = next((of_base for of_base in bases if "edge_index" in of_base), None)
        if inherited is not None:
            parameters = inherited | {
                key: value for key, value in parameters.items() if value.kind != value.VAR_KEYWORD
            }
            parameters.pop("parts", None)
    used = {name: parameters[name].default is inspect.Parameter.empty for name in names if name in parameters}
    if _takes_any_name(parameters):
        others = [name for name in names if name not in parameters and name != "parts"]
        inner = wrapped_encoders(encoder)
        for module in inner:
            # `size` of PyG's layers is no number of graphs.
            size = "batch" in _parameters(module.forward)
            of_inner = optional_arguments(module, [name for name in others if name != "size" or size])
            used |= {name: needed or used.get(name, False) for name, needed in of_inner.items()}
        if not inner:
            used |= {name: False for name in others if name in ("edge_attr", "edge_weight")}
    return {name: needed for name, needed in used.items() if getattr(encoder, f"supports_{name}", True)}


def call(function: Callable[..., Any], x: Tensor, edge_index: Tensor, uses: Mapping[str, bool], **values: Any) -> Any:
    """Call an encoder, or a method of it, with those of `values` that it uses, see `optional_arguments`.

    A value of None is left out if the encoder has a default.

    Raises:
        InputTypeError: the encoder passes an argument on to a module that does not take it.
    """
    arguments = {name: values.get(name) for name, needed in uses.items() if needed or values.get(name) is not None}
    try:
        return function(x, edge_index, **arguments)
    except (TypeError, AttributeError) as error:
        who = getattr(function, "__name__", type(function).__name__)
        for name in (name for name, value in arguments.items() if value is None):
            raise InputTypeError(f"{who} needs `{name}`, which the graphs lack ({one_line(error)}).") from error
        match = re.search(r"got an unexpected keyword argument '(\w+)'", str(error))
        if match is None or match[1] not in arguments:
            raise
        raise InputTypeError(
            f"{who} passes `{match[1]}` on to a module that does not take it; name the arguments of its forward, in "
            "place of **kwargs."
        ) from error


def wrapped_encoders(module: nn.Module) -> list[nn.Module]:
    """Return the outermost modules within `module` that take `edge_index` or `batch`, as encoders do."""
    inner = []
    for child in module.children():
        of_graphs = not {"edge_index", "batch"}.isdisjoint(_parameters(child.forward))
        inner += [child] if of_graphs else wrapped_encoders(child)
    return inner


def width_of(encoder: nn.Module) -> int | None:
    """Return the attribute `out_channels` of `encoder`, or of the one encoder that it wraps; None if there is none."""
    width = getattr(encoder, "out_channels", None)
    if width is None and _takes_any_name(_parameters(encoder.forward)):
        inner = wrapped_encoders(encoder)
        width = width_of(inner[0]) if len(inner) == 1 else None
    return width


def check_signature(encoder: nn.Module, *needed: str) -> None:
    """Raise InputTypeError unless `encoder` is a module whose `forward` accepts the arguments `needed`."""
    if not isinstance(encoder, nn.Module):
        raise InputTypeError(f"an encoder must be a torch.nn.Module, got {kind(encoder)}.")
    parameters = _parameters(encoder.forward)
    # Edges are passed as the second positional argument, so any name counts as `edge_index`.
    kinds = {name: parameter.kind for name, parameter in parameters.items()}
    by_place = [name for name, kind in kinds.items() if kind == kind.POSITIONAL_OR_KEYWORD and name != "batch"]
    any_number = inspect.Parameter.VAR_POSITIONAL in kinds.values()
    if _takes_any_name(parameters) and (any_number or len(by_place) > 1):
        return
    accepted = parameters.keys() | ({"edge_index"} if len(by_place) > 1 else set())
    missing = [name for name in needed if name not in accepted]
    if missing:
        raise InputTypeError(
            f"{type(encoder).__name__}.forward takes no {' and no '.join(f'`{name}`' for name in missing)}; a graph "
            f"encoder is called as (x, edge_index, batch=...); wrap a node encoder as Pooled(node_encoder)."
        )


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of `function` that its caller may pass: not those that a `functools.partial` has fixed."""
    schema: Any = getattr(function, "schema", None)
    if schema is not None:  # of TorchScript, which may have no other signature
        usual, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
        defaults = {
            item.name: item.default_value if item.has_default_value() else empty for item in schema.arguments[1:]
        }
        return {name: inspect.Parameter(name, usual, default=default) for name, default in defaults.items()}
    fixed = function.keywords if isinstance(function, functools.partial) else {}
    return {name: value for name, value in inspect.signature(function).parameters.items() if name not in fixed}


def _takes_any_name(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values())


def kind(value: object) -> str:
    """Return the type of `value` as text for an error message."""
    return f"the class {value.__name__}; make an instance" if isinstance(value, type) else type(value).__name__
