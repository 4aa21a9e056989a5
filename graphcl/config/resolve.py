"""Complete the given settings to a `Config`: fill in defaults, resolve `auto`, and report all problems at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from graphcl.arguments import MAX_PROBLEMS, named_arguments, nearest, problems, resembling
from graphcl.config.needs import unused
from graphcl.config.nested import expanded
from graphcl.config.settings import Config, Views
from graphcl.config.specs import ConfigError, complete_spec, spec_problems
from graphcl.errors import warn
from graphcl.registry import Registry, augmentations, encoders, evaluators, losses, methods


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
        InputWarning: a setting of the configuration has no effect with the user's own settings, and is ignored.

    Example:
        >>> make_config({"loss": {"name": "adnce", "mu": 0.5}}).loss["sigma"]
        1.0
    """
    values, found = expanded(values), list[str]()
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        found += problems(error, Config, unknown=_advice)
        if any(item["loc"][0] == "imports" for item in error.errors()):  # the file may register the names
            raise ConfigError("\n".join(found)) from None
        config = Config.model_validate(_without_errors(values, error))
    config = config.model_copy(update=_resolved(config))
    for prefix, spec, registry in _specs(config):
        if prefix != "target_encoder" or spec != config.encoder:
            found += spec_problems(spec, registry, prefix)
    found += _invalid_values(config)
    if found:  # the checks below look names up in the registries, so the names must be valid
        raise ConfigError("\n".join(found))
    complete = {prefix: complete_spec(spec, registry) for prefix, spec, registry in _specs(config)}
    complete["loss"].pop("reduction", None)
    views = Views(first=complete.pop("views.first"), second=complete.pop("views.second"))
    config = config.model_copy(update={**complete, "views": views})
    idle = dict(unused(config))
    ignored = [path for path in idle if own is not None and not _overlaps(path, own)]
    for path in ignored:
        warn(f"{idle[path].rstrip('.')}; the configuration's value is ignored.")
    if ignored:
        return make_config(_without_paths(values, ignored), own)
    if found := [*idle.values(), *_contradictions(config)]:
        raise ConfigError("\n".join(found))
    return config


def to_yaml(config: BaseModel) -> str:
    """Return the settings as YAML text, in the format that `read_config` reads."""
    return yaml.safe_dump(config.model_dump(), sort_keys=False, allow_unicode=True)


_VIEWS = dict.fromkeys(("views.first", "views.second"), augmentations)
NAMED = {"loss": losses, "encoder": encoders, "target_encoder": encoders, **_VIEWS, "method": methods}
"""Setting that takes a registered name -> registry of the names."""


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
    names = [*Config.model_fields, "views.first", "views.second"]
    found = resembling(key, names, 0.8)
    if not found:
        paths = [path for path in setting_paths() if "target" in key or not path.startswith("target_encoder.")]
        found = resembling(key, paths, 0.8)
    texts = {name: field.description or "" for name, field in Config.model_fields.items()}
    described = [name for name, text in texts.items() if {*key.split("_")} <= {*text.lower().split()}]
    shortest = sorted(described, key=lambda name: len(texts[name]))[:1]
    return (found or shortest or resembling(key, texts))[:3]


def _advice(key: str) -> str:
    return nearest(key, setting_paths(), similar_settings(key))


def _resolved(config: Config) -> dict[str, Any]:
    """Return the settings to update: those that are `auto`, and those that the user did not set, if others imply them.

    The loss comes before the method: if both are `auto`, the loss is infonce and the method is its usual method.
    """
    from graphcl.datasets.molecules.table import is_molecules  # imported here, as help needs no torch
    from graphcl.datasets.names import is_node_name
    from graphcl.evaluate.needs import usual as usual_evaluator
    from graphcl.models.saved import read_saved

    loss, method, encoder, target = (
        {**each} for each in (config.loss, config.method, config.encoder, config.target_encoder)
    )
    given, usual = config.model_fields_set, dict[str, Any]()
    if method.get("name") == "auto" and is_node_name(config.dataset):
        method["name"] = "grace"
    if loss.get("name") == "auto":
        loss["name"] = _facts(method, methods).get("loss", "infonce")
    if method.get("name") == "auto":
        method["name"] = _facts(loss, losses).get("method", "two_views")
    facts = _facts(method, methods)
    ogb, nodes = config.dataset.startswith("ogbg-"), facts.get("rows") == "nodes"
    if nodes:
        usual |= {"epochs": 200} if config.steps is None else {}
        usual |= {"lr": 0.001, "projector": facts.get("projector", "mlp")}
        usual["eval"] = [usual_evaluator("nodes")]
    elif ogb or config.split is not None:
        usual["eval"] = [usual_evaluator("targets")]
    elif config.positives not in ("views", "group"):
        usual["eval"] = [usual_evaluator("groups")]
    if config.init is not None and encoder.get("name") == "auto":
        described = read_saved(config.init)[0].encoder
        encoder = {**(described.arguments or {}), **encoder, "name": described.name}
    if encoder.get("name") == "auto":
        molecules = (ogb and config.dataset != "ogbg-ppa") or is_molecules(config.dataset)
        categories = molecules and config.features in ("auto", "labels")
        encoder["name"] = "node_gcn" if nodes else "molecule_gine" if categories else "gin"
    if target.get("name") == "auto":
        target = encoder | {key: value for key, value in target.items() if key != "name"}
    if _facts(encoder, encoders).get("form", "dense") != "dense":
        usual["projector"] = "none"
    chosen = config.views.model_fields_set if "views" in given else set()
    members = None if config.positives == "views" else "identity"  # two graphs differ without augmentation
    view = {"name": facts.get("views", facts.get("usual_views", members))}
    views = config.views.model_copy(
        update={key: view for key in Views.model_fields if view["name"] and key not in chosen}
    )
    implied = {key: value for key, value in usual.items() if key not in given}
    return {**implied, "loss": loss, "method": method, "encoder": encoder, "target_encoder": target, "views": views}


def _facts(spec: Mapping[str, Any], registry: Registry) -> Mapping[str, str]:
    """Return the metadata registered for the name in `spec`, such as a method's usual loss; {} for an unknown name."""
    name = spec.get("name")
    return registry.facts(name) if isinstance(name, str) and name in registry else {}


def _invalid_values(config: Config) -> Iterator[str]:
    """Yield the problems of single settings."""
    if config.resume and config.out is None:
        yield "`resume` needs the run folder, as in --resume FOLDER."
    if config.loss.get("reduction", "mean") != "mean":
        yield f"`loss.reduction` must be 'mean' for training, got {config.loss['reduction']!r}."
    for name in [name for name in config.eval if name not in evaluators][:MAX_PROBLEMS]:
        yield f"`eval`: unknown evaluator {name!r}; {nearest(name, evaluators)}."


def _contradictions(config: Config) -> Iterator[str]:
    """Yield the problems of names with each other: loss, method, encoder and views."""
    loss, method, encoder = (getattr(config, name)["name"] for name in ("loss", "method", "encoder"))
    tensors, views = losses.arguments(loss).tensors, {config.views.first["name"], config.views.second["name"]}
    if "labels" in tensors and (config.positives == "views" or method != "two_views"):
        yield (
            f"`loss` {loss} trains on the labels of all graphs, also of the test folds, so its score would be invalid; "
            "use method two_views with pairs as `positives`, or Python, on training graphs only."
        )
    elif config.loss.get("negatives") == "queue" and methods.facts(method).get("queue") != "yes":
        yield f"`loss.negatives` queue needs a method with a queue, not {method}; use `--method moco`."
    form = encoders.fact(encoder, "form")
    if form != "dense":
        if config.positives == "views":
            yield f"`encoder` {encoder} needs pairs of graphs; pass --positives group or a table of pairs."
        if "weight" not in tensors:
            yield f"loss {loss} compares columns, which differ from batch to batch with encoder {encoder}; use infonce."
        if method != "two_views":
            yield f"method {method} does not fit encoder {encoder}, whose rows are {form}; use two_views."
    if config.singles == "views" and views == {"identity"} and methods.facts(method).get("views") is None:
        yield "`singles` views would pair equal graphs, as `views` are identity; pass --views.first random4, or drop."


def _specs(config: Config) -> list[tuple[str, dict[str, Any], Registry]]:
    return [(path, attrgetter(path)(config), registry) for path, registry in NAMED.items()]


def _overlaps(path: str, others: Iterable[str]) -> bool:
    """Return whether a dotted path equals one of `others`, or one of the two contains the other."""
    return any(f"{path}.".startswith(f"{each}.") or f"{each}.".startswith(f"{path}.") for each in others)


def _without_paths(values: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """Return nested `values` without those at the dotted `paths`."""
    rest = dict(values)
    for path in paths:
        key, _, inner = path.partition(".")
        value = rest.pop(key)
        if inner:
            rest[key] = {name: each for name, each in value.items() if name != inner}
    return rest


def _without_errors(values: Mapping[str, Any], error: ValidationError) -> dict[str, Any]:
    """Return `values` without the settings that `error` reports, so that the remaining settings can be checked."""
    wrong: dict[str, set[tuple[str, ...]]] = {}
    for item in error.errors():
        path = tuple(map(str, item["loc"]))
        wrong.setdefault(path[0], set()).add(path)
    rest = {key: value for key, value in values.items() if str(key) not in wrong}
    for key, value in values.items():
        paths = wrong.get(str(key))
        if paths and isinstance(value, dict) and all(len(path) == 2 for path in paths):
            rest[key] = {name: inner for name, inner in value.items() if (str(key), str(name)) not in paths}
    return rest
