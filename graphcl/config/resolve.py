"""Complete the given settings to a `Config`: fill in defaults, resolve `auto`, and report all problems at once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from graphcl.arguments import named_arguments, nearest, problems
from graphcl.config.settings import Config, Views
from graphcl.config.specs import ConfigError, complete_spec, spec_problems
from graphcl.registry import Registry, augmentations, encoders, losses, methods


@named_arguments
def make_config(values: Mapping[str, Any]) -> Config:
    """Complete the given settings and return them as a `Config`.

    All defaults are filled in, including the arguments of the loss, method, encoder and augmentations.

    Args:
        values: nested settings, as read from YAML.

    Raises:
        ConfigError: a setting is invalid; the message has one line per problem.

    Example:
        >>> make_config({"loss": {"name": "adnce", "mu": 0.5}}).loss["sigma"]
        1.0
    """
    found = []
    try:
        config = Config.model_validate(dict(values))
    except ValidationError as error:
        found += problems(error, lambda parents: valid_keys(Config)(parents) if parents else setting_paths())
        config = Config.model_validate(_without_errors(values, error))
    for choose in (_choose_for_nodes, _choose_loss, _choose_method, _choose_views, _choose_encoder, _choose_evaluator):
        config = config.model_copy(update=choose(config))
    for prefix, spec, registry in _specs(config):
        found += spec_problems(spec, registry, prefix)
    checks: list[Callable[[Config], list[str]]] = [_check_values, _check_evaluators]
    if not found:  # these checks look names up in the registries, so the names must be valid
        checks = [_check_loss, _check_views, *checks]
    found += [line for check in checks for line in check(config)]
    if found:
        raise ConfigError("\n".join(found))
    complete = {prefix: complete_spec(spec, registry) for prefix, spec, registry in _specs(config)}
    complete["loss"].pop("reduction", None)
    views = Views(first=complete.pop("views.first"), second=complete.pop("views.second"))
    return config.model_copy(update={**complete, "views": views})


def to_yaml(config: Config) -> str:
    """Return the settings as YAML text, in the format that `read_config` reads."""
    return yaml.safe_dump(config.model_dump(), sort_keys=False, allow_unicode=True)


def valid_keys(model: type[BaseModel]) -> Callable[[tuple[Any, ...]], list[str]]:
    """Return a function from a path of keys in `model` to the valid keys at that path, for `arguments.problems`."""

    def at(parents: tuple[Any, ...]) -> list[str]:
        inner: Any = model
        for parent in parents:
            inner = inner.model_fields[parent].annotation
        return list(inner.model_fields)

    return at


NAMED = {
    "loss": losses,
    "encoder": encoders,
    "views.first": augmentations,
    "views.second": augmentations,
    "method": methods,
}
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


# The `_choose_*` functions resolve `auto` and return the settings to update. The loss comes first: if loss and method
# are both `auto`, the loss is infonce and the method is its usual method.


def _choose_for_nodes(config: Config) -> dict[str, Any]:
    """Return the settings to update for a data set of nodes, or for a method that contrasts nodes."""
    from graphcl.datasets.names import is_node_name  # imported here, as help needs no torch

    update: dict[str, Any] = {}
    if config.method.get("name") == "auto" and is_node_name(config.dataset):
        update["method"] = {**config.method, "name": "grace"}
    facts = _facts(update.get("method", config.method), methods)
    if facts.get("rows") != "nodes":
        return update
    usual: dict[str, Any] = {"epochs": 200, "lr": 0.001, "eval": ["random_splits"]}
    usual["projector"] = facts.get("projector", "mlp")
    update |= {key: value for key, value in usual.items() if key not in config.model_fields_set}
    if config.encoder.get("name") == "auto":
        update["encoder"] = {**config.encoder, "name": "node_gcn"}
    if "usual_views" in facts:
        given = config.views.model_fields_set if "views" in config.model_fields_set else set()
        views = {key: {"name": facts["usual_views"]} for key in Views.model_fields if key not in given}
        update["views"] = config.views.model_copy(update=views)
    return update


def _choose_loss(config: Config) -> dict[str, Any]:
    if config.loss.get("name") != "auto":
        return {}
    return {"loss": {**config.loss, "name": _facts(config.method, methods).get("loss", "infonce")}}


def _choose_method(config: Config) -> dict[str, Any]:
    if config.method.get("name") != "auto":
        return {}
    return {"method": {**config.method, "name": _facts(config.loss, losses).get("method", "two_views")}}


def _choose_views(config: Config) -> dict[str, Any]:
    """Return the views. If the method accepts only one augmentation, use it for each view that the user did not set."""
    only = _facts(config.method, methods).get("views")
    given = config.views.model_fields_set if "views" in config.model_fields_set else set()
    update = {key: {"name": only} for key in Views.model_fields if only and key not in given}
    return {"views": config.views.model_copy(update=update)}


def _choose_encoder(config: Config) -> dict[str, Any]:
    if config.encoder.get("name") != "auto":
        return {}
    from graphcl.datasets.molecules.table import is_molecules  # imported here, as help needs no torch

    ogb = config.dataset.startswith("ogbg-") and config.dataset != "ogbg-ppa"
    molecules = ogb or is_molecules(config.dataset)
    categories = molecules and config.features in ("auto", "labels")
    return {"encoder": {**config.encoder, "name": "molecule_gine" if categories else "gin"}}


def _choose_evaluator(config: Config) -> dict[str, Any]:
    split = config.dataset.startswith("ogbg-") or config.split is not None
    return {"eval": ["ogb"]} if split and "eval" not in config.model_fields_set else {}


def _facts(spec: Mapping[str, Any], registry: Registry) -> Mapping[str, str]:
    """Return the metadata registered for the name in `spec`, such as a method's usual loss; {} for an unknown name."""
    name = spec.get("name")
    return registry.facts(name) if isinstance(name, str) and name in registry else {}


# The `_check_*` functions return the problems of the settings, one line each.


def _check_values(config: Config) -> list[str]:
    found = []
    if config.resume and config.out is None:
        found.append("`resume` needs the run folder, as in --resume FOLDER.")
    if config.loss.get("reduction", "mean") != "mean":
        found.append(f"`loss.reduction` must be 'mean' for training, got {config.loss['reduction']!r}.")
    return found


def _check_evaluators(config: Config) -> list[str]:
    from graphcl.evaluate import EVALUATORS, NODE_EVALUATORS, SPLIT_EVALUATORS  # imported here, as help needs no torch

    names, known = config.eval, [*EVALUATORS, *SPLIT_EVALUATORS, *NODE_EVALUATORS]
    found = [f"`eval`: unknown evaluator {name!r}; {nearest(name, known)}." for name in names if name not in known]
    if config.evaluation.scale and "svm" not in names:
        found.append(f"`evaluation.scale` has no effect without svm, got `eval` {', '.join(names)}.")
    return found


def _check_views(config: Config) -> list[str]:
    """Return a problem if the method accepts only one augmentation and a view uses another one; else an empty list."""
    method = config.method["name"]
    only, names = methods.facts(method).get("views"), [config.views.first["name"], config.views.second["name"]]
    if only is None or set(names) == {only}:
        return []
    return [f"`views` must be {only} with method {method}, which takes the original graphs; got {' and '.join(names)}."]


def _check_loss(config: Config) -> list[str]:
    loss, method, negatives = config.loss["name"], config.method["name"], config.loss.get("negatives")
    known = losses.arguments(loss)
    if "labels" in known.tensors:
        return [
            f"`loss` {loss} trains on the labels of all graphs, also of the test folds, so its score would be invalid; "
            "use it from Python, on training graphs only."
        ]
    if method == "memory_bank" and negatives not in (None, "queue"):
        return [f"`loss.negatives` {negatives} has no effect with method memory_bank, whose negatives are the bank's."]
    if (negatives or known.defaults.get("negatives")) == "queue" and method not in ("infograph", "memory_bank", "moco"):
        return [f"`loss.negatives` queue needs a method with a queue, not {method}; use `--method moco`."]
    return []


def _specs(config: Config) -> list[tuple[str, dict[str, Any], Registry]]:
    return [(path, attrgetter(path)(config), registry) for path, registry in NAMED.items()]


def _without_errors(values: Mapping[str, Any], error: ValidationError) -> dict[str, Any]:
    """Return `values` without the settings that `error` reports, so that the remaining settings can be checked."""
    rest = copy.deepcopy(dict(values))
    for item in error.errors():
        *parents, last = item["loc"]
        part: Any = rest
        for parent in parents:
            part = part.get(parent) if isinstance(part, dict) else None
        if isinstance(part, dict):
            for key in [key for key in part if str(key) == str(last)]:  # pydantic turns keys into strings
                del part[key]
        else:  # an element of a list: remove the whole setting
            rest.pop(str(item["loc"][0]), None)
    return rest
