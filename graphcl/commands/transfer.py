"""`graphcl transfer`: evaluate a trained encoder on another data set.

- Probe: the encoder is frozen, and its embeddings are scored as in a run; so are those of an untrained encoder (same
  architecture, initialised with the seed).
- Fine-tuning (`graphcl.experiment.finetune`): once from the trained and once from the untrained weights, with the same
  linear layer, order of graphs and dropout masks for a given seed. A data set without a split is fine-tuned in ten
  folds: each is the test part once, the next one is then the validation part, the others the training part.
- A linear layer (`--mode linear`) is fine-tuning with a frozen encoder.
- `--label-rate 0.01` trains on 1 % of the labels of every class, as in the semi-supervised protocol of You et al. (who
  select the epoch on the test folds).
- Several data sets, modes or label rates make one table; without an encoder, a run with the settings `pretrain` trains
  one first (`graphcl.experiment.transfer_table`).
- If the file contains encoders of several seeds, each seed uses its own encoder, and the deviation `± seeds` includes
  the variation of pretraining. If it contains one encoder, all seeds use it, and `± seeds` covers the transfer only.

Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020 (arXiv 1905.12265), section 5; You et al.,
"Graph Contrastive Learning with Augmentations", NeurIPS 2020, section 5.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from graphcl.arguments import Count, NonNegative, Positive, Ratio, interval
from graphcl.cli import program
from graphcl.cli.command_line import Command, flag, one_value
from graphcl.config import make_config, read_config
from graphcl.config.settings import (
    TABLE,
    DatasetName,
    EncoderFile,
    Evaluators,
    Hardware,
    Imports,
    Place,
    Seeds,
    as_list,
)
from graphcl.datasets.settings import SplitTable
from graphcl.errors import InputError, warn
from graphcl.system.memory import keep_freed_memory

RECIPES = "transfer"
"""Folder of the shipped configurations of this command."""


class Transfer(Hardware, Place, SplitTable, Imports):
    """Use a trained encoder on other data sets: probe its frozen embeddings and those of an untrained encoder,
    fine-tune it with labels and train the same architecture from scratch, or train a linear layer on both frozen.
    """

    encoder: EncoderFile | None = None
    dataset: DatasetName
    mode: Annotated[list[Literal["probe", "finetune", "linear"]], BeforeValidator(as_list), Field(min_length=1)]
    """probe the frozen embeddings, finetune the encoder with labels, or train a linear layer on the frozen encoder"""
    seeds: Annotated[Seeds | None, Field(title="N ...", description="seeds; default: the file's, or 0 1 2")] = None
    eval: Annotated[Evaluators | None, Field(title="NAME ...")] = None
    """probe: svm, logreg, knn, or ogb for a split; default: svm or ogb"""
    epochs: Count = Field(100, description="fine-tuning: passes over the training part")
    batch_size: Annotated[int, interval("[2, 1e9)", "BatchNorm needs several nodes")] = 32
    """fine-tuning: graphs in a batch"""
    lr: Positive = Field(0.001, description="fine-tuning: Adam's learning rate")
    weight_decay: NonNegative = Field(0.0, description="fine-tuning: Adam's L2 penalty")
    dropout: Ratio = Field(0.5, description="fine-tuning: dropout ratio of the embedding, in [0, 1)")
    label_rate: Annotated[
        list[Annotated[float, interval("(0, 1]")]], BeforeValidator(as_list), Field(title="X ...", min_length=1)
    ] = [1.0]  # noqa: RUF012, pydantic copies it
    """fine-tuning: fraction of the training part's labels to use"""
    pretrain: Annotated[dict[str, Any], Field(title="SETTINGS")] = {}  # noqa: RUF012
    """without an encoder: settings of the run that trains one, such as --pretrain.epochs 100"""
    out: str | None = Field(None, title="FOLDER", description="new or unfinished folder; default: runs/NAME-MODE-N")


COMMAND = Command(
    "graphcl transfer [ENCODER] --dataset NAME ... --mode probe|finetune|linear ... [--KEY VALUE ...]",
    Transfer,
    positional="encoder",
    details=lambda: (
        "Several data sets, modes or label rates make one table. A table's targets: --dataset FILE:COLUMN,..."
    ),
    recipes=RECIPES,
)

_TUNING = ("epochs", "batch_size", "lr", "weight_decay", "dropout", "label_rate")
MODE_SETTINGS = {"probe": ("eval",), "finetune": _TUNING, "linear": _TUNING}
"""Mode -> settings that not all modes use."""
RUN_SETTINGS = {"seeds", "dataset", "out", *Place.model_fields, *Hardware.model_fields, *TABLE}
"""Settings that mean the same in a run, besides `eval`."""


def run(targets: Sequence[Transfer]) -> None:
    """Run the transfers to all targets, which differ in the data set and in settings that depend on it.

    Raises:
        InputError: a setting does not belong to the modes, or see `graphcl.experiment.transfer.transfer`.
    """
    from graphcl.experiment.transfer import transfer  # imported here, as help texts need no torch
    from graphcl.experiment.transfer_table import transfer_table

    plans = [plan for settings in targets for plan in _plans(settings)]
    encoder, pretrain = targets[0].encoder, targets[0].pretrain
    if encoder is None and not pretrain:
        advice = "give one, or settings of a run that trains one, such as --pretrain.epochs 100"
        raise InputError(f"`ENCODER` must be given; {advice}; see --help.")
    if encoder is not None and pretrain:
        warn(f"`pretrain` has no effect, as `ENCODER` {encoder} is given")
    keep_freed_memory()
    if encoder is not None and len(plans) == 1:
        transfer(encoder, plans[0])
    else:
        transfer_table(encoder, plans, pretrain, targets[0].out)


def _plans(settings: Transfer) -> list[Any]:
    """Return one plan for each mode and label rate."""
    from graphcl.experiment.transfer import Plan

    used = {name for mode in settings.mode for name in MODE_SETTINGS[mode]}
    for mode, names in MODE_SETTINGS.items():
        if idle := [flag(name) for name in names if name in settings.model_fields_set - used]:
            raise InputError(f"{', '.join(idle)}: for --mode {mode} only.")
    if "probe" in settings.mode and settings.eval == []:
        raise InputError("a probe scores embeddings, got `eval` none; name an evaluator, or use graphcl embed.")
    plans = []
    for mode in settings.mode:
        probes = mode == "probe"
        config = make_config(
            settings.model_dump(include=RUN_SETTINGS | ({"eval"} if probes else set()), exclude_none=True)
        )
        unused = set(_TUNING if probes else ("eval",)) | {"pretrain"}
        for rate in [None] if probes else settings.label_rate:
            of_plan = {"mode": mode} if rate is None else {"mode": mode, "label_rate": rate}
            of_mode = {"label_rate": rate, "frozen": mode == "linear"}
            tuning = None if probes else settings.model_dump(include=set(_TUNING)) | of_mode
            plans.append(Plan(mode, config, tuning, settings.model_dump(exclude=unused) | of_plan))
    return plans


def parse(arguments: Sequence[str]) -> list[Transfer]:
    """Return the settings of each data set, of which a configuration may hold some; empty if a text was printed."""
    if COMMAND.show_help(arguments):
        return []
    first, options = COMMAND.split(arguments)
    given = dict(options)
    names = given.get("dataset")
    if names is None and "config" in given:
        names = as_list(read_config(one_value("config", given["config"]), folder=RECIPES).get("dataset"))
    commands = list[list[str]]()
    for name in names or []:
        file, _, columns = str(name).rpartition(":")
        if columns and Path(file).is_file():
            given |= {"dataset": [file], "target": [columns]}
        else:
            given |= {"dataset": [str(name)]}
        words = [word for key, values in given.items() for word in (flag(key), *values)]
        commands.append([*([] if first is None else [first]), *words])
    parsed = map(COMMAND.parse, commands or [[*arguments]])
    return [settings for settings in parsed if settings is not None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments of `graphcl transfer`, run the command and return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    with program("finished results are in the folder, if it was created") as this:
        if targets := parse(arguments):
            run(targets)
    return this.code
