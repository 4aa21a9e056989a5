"""The settings of a run: typed, frozen; every mistake is reported at once."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from graphcl.arguments import Count, NonNegative, Positive, interval, nearest, problems
from graphcl.errors import InputError
from graphcl.evaluate import EVALUATORS, SPLIT_EVALUATORS
from graphcl.models.contrastive import Head
from graphcl.registry import Registry, augmentations, encoders, losses, methods


class ConfigError(InputError):
    """One or more settings cannot be used; the message has a line for each."""


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _words(value: Any) -> Any:
    return re.findall(r"[^\s,]+", value) if isinstance(value, str) else value


Named = Annotated[dict[str, Any], BeforeValidator(_named)]
"""A registered name with its arguments, `{name: adnce, mu: 0.7}`; a bare name means its defaults."""
Words = Annotated[list[str], BeforeValidator(_words)]
"""One or more names: a list, or a text with commas or blanks between them."""
Trackers = Annotated[list[Literal["tensorboard", "wandb", "mlflow"]], BeforeValidator(_words)]
Folds = Annotated[int, interval("[2, inf)")]
Window = Annotated[int, interval("[16, inf)")]
BatchSize = Annotated[int, interval("[2, inf)", "a contrastive loss compares at least two graphs")]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Views(_Frozen):
    """The two augmentations whose outcomes are contrasted."""

    first: Named = {"name": "random4"}
    second: Named = {"name": "random4"}


class Evaluation(_Frozen):
    """The protocol of every evaluator, see `graphcl.evaluate.svm`; `scale` is the SVM's."""

    folds: Folds = 10
    inner_folds: Folds = 5
    scale: bool = False


class CheckpointRule(_Frozen):
    """How often training is saved, see `graphcl.training.checkpoint`; it always is when it ends or is stopped."""

    epochs: Count | None = None
    minutes: Positive | None = 10.0


class Config(_Frozen):
    """All settings of a run."""

    dataset: str = Field("synthetic", description="TU or OGB name, `synthetic`, .pt file, TU folder or one on disk")
    data_root: str = Field("datasets", description="where downloaded and processed data sets lie")
    mirror: str | None = Field(None, description="folder, file:// or http(s) URL holding NAME.zip")
    features: Literal["auto", "labels", "constant", "degree", "labels+degree", "auto+degree"] = Field(
        "auto", description="node features; auto: labels where there are any, else constant (auto+degree: no constant)"
    )
    max_degree: Count = Field(64, description="degrees from this on share a column")
    views: Views = Field(Views(), description="the augmentations `first` and `second`")
    encoder: Named = Field({"name": "auto"}, description="the encoder; auto: gin, for OGB's molecules molecule_gine")
    projection: Count | None = Field(None, description="width of the projection; default: the encoder's")
    head: Head = Field("mlp", description="the projector: mlp, linear (one layer), residual (InfoGraph's)")
    loss: Named = Field({"name": "auto"}, description="the loss; auto: as the method is meant, else infonce")
    method: Named = Field({"name": "auto"}, description="how views are contrasted; auto: as the loss is meant")
    epochs: Annotated[int, interval("[0, inf)")] = Field(20, description="passes over the data")
    steps: Count | None = Field(None, description="optimiser steps in all, instead of the epochs")
    batch_size: BatchSize = Field(128, description="graphs in a batch, at least two")
    shuffle_window: Window | None = Field(
        None, description="graphs shuffled together, for sets larger than the memory; default: all"
    )
    lr: Positive = Field(0.01, description="Adam's learning rate")
    weight_decay: NonNegative = Field(0.0, description="Adam's L2 penalty")
    clip_norm: Positive | None = Field(None, description="largest norm of the gradient; default: no clipping")
    amp: bool = Field(False, description="compute in bfloat16")
    non_finite: Literal["stop", "skip"] = Field(
        "stop", description="at a loss or gradient of NaN or infinity: stop, or skip the step and count it"
    )
    deterministic: bool = Field(False, description="the same bits each time on CUDA too, or a refusal; slower there")
    precise_bn: bool = Field(
        False, description="recompute BatchNorm's statistics over all graphs after training, before embedding"
    )
    diagnostics: bool = Field(False, description="log ranks, negatives and weights of each epoch too")
    seeds: list[Annotated[int, interval("[0, 4294967296)")]] = Field([0, 1, 2, 3, 4], description="one run each")
    eval: Words = Field(
        ["svm"], description="how embeddings are scored, one or more: knn, logreg, svm; for OGB's sets: ogb"
    )
    evaluation: Evaluation = Field(Evaluation(), description="folds of the scores, and whether the SVM scales columns")
    score_every: Count | None = Field(
        None, description="also score every so many epochs, for the record; nothing is chosen by it"
    )
    threads: Count = Field(1, description="CPU threads of training; one is robust where other programs run")
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N; auto takes CUDA where there is one")
    sync_batchnorm: bool = Field(
        False, description="with several ranks: BatchNorm's statistics are of all ranks' graphs"
    )
    rank_timeout: Positive = Field(300.0, description="seconds after which a silent rank ends a job of several")
    checkpoint: CheckpointRule = Field(
        CheckpointRule(), description="training is saved every so many epochs, or minutes, see --resume"
    )
    report: bool = Field(True, description="draw report.html into the outcome's folder, with matplotlib")
    track: Trackers = Field([], description="logs besides the run folder's: tensorboard, wandb, mlflow")
    out: str | None = Field(None, description="folder for the outcome, a new one; default: runs/DATASET-LOSS-N")
    resume: bool = Field(False, description="go on with the run in that folder, or begin it there")


HOW = (
    "out",
    "data_root",
    "mirror",
    "threads",
    "device",
    "rank_timeout",
    "deterministic",
    "checkpoint",
    "report",
    "track",
    "resume",
)
"""Settings of how and where a figure is computed, on which the figure itself does not hang."""


def make_config(values: Mapping[str, Any]) -> Config:
    """Check settings and complete them with defaults, those of the named losses and augmentations too.

    Args:
        values: nested settings, as read from YAML.

    Raises:
        ConfigError: with one line for each problem.

    Example:
        >>> make_config({"loss": {"name": "adnce", "mu": 0.5}}).loss["sigma"]
        1.0
    """
    found = []
    try:
        config = Config.model_validate(dict(values))
    except ValidationError as error:
        found += problems(error, _valid_keys)
        config = Config.model_validate(_without(values, error))
    config = _with_benchmark(_with_views(_with_method(_with_loss(config))))
    for prefix, spec, registry in _named_parts(config):
        found += _spec_problems(spec, registry, prefix)
    if not found:
        found += _unfit_loss(config) + _unfit_views(config)
    if not config.seeds or len(set(config.seeds)) < len(config.seeds):
        found.append(f"`seeds` must be one or more different numbers, got {config.seeds}.")
    found += _eval_problems(config)
    if config.resume and config.out is None:
        found.append("`resume` needs the folder of the run, as in --resume FOLDER.")
    if config.loss.get("reduction", "mean") != "mean":
        found.append(f"`loss.reduction` must be 'mean' for training, got {config.loss['reduction']!r}.")
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", config.device):
        found.append(f"`device` must be auto, cpu, cuda or cuda:N, got {config.device!r}.")
    if found:
        raise ConfigError("\n".join(found))
    loss = _completed(config.loss, losses)
    loss.pop("reduction", None)
    return config.model_copy(
        update={
            "loss": loss,
            "encoder": _completed(config.encoder, encoders),
            "method": _completed(config.method, methods),
            "views": Views(
                first=_completed(config.views.first, augmentations),
                second=_completed(config.views.second, augmentations),
            ),
        }
    )


def to_yaml(config: Config) -> str:
    """The settings as YAML that `read_config` reads back."""
    return yaml.safe_dump(config.model_dump(), sort_keys=False, allow_unicode=True)


def set_value(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a nested value; a bare name on the way stands for `{name: ...}`, and nothing for the default.

    Args:
        values: nested settings, changed in place.
        path: the keys to it, `["loss", "mu"]`.
        value: what it becomes.
    """
    default: Any = Config().model_dump()
    for key in path[:-1]:
        default = default.get(key) if isinstance(default, dict) else None
        # What is a group of settings, not a name with arguments, is left to be completed: only what is said is chosen.
        group = isinstance(default, dict) and "name" not in default
        inner = values.get(key, {} if group else default)
        values[key] = {"name": inner} if isinstance(inner, str) else dict(inner) if isinstance(inner, dict) else {}
        values = values[key]
    values[path[-1]] = value


def flat_values(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings one by one, by their dotted paths.

    Example:
        >>> list(flat_values({"loss": {"name": "adnce", "mu": 0.7}, "lr": 0.01}))
        [('loss.name', 'adnce'), ('loss.mu', 0.7), ('lr', 0.01)]
    """
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat_values(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The settings in which two configurations differ, one phrase each; those that no figure hangs on are left out."""
    before, after = (dict(flat_values({k: v for k, v in each.items() if k not in HOW})) for each in (old, new))
    return [
        f"`{key}` was {before[key]!r} and is {after[key]!r}"
        if key in before and key in after
        else f"`{key}` {'is new' if key in after else 'is no more'}"
        for key in dict.fromkeys([*before, *after])
        if key not in before or key not in after or before[key] != after[key]
    ]


def build_augmentation(spec: Mapping[str, Any]) -> Any:
    """The augmentation that a checked `{name: ..., argument: ...}` describes, its members too."""
    arguments = {key: value for key, value in spec.items() if key != "name"}
    if "members" in arguments:
        arguments["members"] = [build_augmentation(_named(member)) for member in arguments["members"]]
    return augmentations[spec["name"]](**arguments)


def check_augmentation(value: Any, where: str) -> dict[str, Any]:
    """The complete `{name: ..., argument: ...}` of an augmentation that is named, or given so.

    Args:
        value: what is given.
        where: what messages call it.

    Raises:
        ConfigError: with one line for each problem.
    """
    spec = _named(value)
    if found := _spec_problems(spec, augmentations, where):
        raise ConfigError("\n".join(found))
    return _completed(spec, augmentations)


def _named_parts(config: Config) -> list[tuple[str, dict[str, Any], Registry]]:
    return [
        ("views.first", config.views.first, augmentations),
        ("views.second", config.views.second, augmentations),
        ("encoder", config.encoder, encoders),
        ("loss", config.loss, losses),
        ("method", config.method, methods),
    ]


def _with_loss(config: Config) -> Config:
    """The settings with the loss that the method is made for, where none is named."""
    if config.loss.get("name") != "auto":
        return config
    name = _facts(config.method, methods).get("loss", "infonce")
    return config.model_copy(update={"loss": {**config.loss, "name": name}})


def _with_method(config: Config) -> Config:
    """The settings with the method that the loss is made for, where none is named."""
    if config.method.get("name") != "auto":
        return config
    name = _facts(config.loss, losses).get("method", "two_views")
    return config.model_copy(update={"method": {**config.method, "name": name}})


def _with_views(config: Config) -> Config:
    """The settings with the views that the method takes, where none are chosen and it takes but one kind."""
    wanted = _facts(config.method, methods).get("views")
    chosen = config.views.model_fields_set if "views" in config.model_fields_set else set()
    views = {key: {"name": wanted} for key in Views.model_fields if wanted and key not in chosen}
    return config.model_copy(update={"views": config.views.model_copy(update=views)})


def _facts(spec: Mapping[str, Any], registry: Registry) -> Mapping[str, str]:
    """What is known of the named thing; nothing where there is none of that name, which is said elsewhere."""
    name = spec.get("name")
    return registry.facts(name) if isinstance(name, str) and name in registry else {}


def _with_benchmark(config: Config) -> Config:
    """The settings with an encoder and an evaluator, those of OGB's sets for them, where none are named."""
    is_ogb = config.dataset.startswith("ogbg-")
    update: dict[str, Any] = {}
    if config.encoder.get("name") == "auto":
        molecules = is_ogb and config.dataset != "ogbg-ppa" and config.features in ("auto", "labels")
        update["encoder"] = {**config.encoder, "name": "molecule_gine" if molecules else "gin"}
    if is_ogb and "eval" not in config.model_fields_set:
        update["eval"] = ["ogb"]
    return config.model_copy(update=update)


def _unfit_views(config: Config) -> list[str]:
    """Why views and method do not go together, one line at most."""
    method = config.method["name"]
    wanted, names = methods.facts(method).get("views"), [config.views.first["name"], config.views.second["name"]]
    if wanted is None or set(names) == {wanted}:
        return []
    got = " and ".join(names)
    return [f"`views` must be {wanted} with method {method}, which takes the original graphs; got {got}."]


def _unfit_loss(config: Config) -> list[str]:
    """Why loss and method do not go together, one line at most."""
    loss, method = config.loss["name"], config.method["name"]
    if "labels" in losses.arguments(loss).tensors:
        return [
            f"`loss` {loss} trains on the labels of all graphs, the test folds' too, so its score would mean nothing; "
            f"use it from Python, on training graphs only."
        ]
    negatives = config.loss.get("negatives")
    if method == "memory_bank" and negatives not in (None, "queue"):
        return [f"`loss.negatives` {negatives} has no effect with method memory_bank, whose negatives are the bank's."]
    if negatives == "queue" and method not in ("memory_bank", "moco"):
        return [f"`loss.negatives` queue means nothing to method {method}, which has none; use `--method moco`."]
    return []


def _eval_problems(config: Config) -> list[str]:
    """What is wrong with the choice of evaluators, one line each."""
    names = config.eval
    if not names or len(set(names)) < len(names):
        return [f"`eval` must be one or more different evaluators, got {names}."]
    known = [*EVALUATORS, *SPLIT_EVALUATORS]
    found = [f"`eval`: unknown evaluator {name!r}; {nearest(name, known)}." for name in names if name not in known]
    if config.evaluation.scale and "svm" not in names:
        found.append(f"`evaluation.scale` means nothing without svm, got `eval` {', '.join(names)}.")
    return found


def _spec_problems(spec: Any, registry: Registry, prefix: str) -> list[str]:
    if not isinstance(spec, dict) or not isinstance(spec.get("name"), str):
        return [f"`{prefix}` must be a name or a mapping with a `name`, got {spec!r}."]
    arguments = {key: value for key, value in spec.items() if key != "name"}
    if spec["name"] not in registry:
        return [f"`{prefix}`: unknown {registry.kind} {spec['name']!r}; {nearest(spec['name'], registry)}."]
    found = []
    if "members" in registry.arguments(spec["name"]).required:
        members = arguments.pop("members", None)
        if not isinstance(members, list) or not members:
            found.append(f"`{prefix}.members` must be a list of one or more {registry.kind}s, got {members!r}.")
        else:
            for position, member in enumerate(members):
                found += _spec_problems(_named(member), registry, f"{prefix}.members.{position}")
    return found + registry.problems(spec["name"], arguments, f"{prefix}.")


def _completed(spec: dict[str, Any], registry: Registry) -> dict[str, Any]:
    spec = {"name": spec["name"], **registry.arguments(spec["name"]).defaults, **spec}
    if "members" in spec:
        spec["members"] = [_completed(_named(member), registry) for member in spec["members"]]
    return spec


def _valid_keys(parents: tuple[Any, ...]) -> list[str]:
    model: Any = Config
    for parent in parents:
        model = model.model_fields[parent].annotation
    return list(model.model_fields)


def _without(values: Mapping[str, Any], error: ValidationError) -> dict[str, Any]:
    """The settings without those that failed, so that the rest can be judged too."""
    rest = copy.deepcopy(dict(values))
    for item in error.errors():
        *parents, last = item["loc"]
        part: Any = rest
        for parent in parents:
            part = part.get(parent) if isinstance(part, dict) else None
        if isinstance(part, dict):
            for key in [key for key in part if str(key) == str(last)]:  # one that is no text is shown as one
                del part[key]
        else:  # inside of a list: the whole list goes
            rest.pop(str(item["loc"][0]), None)
    return rest
