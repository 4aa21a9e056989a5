"""Find settings that do not fit the others. A field states what it needs as a `graphcl.arguments.Needs`."""

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
    several = _takes(config, "labels")
    return config.positives == "views" or not (_listed(config) or config.batch_by or config.hard_negatives or several)


def _takes(config: Config, tensor: str) -> bool:
    """Return whether the loss takes a tensor of this name, such as `labels`."""
    return tensor in losses.arguments(config.loss["name"]).tensors


def _of_method(config: Config, fact: str) -> str | None:
    return methods.facts(config.method["name"]).get(fact)


def _dense(config: Config) -> bool:
    return encoders.fact(config.encoder["name"], "form") == "dense"


def _plain(config: Config) -> bool:
    return config.method["name"] == "two_views"


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
    "different views": lambda config, value: (
        value != "views"
        or {config.views.first["name"], config.views.second["name"]} != {"identity"}
        or _of_method(config, "views") is not None
    ),
    "no labels of test folds": lambda config, value: (
        not _takes(config, "labels") or (config.positives != "views" and _plain(config))
    ),
    "mined": lambda config, value: _in_time(config, config.mine_every + 1) or not config.trains,
    "one encoder": lambda config, value: config.towers == "shared",
    "target encoder": lambda config, value: config.towers == "separate" or value == config.encoder,
    "dense rows": lambda config, value: _dense(config),
    "dense rows or pairs": lambda config, value: _dense(config) or config.positives != "views",
    "dense rows or weights": lambda config, value: _dense(config) or _takes(config, "weight"),
    "dense rows or two_views": lambda config, value: _dense(config) or _plain(config),
    "projector": lambda config, value: config.projector != "none",
    "graphs": lambda config, value: _of_method(config, "rows") is None,
    "anchors are graphs": lambda config, value: (
        _of_method(config, "rows") is None and _of_method(config, "anchors") is None
    ),
    "several layers": lambda config, value: config.encoder.get("num_layers", 2) > 1,
    "two encoded views": lambda config, value: _of_method(config, "pairs") != "no",
    "two_views": lambda config, value: _plain(config),
    "moving BatchNorm": lambda config, value: not config.frozen_bn,
    "no steps": lambda config, value: config.steps is None,
    "in time": _in_time,
    "patient": lambda config, value: _in_time(config, value + 1),
    "larger batch": lambda config, value: value < config.batch_size,
    "evaluators": lambda config, value: bool(config.eval),
    **{name: _scored_with(name) for name in ("folds", "inner_folds", "scale", "place")},
    "sample": lambda config, value: bool(config.eval),
    "out": lambda config, value: config.out is not None,
}
"""Facts that the settings decide. Data and model decide others, and some of these again, see `warn_of_unused`."""


def unfit(config: Config, facts: Mapping[str, bool] | None = None, **words: str) -> Iterator[tuple[str, str]]:
    """Yield the dotted name of each setting that has no effect or contradicts others, and the message.

    Args:
        config: settings with valid, complete names.
        facts: facts of the data and the model; default: those that the settings decide.
        **words: values of further placeholders in the messages.
    """
    names = {name: getattr(config, name)["name"] for name in ("method", "encoder", "loss")}
    names |= {"form": encoders.fact(names["encoder"], "form"), "rows": _of_method(config, "rows") or "graphs"}
    words = {**config.model_dump(), **names, "eval": ", ".join(config.eval) or "none", **words}
    for path, field, default, value in _fields(config):
        for need in field.metadata:
            if not isinstance(need, Needs) or value in (need.free or (default,)):
                continue
            if not (_holds(need.fact, config, value) if facts is None else facts.get(need.fact, True)):
                text = need.text.format(**{**words, "fact": need.fact, "value": _shown(value)})
                yield path, f"`{path}` {text}."
                break
    if facts is None:
        yield from _against_method(config)


def _holds(fact: str, config: Config, value: Any) -> bool:
    """Return whether a fact holds: one of `FACTS`, a setting other than its default, or `rows NAME` of the method."""
    kind, _, rows = fact.partition(" ")
    if kind == "rows":
        return _of_method(config, "rows") == rows
    if fact in FACTS:
        return FACTS[fact](config, value)
    field = type(config).model_fields.get(fact)
    return field is None or getattr(config, fact) != field.default  # else data and model decide it


def _against_method(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the views, and the arguments of the loss, that do not fit the method or that it sets itself."""
    method, defaults = config.method["name"], losses.arguments(config.loss["name"]).defaults
    if config.loss.get("negatives") == "queue" and _of_method(config, "queue") != "yes":
        wanted = f"queue needs a method with a queue, not {method}; use `--method moco`"
        yield "loss.negatives", f"`loss.negatives` {wanted}."
    for item in (_of_method(config, "sets") or "").split():
        name, _, value = item.partition("=")
        if name in config.loss and config.loss[name] != defaults.get(name) and str(config.loss[name]) != value:
            wrong = _shown(config.loss[name])
            yield f"loss.{name}", f"`loss.{name}` {wrong} has no effect with method {method}, which sets it to {value}."
    only, views = _of_method(config, "views"), [config.views.first["name"], config.views.second["name"]]
    if only is not None and set(views) != {only}:
        got = " and ".join(views)
        yield "views", f"`views` must be {only} with method {method}, which takes the original graphs; got {got}."


def warn_of_unused(config: Config, facts: Mapping[str, bool], **words: str) -> None:
    """Warn of each setting that has no effect on the data and the model, of which `facts` are known."""
    for _, line in unfit(config, facts, **words):
        warn(line.rstrip("."))


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
