"""Define the settings of training: the one place for their names, ranges, defaults and help texts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from graphcl.arguments import Count, Needs, NonNegative, Positive, Ratio, Settings, interval

IN_TIME = "{value} has no effect, as training ends after {epochs} epochs; leave it out, or train longer"
"""Message of a setting that takes effect after more epochs than there are."""


class TrainingSettings(Settings):
    """Settings of training: keywords of `graphcl.train` and `graphcl.GraphCL`, options of `graphcl run`.

    Example:
        >>> TrainingSettings(epochs=5).optimizer
        'adam'
    """

    epochs: Annotated[
        int, interval("[0, 1e9)"), Needs("no steps", "{value} has no effect beside `steps` {steps}; give one of them")
    ] = 20
    """passes over the data"""
    steps: Count | None = None
    """optimiser steps in total, instead of `epochs`; the last epoch may then be shorter"""
    optimizer: Annotated[Literal["adam", "adamw", "sgd"], Field(title="NAME")] = "adam"
    """adam, adamw, or sgd with momentum 0.9"""
    lr: Positive = 0.01
    """learning rate"""
    schedule: Annotated[Literal["constant", "cosine"], Field(title="NAME")] = "constant"
    """learning rate over time: constant, or cosine, which falls from `lr` to 0"""
    warmup: Ratio = 0.0
    """fraction of the steps in which the learning rate rises from 0 to `lr`"""
    patience: Annotated[Count | None, Needs("patient", IN_TIME)] = None
    """stop after N epochs without a lower training loss; default: never"""
    weight_decay: NonNegative = 0.0
    """L2 penalty; for adamw: decoupled weight decay"""
    clip_norm: Positive | None = None
    """largest Euclidean norm of the gradient; default: no clipping"""
    micro_batch: Annotated[
        Count | None,
        Needs("larger batch", "{value} has no effect, as a batch has {batch_size} graphs; pass a smaller one"),
    ] = None
    """encode N graphs of a batch at a time, so that memory does not grow with the batch; default: all"""
    frozen_bn: Annotated[bool, Needs("BatchNorm", "has no effect, as the model has no BatchNorm")] = False
    """train with BatchNorm's running statistics, as in evaluation, and leave them unchanged"""
    capture: bool = False
    """replay steps as CUDA graphs: several times faster with small batches; on one GPU"""
    amp: bool = False
    """compute in bfloat16; the loss stays in float32"""
    non_finite: Annotated[Literal["stop", "skip"], Field(title="ACTION")] = "stop"
    """on a NaN or infinite loss or gradient: stop, or skip the step and count it (slower on CUDA)"""
    diagnostics: bool = False
    """also log effective ranks and statistics of negatives"""


LENGTH = {"epochs", "steps", "patience", "diagnostics"}
"""Settings that may differ when training resumes: they change how long it takes and what it logs."""


class CheckpointRule(Settings):
    """Interval between checkpoints, in epochs or minutes; see `graphcl.training.checkpoint.Checkpoints`."""

    epochs: Count | None = None
    minutes: Positive | None = 10.0
