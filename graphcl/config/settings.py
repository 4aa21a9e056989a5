"""The settings of a run: names, types, ranges, defaults and help texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from graphcl.arguments import Count, NonNegative, Positive, interval, shown
from graphcl.config.specs import Named
from graphcl.models.projector import ProjectorName


class Settings(BaseModel):
    """Base class of all settings models: frozen, strictly typed, unknown keys are errors.

    On the command line, a field's description is its help text, and its title is the placeholder for the value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _split(value: Any) -> Any:
    return re.findall(r"[^\s,]+", value) if isinstance(value, str) else value


def _must_be(rule: str, holds: Callable[[Any], object]) -> AfterValidator:
    """Return a validator that raises "must be `rule`, got ..." for a value for which `holds` is false."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise PydanticCustomError("rule", "must be {rule}, got {value}", {"rule": rule, "value": shown(value)})
        return value

    return AfterValidator(check)


def _different(values: list[Any]) -> bool:
    return 0 < len(values) == len(set(values))


Names = Annotated[list[str], BeforeValidator(_split)]
"""A list of names, or a text of names separated by commas or blanks."""
DatasetName = Annotated[
    str, Field(title="NAME", description="TU or OGB name, `synthetic`, a .pt file, a TU folder or a packed one")
]
DataRoot = Annotated[str, Field(title="FOLDER", description="folder of downloaded and processed data sets")]
Mirror = Annotated[str | None, Field(title="PLACE", description="folder, file:// or http(s) URL that holds NAME.zip")]
Features = Annotated[
    Literal["auto", "labels", "constant", "degree", "labels+degree", "auto+degree"],
    Field(title="KIND", description="node features; auto: labels if any, else constant (auto+degree: no constant)"),
]
MaxDegree = Annotated[Count, Field(description="larger degrees share the last column")]
Evaluators = Annotated[
    Names,
    _must_be("one or more different evaluators", _different),
    Field(title="NAME ...", description="evaluators, one or more: knn, logreg, svm; for OGB's sets: ogb"),
]
Threads = Annotated[Count, Field(description="CPU threads of training; 1 is robust on a shared machine")]
Device = Annotated[
    str,
    _must_be("auto, cpu, cuda or cuda:N", re.compile(r"auto|cpu|cuda(:\d+)?").fullmatch),
    Field(title="NAME", description="auto, cpu, cuda or cuda:N; auto: CUDA if available"),
]
Seed = Annotated[int, interval("[0, 4294967296)")]
Seeds = Annotated[list[Seed], _must_be("one or more different numbers", _different)]


class Views(Settings):
    """The augmentations for the first and the second view."""

    first: Named = {"name": "random4"}
    second: Named = {"name": "random4"}


class Evaluation(Settings):
    """The evaluation protocol, see `graphcl.evaluate.svm`; folds apply to every evaluator, `scale` to the SVM only."""

    folds: Annotated[int, interval("[2, inf)")] = 10
    inner_folds: Annotated[int, interval("[2, inf)")] = 5
    scale: bool = False


class CheckpointRule(Settings):
    """Number of epochs or minutes between checkpoints, see `graphcl.training.checkpoint.Checkpoints`."""

    epochs: Count | None = None
    minutes: Positive | None = 10.0


class Config(Settings):
    """All settings of a run. Create it with `make_config`, which fills in defaults and checks the values."""

    dataset: DatasetName = "synthetic"
    data_root: DataRoot = "datasets"
    mirror: Mirror = None
    features: Features = "auto"
    max_degree: MaxDegree = 64
    views: Views = Field(Views(), description="the augmentations `first` and `second`")
    encoder: Named = Field({"name": "auto"}, description="the encoder; auto: gin, for OGB's molecules molecule_gine")
    projection: Count | None = Field(None, description="width of the projection; default: the encoder's")
    projector: ProjectorName = Field(
        "mlp", title="NAME", description="the projector: mlp, linear (one layer) or residual (InfoGraph's)"
    )
    loss: Named = Field({"name": "auto"}, description="the loss; auto: the method's usual loss, else infonce")
    method: Named = Field({"name": "auto"}, description="how views are contrasted; auto: the loss's usual method")
    epochs: Annotated[int, interval("[0, inf)")] = Field(20, description="passes over the data")
    steps: Count | None = Field(None, description="optimiser steps in all, instead of `epochs`")
    batch_size: Annotated[int, interval("[2, inf)", "a contrastive loss compares at least two graphs")] = Field(
        128, description="graphs in a batch, at least two"
    )
    shuffle_window: Annotated[int, interval("[16, inf)")] | None = Field(
        None, description="graphs shuffled together, for data sets larger than the memory; default: all"
    )
    lr: Positive = Field(0.01, description="Adam's learning rate")
    weight_decay: NonNegative = Field(0.0, description="Adam's L2 penalty")
    clip_norm: Positive | None = Field(None, description="largest norm of the gradient; default: no clipping")
    amp: bool = Field(False, description="compute in bfloat16")
    non_finite: Literal["stop", "skip"] = Field(
        "stop", title="ACTION", description="on a NaN or infinite loss or gradient: stop, or skip the step and count it"
    )
    deterministic: bool = Field(
        False, description="bit-identical results on CUDA too, or an error if an operation cannot; slower there"
    )
    precise_bn: bool = Field(
        False, description="recompute BatchNorm statistics over all graphs after training, before embedding"
    )
    diagnostics: bool = Field(False, description="log ranks, negatives and weights of each epoch too")
    seeds: Seeds = Field([0, 1, 2, 3, 4], description="seeds; one training each")
    eval: Evaluators = ["svm"]
    evaluation: Evaluation = Field(Evaluation(), description="folds of the scores; whether the SVM scales columns")
    score_every: Count | None = Field(
        None, description="also score every N epochs, for the record; the scores choose nothing"
    )
    threads: Threads = 1
    device: Device = "auto"
    sync_batchnorm: bool = Field(
        False, description="with several ranks: BatchNorm statistics over the graphs of all ranks"
    )
    rank_timeout: Positive = Field(300.0, description="seconds after which a silent rank ends the whole job")
    checkpoint: CheckpointRule = Field(
        CheckpointRule(), description="save training every so many epochs or minutes, see --resume"
    )
    report: bool = Field(True, title="true|false", description="draw report.html into the run folder, with matplotlib")
    track: Annotated[list[Literal["tensorboard", "wandb", "mlflow"]], BeforeValidator(_split)] = Field(
        [], title="NAME ...", description="more logs than the run folder's: tensorboard, wandb, mlflow"
    )
    out: str | None = Field(None, title="FOLDER", description="new run folder; default: runs/DATASET-LOSS-N")
    resume: bool = Field(False, title="FOLDER", description="resume the run in that folder, or start it there")


RUNTIME_SETTINGS = (
    "data_root", "mirror", "threads", "device", "deterministic", "rank_timeout", "checkpoint", "report", "track",
    "out", "resume",
)  # fmt: skip
"""Settings that say where and how a run is computed; they do not affect its result, so they may change on resume."""
