"""Complete the given settings to a `Config`: fill in defaults, resolve `auto`, and report all problems at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from graphcl.arguments import named_arguments, nearest, problems
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
    found = []
    try:
        config = Config.model_validate(dict(values))
    except ValidationError as error:
        found += problems(error, Config, names=setting_paths())
        if any(item["loc"][0] == "imports" for item in error.errors()):  # the file may register the names
            raise ConfigError("\n".join(found)) from None
        config = Config.model_validate(_without_errors(values, error))
    config = config.model_copy(update=_resolved(config))
    for prefix, spec, registry in _specs(config):
        found += spec_problems(spec, registry, prefix)
    if not found:  # these checks look names up in the registries, so the names must be valid
        unused = dict(_unused(config))
        ignored = [path for path in unused if own is not None and not _overlaps(path, own)]
        for path in ignored:
            warn(f"{unused[path].rstrip('.')}; the configuration's value is ignored.")
        if ignored:
            return make_config(_without_paths(values, ignored), own)
        found += [*unused.values(), *_contradictions(config)]
    if found := [*found, *_invalid_values(config)]:
        raise ConfigError("\n".join(found))
    complete = {prefix: complete_spec(spec, registry) for prefix, spec, registry in _specs(config)}
    complete["loss"].pop("reduction", None)
    views = Views(first=complete.pop("views.first"), second=complete.pop("views.second"))
    return config.model_copy(update={**complete, "views": views})


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
        usual |= {"epochs": 200, "lr": 0.001, "projector": facts.get("projector", "mlp")}
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
        target = {**encoder, **target, "name": encoder["name"]}
    if _facts(encoder, encoders).get("rows") == "sparse":
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
    for name in config.eval:
        if name not in evaluators:
            yield f"`eval`: unknown evaluator {name!r}; {nearest(name, evaluators)}."


def _unused(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the dotted name of each setting that has no effect, and the problem."""
    method, negatives = config.method["name"], config.loss.get("negatives")
    known = [name for name in config.eval if name in evaluators]
    if config.evaluation.scale and not any("scale" in evaluators.arguments(each).defaults for each in known):
        yield (
            "evaluation.scale",
            f"`evaluation.scale` has no effect without svm, got `eval` {', '.join(config.eval) or 'none'}.",
        )
    if method == "memory_bank" and negatives not in (None, "queue"):
        line = f"`loss.negatives` {negatives} has no effect with method memory_bank, whose negatives are the bank's."
        yield "loss.negatives", line
    only, names = methods.facts(method).get("views"), [config.views.first["name"], config.views.second["name"]]
    if only is not None and set(names) != {only}:
        got = " and ".join(names)
        yield "views", f"`views` must be {only} with method {method}, which takes the original graphs; got {got}."


def _contradictions(config: Config) -> Iterator[str]:
    """Yield the problems of loss, method and views with each other."""
    loss, method, negatives = config.loss["name"], config.method["name"], config.loss.get("negatives")
    known = losses.arguments(loss)
    queue = (negatives or known.defaults.get("negatives")) == "queue"
    if "labels" in known.tensors and (config.positives == "views" or method != "two_views"):
        yield (
            f"`loss` {loss} trains on the labels of all graphs, also of the test folds, so its score would be invalid; "
            "use method two_views with pairs as `positives`, or Python, on training graphs only."
        )
    elif queue and method not in ("infograph", "memory_bank", "moco"):
        yield f"`loss.negatives` queue needs a method with a queue, not {method}; use `--method moco`."
    only, names = methods.facts(method).get("views"), [config.views.first["name"], config.views.second["name"]]
    kind, listed = config.positives, config.positives not in ("views", "group")
    if config.targets is not None and not listed:
        yield "`targets` needs the pairs of queries and targets; pass a table of their ids as `positives`."
    given = {"batch_by": config.batch_by, "hard_negatives": config.hard_negatives, "pair_share": config.pair_share < 1}
    for name in given if kind == "views" else ():
        if given[name]:
            yield f"`{name}` needs pairs; pass --positives group or a table of pairs."
    if config.towers == "separate" and not listed:
        yield "`towers` separate needs queries and targets; pass a table of their ids as `positives`."
    if config.towers == "separate" and config.init is not None:
        yield "`init` holds one encoder, and `towers` separate trains two; leave one of them out."
    if encoders.facts(config.encoder["name"]).get("rows") == "sparse":
        yield from _needed_by_sparse(config)
    if config.keep_projector and (method == "infograph" or methods.facts(method).get("rows") == "nodes"):
        yield f"`keep_projector` projects whole graphs, but method {method} contrasts nodes; leave it out."
    if kind == "views":
        return
    for name, unused in (("singles", config.singles == "views"), ("shuffle_window", config.shuffle_window is not None)):
        if unused and (listed or config.batch_by or config.hard_negatives or "labels" in known.tensors):
            yield f"`{name}` has no effect on listed pairs, `batch_by`, `hard_negatives` and supcon; leave it out."
    if methods.facts(method).get("rows") == "nodes":
        yield f"`positives` {kind} pairs whole graphs, but method {method} contrasts nodes; use two_views."
    elif methods.facts(method).get("pairs") == "no":
        yield f"`positives` {kind} has no effect with method {method}, which encodes one view only; use two_views."
    elif config.hard_negatives and method != "two_views":
        yield f"`hard_negatives` are keys of the loss, which method {method} replaces by its own; use two_views."
    elif config.singles == "views" and only is None and set(names) == {"identity"}:
        yield "`singles` views would pair equal graphs, as `views` are identity; pass --views.first random4, or drop."


def _needed_by_sparse(config: Config) -> Iterator[str]:
    """Yield the problems of settings with an encoder of sparse rows."""
    name = config.encoder["name"]
    if config.positives == "views":
        yield f"`encoder` {name} needs pairs of graphs; pass --positives group or a table of pairs."
    for setting, only in (("projector", "none"), ("projection", None), ("towers", "shared"), ("micro_batch", None),
                          ("hard_negatives", 0), ("keep_projector", False)):  # fmt: skip
        if (value := getattr(config, setting)) != only:
            yield f"`{setting}` {value} does not fit encoder {name}, whose rows are sparse; leave it out."
    if "weight" not in losses.arguments(config.loss["name"]).tensors:
        loss = config.loss["name"]
        yield f"loss {loss} compares columns, which differ from batch to batch with encoder {name}; use infonce."
    if (method := config.method["name"]) != "two_views":
        yield f"method {method} does not fit encoder {name}, whose rows are sparse; use two_views."


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
        rest[key] = {name: each for name, each in values[key].items() if inner and name != inner}
    return rest


def _without_errors(values: Mapping[str, Any], error: ValidationError) -> dict[str, Any]:
    """Return `values` without the settings that `error` reports, so that the remaining settings can be checked."""
    rest = {}
    wrong = [tuple(map(str, item["loc"])) for item in error.errors()]
    for key, value in values.items():
        paths = [path for path in wrong if path[0] == str(key)]
        if not paths:
            rest[key] = value
        elif isinstance(value, dict) and all(len(path) == 2 for path in paths):
            rest[key] = {name: inner for name, inner in value.items() if (str(key), str(name)) not in paths}
    return rest
