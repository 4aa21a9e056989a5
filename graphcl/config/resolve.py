"""Complete the given settings to a `Config`: fill in defaults, resolve `auto`, and report all problems at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from graphcl.arguments import MAX_PROBLEMS, Needs, named_arguments, nearest, problems, resembling, shown
from graphcl.config.recipes import expanded, parse_value
from graphcl.config.settings import Config, Views, as_spec
from graphcl.errors import InputError, one_line, warn
from graphcl.registry import Registry, augmentations, encoders, evaluators, losses, methods

REPLACED = {
    "clip": "was replaced; train anew with its vectors as `targets` and a table of pairs as `positives`",
}
"""Method of earlier versions -> what to do instead."""
_VIEWS = dict.fromkeys(("views.first", "views.second"), augmentations)
NAMED = {"loss": losses, "encoder": encoders, "target_encoder": encoders, **_VIEWS, "method": methods}
"""Setting that takes a registered name -> registry of the names."""


class ConfigError(InputError):
    """One or more settings are invalid; the message has one line per problem."""


@named_arguments
def make_config(values: Mapping[str, Any], own: Iterable[str] | None = None) -> Config:
    """Complete the given settings and return them as a `Config`.

    All defaults are filled in, including the arguments of the loss, method, encoder and augmentations.

    Args:
        values: nested settings, as read from YAML.
        own: dotted names of the settings that the user gave, if `values` come from a configuration too; default: all.

    Raises:
        ConfigError: a setting is invalid; the message has one line per problem.

    Warns:
        InputWarning: a setting of the configuration does not fit the user's own settings, and is ignored.

    Example:
        >>> make_config({"loss": {"name": "adnce", "mu": 0.5}}).loss["sigma"]
        1.0
    """
    values, lines = expanded(values), list[str]()
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        lines += problems(error, Config, unknown=lambda key: nearest(key, setting_paths(), similar_settings(key)))
        wrong = [item["loc"] for item in error.errors()]
        if any(place[0] == "imports" for place in wrong):  # the file may register the names
            raise ConfigError("\n".join(lines)) from None
        config = Config.model_validate(_without(values, wrong))
    config = config.model_copy(update=_resolved(config))
    for path, registry in NAMED.items():
        if path != "target_encoder" or config.target_encoder != config.encoder:
            lines += spec_problems(attrgetter(path)(config), registry, path)
    if config.loss.get("reduction", "mean") != "mean":
        lines.append(f"`loss.reduction` must be 'mean' for training, got {config.loss['reduction']!r}.")
    for name in [name for name in config.eval if name not in evaluators][:MAX_PROBLEMS]:
        lines.append(f"`eval`: unknown evaluator {name!r}; {nearest(name, evaluators)}.")
    if lines:  # the checks below look names up in the registries, so the names must be valid
        raise ConfigError("\n".join(lines))
    specs = {path: complete_spec(attrgetter(path)(config), registry) for path, registry in NAMED.items()}
    specs["loss"].pop("reduction", None)
    views = Views(first=specs.pop("views.first"), second=specs.pop("views.second"))
    config = config.model_copy(update={**specs, "views": views})
    wrong_lines = dict(unfit(config))
    ignored = [path for path in wrong_lines if own is not None and not _overlaps(path, own) and _overlaps(path, values)]
    for path in ignored:
        warn(f"{wrong_lines[path].rstrip('.')}; the configuration's value is ignored.")
    if ignored:
        return make_config(_without(values, [path.split(".") for path in ignored]), own)
    if wrong_lines:
        raise ConfigError("\n".join(wrong_lines.values()))
    return config


def to_yaml(config: BaseModel) -> str:
    """Return the settings as YAML text, in the format that `read_config` reads."""
    return yaml.safe_dump(config.model_dump(), sort_keys=False, allow_unicode=True)


def _resolved(config: Config) -> dict[str, Any]:
    """Return the settings to update: those that are `auto`, and those that the user did not set, if others imply them.

    The loss comes before the method: if both are `auto`, the loss is infonce and the method is its usual method.
    """
    from graphcl.evaluate.needs import usual as usual_evaluator
    from graphcl.models.saved import read_saved  # imported here, as help texts need no torch

    loss, method, encoder, target = (
        {**spec} for spec in (config.loss, config.method, config.encoder, config.target_encoder)
    )
    usual: dict[str, Any] = {}
    if config.positives not in ("views", "group"):
        usual["eval"] = [usual_evaluator("groups")]
    if config.split is not None:
        usual["eval"] = [usual_evaluator("targets")]
    usual |= _usual_of_source(config)
    if method.get("name") == "auto" and "method" in usual:
        method["name"] = usual["method"]
    if loss.get("name") == "auto":
        loss["name"] = _facts(method, methods).get("loss", "infonce")
    if method.get("name") == "auto":
        method["name"] = _facts(loss, losses).get("method", "two_views")
    of_method = _facts(method, methods)
    implied = (item.partition("=") for item in of_method.get("usual", "").split())
    usual |= {key: parse_value(text) for key, _, text in implied}
    saved = None if config.init is None else read_saved(config.init)[0]
    if saved is not None and encoder.get("name") == "auto":
        encoder = saved.encoder.spec | encoder | {"name": saved.encoder.name}
    if encoder.get("name") == "auto":
        encoder["name"] = usual.get("encoder", "gin")
    if target.get("name") == "auto":
        others = {key: value for key, value in target.items() if key != "name"}
        of_targets = {"name": usual["target_encoder"]} if "target_encoder" in usual else encoder
        of_targets = saved.target.encoder.spec if saved is not None and saved.target is not None else of_targets
        target = of_targets | others
    if _facts(encoder, encoders).get("form", "dense") != "dense":
        usual["projector"] = "none"
    if config.steps is not None:
        usual.pop("epochs", None)
    chosen = config.views.model_fields_set if "views" in config.model_fields_set else set()
    members = None if config.positives == "views" else "identity"  # two graphs differ without augmentation
    view = of_method.get("views", of_method.get("usual_views", members))
    views = {key: {"name": view} for key in Views.model_fields if view is not None and key not in chosen}
    not_given = {key: value for key, value in usual.items() if key not in config.model_fields_set}
    return not_given | {
        "loss": loss,
        "method": method,
        "encoder": encoder,
        "target_encoder": target,
        "views": config.views.model_copy(update=views),
    }


def _usual_of_source(config: Config) -> dict[str, Any]:
    """Return the settings that the kinds of data set imply, see `graphcl.datasets.sources.Source.usual`."""
    from graphcl.datasets.load import claiming, usual_of_targets

    kind = claiming(config.dataset)
    usual = {} if kind is None else kind.usual(config.dataset)
    if config.features not in ("auto", "labels"):
        usual.pop("encoder", None)
    return usual | usual_of_targets(config.targets)


def _facts(spec: Mapping[str, Any], registry: Registry) -> Mapping[str, str]:
    """Return the metadata registered for the name in `spec`, such as a method's usual loss; {} for an unknown name."""
    name = spec.get("name")
    return registry.facts(name) if isinstance(name, str) and name in registry else {}


def _overlaps(path: str, others: Iterable[str]) -> bool:
    """Return whether a dotted path equals one of `others`, or one of the two contains the other."""
    return any(f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.") for other in others)


def _without(values: Mapping[Any, Any], places: Iterable[Iterable[object]]) -> dict[Any, Any]:
    """Return nested `values` without those at `places`, of one key or two; deeper ones take the whole setting."""
    whole, inner = set[str](), dict[str, set[str]]()
    for key, *rest in (map(str, place) for place in places):
        if len(rest) == 1 and isinstance(values.get(key), dict):
            inner.setdefault(key, set()).add(rest[0])
        else:
            whole.add(key)
    return {
        key: {name: part for name, part in value.items() if str(name) not in inner[key]} if key in inner else value
        for key, value in values.items()
        if str(key) not in whole
    }


def setting_paths() -> list[str]:
    """Return the dotted path of every setting of a run, including the arguments of every registered name."""
    paths = list(Config.model_fields)
    for name, field in Config.model_fields.items():
        if isinstance(field.default, BaseModel):
            paths += [f"{name}.{inner}" for inner in type(field.default).model_fields]
    for setting, registry in NAMED.items():
        paths += [f"{setting}.{argument}" for name in registry for argument in registry.arguments(name).defaults]
    return list(dict.fromkeys(paths))


def similar_settings(key: str) -> list[str]:
    """Return up to three settings that the user may have meant by `key`.

    Settings and arguments with a similar name come first, then settings with the words of `key` in their description.

    Example:
        >>> similar_settings("temperature"), similar_settings("learning_rate"), similar_settings("momentum")
        (['loss.temperature'], ['lr'], ['method.momentum'])
    """
    # a typo in a setting's own name needs no registry, which takes seconds to import PyTorch
    similar = resembling(key, [*Config.model_fields, "views.first", "views.second"], 0.8)
    if not similar:
        paths = [path for path in setting_paths() if "target" in key or not path.startswith("target_encoder.")]
        similar = resembling(key, paths, 0.8)
    texts = {name: field.description or "" for name, field in Config.model_fields.items()}
    described = [name for name, text in texts.items() if {*key.split("_")} <= {*text.lower().split()}]
    shortest = sorted(described, key=lambda name: len(texts[name]))[:1]
    return (similar or shortest or resembling(key, texts))[:3]


def choices(registry: Registry) -> list[str]:
    """Return the registered names that a run accepts: all except losses that need labels."""
    return [name for name in registry if registry.kind != "loss" or "labels" not in registry.arguments(name).tensors]


def spec_problems(spec: Any, registry: Registry, prefix: str) -> list[str]:
    """Return a line for each problem of a specification such as `{name: adnce, mu: 0.7}` of the setting `prefix`."""
    if not isinstance(spec, dict) or not isinstance(spec.get("name"), str):
        return [f"`{prefix}` must be a name or a mapping with a `name`, got {one_line(repr(spec), 60)}."]
    name, arguments = spec["name"], {key: value for key, value in spec.items() if key != "name"}
    if registry is methods and name in REPLACED:
        return [f"`{prefix}` {name} {REPLACED[name]}."]
    if name not in registry:
        unknown = f"`{prefix}`: unknown {registry.kind} {name!r}"
        return [f"{unknown}; {nearest(name, choices(registry))}; --import FILE adds your own."]
    signature, lines = registry.arguments(name), list[str]()
    if not (signature.defaults or signature.required or signature.tensors):
        return [f"`{prefix}.{key}` is not a known key; {name} takes no arguments." for key in arguments]
    if "members" in signature.required:
        members = arguments.pop("members", None)
        if not isinstance(members, list) or not members:
            lines.append(f"`{prefix}.members` must be a list of one or more {registry.kind}s, got {members!r}.")
        else:
            for position, member in enumerate(members):
                lines += spec_problems(as_spec(member), registry, f"{prefix}.members.{position}")
    return lines + registry.problems(name, arguments, f"{prefix}.")


def complete_spec(spec: Mapping[str, Any], registry: Registry) -> dict[str, Any]:
    """Return a valid specification with all defaults filled in, including the defaults of its members."""
    complete = {"name": spec["name"], **registry.arguments(spec["name"]).defaults, **spec}
    if "members" in complete:
        complete["members"] = [complete_spec(as_spec(member), registry) for member in complete["members"]]
    return complete


def build_augmentation(spec: Mapping[str, Any]) -> Any:
    """Return the augmentation described by a valid specification; members of a composed augmentation are built too."""
    arguments = {key: value for key, value in spec.items() if key != "name"}
    if "members" in arguments:
        arguments["members"] = [build_augmentation(as_spec(member)) for member in arguments["members"]]
    return augmentations[spec["name"]](**arguments)


Holds = Callable[[Config, Any], bool]
"""Function of the settings, and of the value that needs the fact."""


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
    "searched": lambda config, value: any("groups" in evaluators.fact(name, "needs").split() for name in config.eval),
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
                words["value"] = value if isinstance(value, str) else shown(value)
                text = need.text.format(**{**words, "fact": need.fact})
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
            wrong = config.loss[name]
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
        elif name in ("encoder", "loss", "method"):
            arguments = NAMED[name].arguments(value["name"]).model.model_fields
            for argument, field_of_argument in arguments.items():
                if argument in value:
                    yield f"{name}.{argument}", field_of_argument, field_of_argument.default, value[argument]
