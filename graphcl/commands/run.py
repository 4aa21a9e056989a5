"""`graphcl run`: train an encoder, embed the data set, score the embedding; the settings are `Config`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphcl.cli import program
from graphcl.cli.command_line import Command, Options, one_value, topic
from graphcl.config import Config, make_config
from graphcl.distributed.launch import report_once
from graphcl.errors import InputError
from graphcl.system.memory import keep_freed_memory

COMMON = (
    "dataset", "mirror", "features", "encoder", "loss", "method", "views", "epochs", "batch_size", "lr", "seeds",
    "eval", "device", "threads", "report", "out", "resume",
)  # fmt: skip
"""Settings that the short help lists."""


def _resume(options: Options) -> Options:
    """Replace `--resume FOLDER` with `--out FOLDER --resume`, and return the options.

    Without `--config`, also add `--config FOLDER/config.yaml` if this file exists.

    Raises:
        InputError: `--out` names another folder, or the folder does not exist and no settings of a new run are given.
    """
    given = {key: values for key, values in options if key in ("config", "dataset", "out", "resume")}
    if "resume" not in given:
        return options
    folders = list(dict.fromkeys([*given["resume"], *given.get("out", [])]))
    if len(folders) > 1:
        raise InputError(f"`--resume` and `--out` name different folders, {' and '.join(folders)}; give one.")
    folder = one_value("resume", folders)
    kept = Path(folder) / "config.yaml"
    if not Path(folder).exists() and not {"config", "dataset"} & set(given):
        raise InputError(f"folder {folder} not found; check the path, or give `--dataset` to start a run there.")
    base = [("config", [str(kept)])] if "config" not in given and kept.is_file() else []
    rest = [option for option in options if option[0] not in ("out", "resume")]
    return [*base, *rest, ("out", [folder]), ("resume", [])]


COMMAND = Command(
    "graphcl run [--dataset NAME] [--loss NAME] [--KEY VALUE ...]",
    Config,
    "Train a graph encoder by contrastive learning, embed the data set, and score the embedding.",
    validate=make_config,
    rewrite=_resume,
    details=lambda: (
        "Arguments of a loss, a method, a view or the encoder are options with dots:\n"
        "  graphcl run --dataset MUTAG --loss adnce --loss.mu 0.5 --views.second node_drop --views.second.ratio 0.1\n"
        "--help all lists every option; --help losses, methods, augmentations, encoders, evaluators, datasets or\n"
        "configurations lists names; --help adnce explains one."
    ),
    common=COMMON,
    topic=topic,
    of_run=True,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments of `graphcl run`, run the command and return the exit code."""
    with program("finished results are in the run folder, if it was created") as this:
        with report_once():
            config = COMMAND.parse(arguments)
        if config is not None:
            from graphcl.experiment.run_config import run  # imported here, as help texts need no torch

            keep_freed_memory()
            run(config)
    return this.code
