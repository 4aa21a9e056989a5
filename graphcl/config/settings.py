"""Define the settings of a run: names, types, ranges, defaults and help texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from graphcl.arguments import (
    Channels,
    Count,
    FoldCount,
    MetricName,
    NonNegative,
    Positive,
    ProjectorName,
    Ratio,
    Seed,
    SplitName,
    interval,
    shown,
)
from graphcl.config.specs import Named


class Settings(BaseModel):
    """Base class of all settings models. Values are immutable and never converted; unknown keys are errors.

    On the command line, the description of a field is its help text, and the title is the placeholder for the value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _split(value: Any) -> Any:
    return re.findall(r"[^\s,]+", value) if isinstance(value, str) else value


def _without_ranges(value: Any) -> Any:
    """Return `value` as a list, with strings such as `3` and `0-4` replaced by the integers in that range."""
    found: list[Any] = []
    for each in value if isinstance(value, list) else [value]:
        for part in each.split(",") if isinstance(each, str) else [each]:
            ends = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part) if isinstance(part, str) else None
            numbers = range(int(ends[1]), int(ends[2] or ends[1]) + 1) if ends else ()
            found += numbers if 0 < len(numbers) <= 10_000 else [part]
    return found


def _must_be(rule: str, holds: Callable[[Any], object]) -> AfterValidator:
    """Return a validator that raises the error "must be RULE, got VALUE" unless `holds(value)` is true."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise PydanticCustomError("rule", "must be {rule}, got {value}", {"rule": rule, "value": shown(value)})
        return value

    return AfterValidator(check)


def _different(values: list[Any]) -> bool:
    return 0 < len(values) == len(set(values))


Names = Annotated[list[str], BeforeValidator(_split)]
"""A list of names; a string is split at commas and blanks."""


def _dataset_name(value: Any) -> Any:
    if not isinstance(value, str | int | float | list | dict | None):
        rule = "must be a name or a path, got {value}; use GraphCL, or pass a file of InMemoryDataset.save"
        raise PydanticCustomError("rule", rule, {"value": shown(value)})
    return value


DatasetName = Annotated[
    str,
    BeforeValidator(_dataset_name),
    Field(
        title="NAME",
        description="name of a set (see --help datasets), a .pt file, a .csv of SMILES, a TU folder or a packed one",
    ),
]
DataRoot = Annotated[str, Field(title="FOLDER", description="folder of downloaded and processed data sets")]
Mirror = Annotated[str | None, Field(title="PLACE", description="folder, file:// or http(s) URL that holds NAME.zip")]
Features = Annotated[
    Literal["auto", "labels", "constant", "degree", "labels+degree", "auto+degree"],
    Field(title="KIND", description="node features; auto: labels if any, else constant (auto+degree: no constant)"),
]
MaxDegree = Annotated[Count, Field(description="larger degrees share the last column")]
Smiles = Annotated[str | None, Field(title="COLUMN", description="column of the SMILES in a table; default: smiles")]
Target = Annotated[Names, Field(title="COLUMN ...", description="columns of the targets in a table of molecules")]
Invalid = Annotated[
    Literal["skip", "stop"],
    Field(title="ACTION", description="on a row without a valid molecule: skip it with a warning, or stop"),
]
Split = Annotated[
    SplitName | None,
    Field(title="KIND", description="split of molecules with targets: random, stratified or scaffold; default: folds"),
]
Metric = Annotated[
    MetricName | None,
    Field(title="NAME", description="score of the split; default: rocauc for 0 and 1, acc for strings, else rmse"),
]
Evaluators = Annotated[
    Names,
    _must_be("one or more different evaluators", _different),
    Field(title="NAME ...", description="evaluators, one or more, see --help evaluators"),
]
Threads = Annotated[
    int, interval("[1, 1024]"), Field(description="CPU threads of training; 1 is robust on a shared machine")
]
Device = Annotated[
    str,
    _must_be("auto, cpu, cuda or cuda:N", re.compile(r"auto|cpu|cuda(:\d{1,3})?").fullmatch),
    Field(title="NAME", description="auto, cpu, cuda or cuda:N; auto: CUDA if available"),
]
Force = Annotated[bool, Field(description="replace the file if it exists")]
Seeds = Annotated[list[Seed], BeforeValidator(_without_ranges), _must_be("one or more different numbers", _different)]


class Views(Settings):
    """The augmentations for the first and the second view."""

    first: Named = {"name": "random4"}
    second: Named = {"name": "random4"}


class Evaluation(Settings):
    """Settings of the evaluation protocol, see `graphcl.evaluate.svm`. Only the SVM uses `scale`."""

    folds: FoldCount = 10
    inner_folds: FoldCount = 5
    scale: bool = False


class CheckpointRule(Settings):
    """Interval between checkpoints, in epochs or minutes; see `graphcl.training.checkpoint.Checkpoints`."""

    epochs: Count | None = None
    minutes: Positive | None = 10.0


class Config(Settings):
    """All settings of a run. Create it with `make_config`, which fills in defaults and checks the values."""

    dataset: DatasetName = "synthetic"
    data_root: DataRoot = "datasets"
    mirror: Mirror = None
    features: Features = "auto"
    max_degree: MaxDegree = 64
    smiles: Smiles = None
    target: Target = []
    invalid: Invalid = "skip"
    split: Split = None
    metric: Metric = None
    views: Views = Field(Views(), description="the augmentations `first` and `second`")
    encoder: Named = Field(
        {"name": "auto"}, title="NAME", description="the encoder; auto: gin, for molecules molecule_gine"
    )
    projection: Channels | None = Field(None, description="width of the projection; default: the encoder's")
    projector: ProjectorName = Field(
        "mlp",
        title="NAME",
        description="the projector: mlp, elu (GRACE's), linear (one layer), residual (InfoGraph's) or none",
    )
    loss: Named = Field(
        {"name": "auto"}, title="NAME", description="the loss; auto: the method's usual loss, else infonce"
    )
    method: Named = Field(
        {"name": "auto"}, title="NAME", description="how views are contrasted; auto: the loss's usual method"
    )
    epochs: Annotated[int, interval("[0, 1e9)")] = Field(20, description="passes over the data")
    steps: Count | None = Field(None, description="optimiser steps in total, instead of `epochs`")
    batch_size: Annotated[int, interval("[2, 1e9)", "a contrastive loss compares at least two graphs")] = Field(
        128, description="graphs in a batch, at least two; with `neighbours`, nodes"
    )
    neighbours: Annotated[list[Count], BeforeValidator(_without_ranges)] = Field(
        [], description="of nodes: neighbours to sample for a node, as 10,10, one number per layer; default: all"
    )
    shuffle_window: Annotated[int, interval("[16, 1e12)")] | None = Field(
        None, description="graphs shuffled together, for data sets larger than the memory; default: all"
    )
    optimizer: Literal["adam", "adamw", "sgd"] = Field("adam", title="NAME", description="adam, adamw or sgd")
    lr: Positive = Field(0.01, description="learning rate")
    schedule: Literal["constant", "cosine"] = Field(
        "constant", title="NAME", description="learning rate over time: constant, or cosine, which falls to 0"
    )
    warmup: Ratio = Field(0.0, description="fraction of the steps in which the learning rate rises from 0")
    patience: Count | None = Field(
        None, description="stop after N epochs without a lower training loss; default: never"
    )
    weight_decay: NonNegative = Field(0.0, description="L2 penalty; for adamw: decoupled weight decay")
    clip_norm: Positive | None = Field(None, description="largest norm of the gradient; default: no clipping")
    amp: bool = Field(False, description="compute in bfloat16")
    non_finite: Literal["stop", "skip"] = Field(
        "stop", title="ACTION", description="on a NaN or infinite loss or gradient: stop, or skip the step and count it"
    )
    deterministic: bool = Field(
        False, description="bit-identical results on CUDA too (slower), or an error for an operation that cannot"
    )
    precise_bn: bool = Field(
        False, description="recompute BatchNorm statistics over all graphs after training, before embedding"
    )
    diagnostics: bool = Field(False, description="also log effective ranks and statistics of negatives")
    seeds: Seeds = Field([0, 1, 2, 3, 4], description="seeds, as 0 1 2 or 0-4; one training each")
    eval: Evaluators = ["svm"]
    evaluation: Evaluation = Field(Evaluation(), description="numbers of folds, and whether the SVM scales columns")
    score_every: Count | None = Field(None, description="also score every N epochs; these scores select nothing")
    threads: Threads = 1
    device: Device = "auto"
    sync_batchnorm: bool = Field(
        False, description="with several ranks: BatchNorm statistics over the graphs of all ranks"
    )
    rank_timeout: Annotated[float, interval("(0, 1e6]")] = Field(
        300.0, description="seconds after which a silent rank ends the whole job"
    )
    checkpoint: CheckpointRule = Field(
        CheckpointRule(), description="interval between checkpoints in epochs or minutes, see --resume"
    )
    report: bool = Field(True, title="true|false", description="draw report.html into the run folder")
    track: Annotated[list[Literal["tensorboard", "wandb", "mlflow"]], BeforeValidator(_split)] = Field(
        [], title="NAME ...", description="logs besides the run folder's: tensorboard, wandb, mlflow"
    )
    name: (
        Annotated[str, _must_be("a name of letters, digits, `.`, `_` and `-`", re.compile(r"[\w.-]+").fullmatch)] | None
    ) = Field(
        None, description="name in the folder and the title; default: the shipped configuration's, else the loss's"
    )
    out: str | None = Field(None, title="FOLDER", description="new run folder; default: runs/DATASET-NAME-N")
    resume: bool = Field(False, title="FOLDER", description="resume the run in that folder, or start it there")


MOLECULES = ("smiles", "target", "invalid", "split", "metric")
"""Settings of how a table of molecules is read."""
RUNTIME_SETTINGS = (
    "data_root", "mirror", "threads", "device", "deterministic", "rank_timeout", "checkpoint", "report", "track",
    "name", "out", "resume",
)  # fmt: skip
"""Settings that do not affect the result of a run, such as paths and devices; they may change on resume."""
