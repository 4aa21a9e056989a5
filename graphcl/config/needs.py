"""Find settings without effect, by what they need (`graphcl.arguments.Needs`), which stands beside their fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from graphcl.arguments import Needs, shown
from graphcl.config.settings import Config
from graphcl.errors import warn
from graphcl.registry import encoders, evaluators, losses, methods

Holds = Callable[[Config, Any], bool]
"""Function of the settings, and of the value that needs the fact."""


_REGISTRIES = {"encoder": encoders, "loss": losses, "method": methods}


def _listed(config: Config) -> bool:
    return config.positives not in ("views", "group")


def _drawn(config: Config, value: Any) -> bool:
    """Return whether batches are drawn from all graphs or groups, not from a list of pairs."""
    several = "labels" in losses.arguments(config.loss["name"]).tensors
    return config.positives == "views" or not (_listed(config) or config.batch_by or config.hard_negatives or several)


def _method(fact: str, other: str) -> Holds:
    """Return whether a fact of the method has another value than `other`."""
    return lambda config, value: methods.facts(config.method["name"]).get(fact) != other


def _scored_with(argument: str) -> Holds:
    """Return whether an evaluator takes the argument."""
    return lambda config, value: any(
        argument in inspect.signature(evaluators[name]).parameters for name in config.eval if name in evaluators
    )


def _in_time(config: Config, epochs: int) -> bool:
    return config.steps is not None or epochs <= config.epochs


FACTS: dict[str, Holds] = {
    "pairs": lambda config, value: config.positives != "views",
    "listed": lambda config, value: _listed(config),
    "drawn": _drawn,
    "batch_by": lambda config, value: config.batch_by is not None,
    "hard_negatives": lambda config, value: config.hard_negatives > 0,
    "mined": lambda config, value: _in_time(config, config.mine_every + 1) or not config.trains,
    "one encoder": lambda config, value: config.towers == "shared",
    "target encoder": lambda config, value: config.towers == "separate" or value == config.encoder,
    "dense rows": lambda config, value: encoders.fact(config.encoder["name"], "form") == "dense",
    "projector": lambda config, value: config.projector != "none",
    "nodes": lambda config, value: methods.facts(config.method["name"]).get("rows") == "nodes",
    "graphs": _method("rows", "nodes"),
    "anchors are graphs": lambda config, value: (
        _method("rows", "nodes")(config, value) and _method("anchors", "nodes")(config, value)
    ),
    "several layers": lambda config, value: config.encoder.get("num_layers", 2) > 1,
    "two encoded views": _method("pairs", "no"),
    "two_views": lambda config, value: config.method["name"] == "two_views",
    "moving BatchNorm": lambda config, value: not config.frozen_bn,
    "no steps": lambda config, value: config.steps is None,
    "in time": _in_time,
    "patient": lambda config, value: _in_time(config, value + 1),
    "larger batch": lambda config, value: value < config.batch_size,
    "evaluators": lambda config, value: bool(config.eval),
    **{name: _scored_with(name) for name in ("folds", "inner_folds", "scale", "place")},
    "sample": lambda config, value: bool(config.eval),
}
"""Facts that the settings decide. Data and model decide others, and some of these again, see `warn_of_unused`."""


def unused(config: Config, facts: Mapping[str, bool] | None = None, **words: str) -> Iterator[tuple[str, str]]:
    """Yield the dotted name of each setting without effect, and the message.

    Args:
        config: settings with valid, complete names.
        facts: facts of the data and the model; default: those that the settings decide.
        **words: values of further placeholders in the messages.
    """
    names = {name: getattr(config, name)["name"] for name in ("method", "encoder", "loss")}
    words = {**config.model_dump(), **names, "eval": ", ".join(config.eval) or "none", **words}
    for path, field, default, value in _fields(config):
        for need in field.metadata:
            if not isinstance(need, Needs) or value in (need.free or (default,)):
                continue
            if not (_holds(need, config, value) if facts is None else facts.get(need.fact, True)):
                text = need.text.format(**{**words, "fact": need.fact, "value": _shown(value)})
                yield path, f"`{path}` {text}."
                break
    if facts is None:
        yield from _set_by_method(config)


def _set_by_method(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the views, and the arguments of the loss, that the method sets itself to other values."""
    method, defaults = config.method["name"], losses.arguments(config.loss["name"]).defaults
    for item in methods.facts(method).get("sets", "").split():
        name, _, value = item.partition("=")
        if name in config.loss and config.loss[name] != defaults.get(name) and str(config.loss[name]) != value:
            wrong = _shown(config.loss[name])
            yield f"loss.{name}", f"`loss.{name}` {wrong} has no effect with method {method}, which sets it to {value}."
    only, views = methods.facts(method).get("views"), [config.views.first["name"], config.views.second["name"]]
    if only is not None and set(views) != {only}:
        got = " and ".join(views)
        yield "views", f"`views` must be {only} with method {method}, which takes the original graphs; got {got}."


def warn_of_unused(config: Config, facts: Mapping[str, bool], **words: str) -> None:
    """Warn of each setting that has no effect on the data and the model, of which `facts` are known."""
    for _, line in unused(config, facts, **words):
        warn(line.rstrip("."))


def _holds(need: Needs, config: Config, value: Any) -> bool:
    return need.fact not in FACTS or FACTS[need.fact](config, value)


def _fields(settings: BaseModel) -> Iterator[tuple[str, FieldInfo, Any, Any]]:
    """Yield the dotted name, the field, the default and the value of each setting, and of parts and arguments."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        yield name, field, field.default, value
        if isinstance(value, BaseModel):
            for inner, field_of_inner in type(value).model_fields.items():
                yield f"{name}.{inner}", field_of_inner, getattr(field.default, inner), getattr(value, inner)
        elif name in _REGISTRIES:
            arguments = _REGISTRIES[name].arguments(value["name"]).model.model_fields
            for argument, field_of_argument in arguments.items():
                if argument in value:
                    yield f"{name}.{argument}", field_of_argument, field_of_argument.default, value[argument]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)
